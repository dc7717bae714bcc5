//! The look at workloads before a pool's first taint: all unfinished pods are listed and judged. Floor: the same pages,
//! only received. The API server takes pods slowly, so there are some real ones, and more that are only decoded.

use crate::Result;
use crate::fleet::{each, pod};
use crate::options::Options;
use crate::process::print;
use crate::report::{Report, Row};
use crate::stage::start_server;
use crate::statistics::{Pairs, Turn, median, turns};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;

/// Measures it.
pub async fn run(options: &Options, report: &mut Report<'_>) -> Result<()> {
    let server = start_server().await?;
    let pods: Api<Pod> = Api::namespaced(server.connect()?, "default");
    let made = each(0..options.pods, async |number| {
        pods.create(&PostParams::default(), &pod(number)).await?;
        Ok(())
    });
    made.await?;
    let (mut seconds, mut memory) = (Pairs::default(), Vec::new());
    for turn in turns(options.pairs) {
        let child = match turn {
            Turn::Winpool => "look",
            Turn::Floor => "pages",
        };
        let result = print(&[child], Some(server.kubeconfig())).await?;
        seconds.push(turn, number(&result, "seconds")?);
        if turn == Turn::Winpool {
            memory.push(number(&result, "megabytes")?);
            if result["pods"] != options.pods {
                return Err(format!("not all pods were listed: {result}").into());
            }
        }
    }
    let what = |text: &str| format!("{} pods on the API server: {text}", options.pods);
    report.add(Row::paired(what("listed and judged"), "s", &seconds));
    report.add(Row::value(what("memory at most"), "MB", median(&memory)));

    let result = print(&["decode-pods", &options.decoded_pods.to_string()], None).await?;
    let what = |text: &str| format!("{} generated pods, without an API server: {text}", options.decoded_pods);
    report.add(Row::value(what("decoded and judged"), "s", number(&result, "seconds")?));
    report.add(Row::value(what("of that judged"), "s", number(&result, "judging")?));
    report.add(Row::value(what("memory at most"), "MB", number(&result, "megabytes")?));
    Ok(())
}

fn number(result: &Value, key: &str) -> Result<f64> {
    result[key].as_f64().ok_or_else(|| format!("a child prints no {key}: {result}").into())
}
