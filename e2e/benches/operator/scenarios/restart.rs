//! The operator starts again on a cluster that is right. Floor: a process that lists all nodes in pages, once.

use crate::Result;
use crate::options::Options;
use crate::process::Bare;
use crate::report::{Report, Row};
use crate::stage::Stage;
use crate::statistics::{Pairs, Turn, turns};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use winpool_e2e::{Program, Requests};

/// After it leads: enough for whatever it might want to write.
const SETTLED: Duration = Duration::from_secs(3);

/// Measures it with the largest number of nodes.
#[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
pub async fn run(options: &Options, program: &Path, report: &mut Report<'_>) -> Result<()> {
    let size = options.largest();
    let stage = Stage::set(program, size, None, &json!({})).await?;
    let operator = stage.operator().await?;
    stage.apply_pool(&json!({})).await?;
    stage.observer.until(size, size).await?;
    stage.until_ready(i64::try_from(size)?).await?;
    operator.stop().await?;

    let (mut seconds, mut writes, mut last) = (Pairs::default(), 0, String::new());
    for turn in turns(options.pairs) {
        match turn {
            Turn::Winpool => {
                let before = Requests::until_now(&stage.client).await?;
                let operator = Program::start(program, &stage.server)?;
                seconds.push(turn, operator.answers("/readyz").await?.as_secs_f64());
                operator.leads().await?;
                tokio::time::sleep(SETTLED).await;
                let requests = Requests::until_now(&stage.client).await?.since(&before);
                writes = writes.max(requests.writes("nodes") + requests.writes("runtimeclasses"));
                last = requests.text();
                operator.stop().await?;
            }
            Turn::Floor => {
                let start = Instant::now();
                let mut bare = Bare::start(&["list"], &stage.server)?;
                bare.says("done").await?;
                seconds.push(turn, start.elapsed().as_secs_f64());
                bare.stop().await?;
            }
        }
    }
    report.add(Row::paired(format!("{size} nodes: start until ready"), "s", &seconds).ratio_at_most(2.0));
    let what = format!("{size} nodes: writes of nodes and classes, worst turn");
    report.add(Row::value(what, "", writes as f64).at_most(0.0));
    report.note(&format!("{size} nodes, requests of the last turn: {last}"));
    Ok(())
}
