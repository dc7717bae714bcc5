//! The workload check before a pool's first taint: all workloads and unfinished pods are listed and judged. Floor: the
//! same objects, only received. The API server accepts pods slowly, so there are some real ones, and more that are only
//! decoded.

use crate::Result;
use crate::fleet::{PODS_OF_A_DEPLOYMENT, deployment, each, pod};
use crate::options::Options;
use crate::process::print;
use crate::report::{Report, Row};
use crate::stage::start_server;
use crate::statistics::{Pairs, Turn, median, turns};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::Value;

/// Measures it.
pub async fn run(options: &Options, report: &mut Report<'_>) -> Result<()> {
    let server = start_server().await?;
    let client = server.connect()?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let made = each(0..options.pods.div_ceil(PODS_OF_A_DEPLOYMENT), async |number| {
        deployments.create(&PostParams::default(), &deployment(number)).await?;
        Ok(())
    });
    made.await?;
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let made = each(0..options.pods, async |number| {
        pods.create(&PostParams::default(), &pod(number)).await?;
        Ok(())
    });
    made.await?;
    let (mut seconds, mut memory) = (Pairs::default(), Vec::new());
    for turn in turns(options.pairs) {
        let number_of_pods = options.pods.to_string();
        let child: &[&str] = match turn {
            Turn::Winpool => &["look", &number_of_pods],
            Turn::Floor => &["pages"],
        };
        let result = print(child, Some(server.kubeconfig())).await?;
        seconds.push(turn, number(&result, "seconds")?);
        if turn == Turn::Winpool {
            memory.push(number(&result, "megabytes")?);
            if result["pods"] != options.pods {
                return Err(format!("not all pods were listed: {result}").into());
            }
        }
    }
    let what = |text: &str| format!("{} pods and their Deployments on the API server: {text}", options.pods);
    report.add(Row::paired(what("listed and judged"), "s", &seconds));
    report.add(Row::value(what("memory at most"), "MB", median(&memory)));

    let result = print(&["decode-pods", &options.decoded_pods.to_string()], None).await?;
    let what = |text: &str| {
        format!("{} generated pods and their Deployments, without an API server: {text}", options.decoded_pods)
    };
    report.add(Row::value(what("decoded and judged"), "s", number(&result, "seconds")?));
    report.add(Row::value(what("of that judged"), "s", number(&result, "judging")?));
    report.add(Row::value(what("memory at most"), "MB", number(&result, "megabytes")?));
    Ok(())
}

fn number(result: &Value, key: &str) -> Result<f64> {
    result[key].as_f64().ok_or_else(|| format!("a child prints no {key}: {result}").into())
}
