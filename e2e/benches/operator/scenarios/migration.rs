//! All nodes carry `os=Win1809`, set by others, which the pool retires: each gets `os=windows` instead. Their class
//! tolerates both before, so nothing waits for it. Floor: the same patches, made beforehand.

use crate::Result;
use crate::options::Options;
use crate::report::{Report, Row};
use crate::stage::Stage;
use crate::statistics::{Pairs, Turn, turns};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use winpool_e2e::Requests;

/// After the last node the pool reports at most once a second. That is counted as well.
const REPORTED: Duration = Duration::from_millis(2500);

/// Measures it with the largest number of nodes.
#[expect(clippy::cast_precision_loss, reason = "numbers of requests are small")]
pub async fn run(options: &Options, program: &Path, report: &mut Report<'_>) -> Result<()> {
    let size = options.largest();
    let spec = json!({"retiredTaints": [{"key": "os", "value": "Win1809", "effect": "NoSchedule"}]});
    let stage = Stage::set(program, size, Some(("os", "Win1809")), &spec).await?;
    let (mut seconds, mut writes, mut last_requests) = (Pairs::default(), 0, String::new());
    for turn in turns(options.pairs) {
        let start;
        match turn {
            Turn::Winpool => {
                let operator = stage.operator().await?;
                // These nodes are guarded already: nothing is written on them yet.
                stage.apply_pool(&json!({})).await?;
                stage.until_ready(i64::try_from(size)?).await?;
                let before = Requests::until_now(&stage.client).await?;
                start = Instant::now();
                stage.apply_pool(&spec).await?;
                stage.observer.until(size, size).await?;
                tokio::time::sleep(REPORTED).await;
                let requests = Requests::until_now(&stage.client).await?.since(&before);
                writes = writes.max(requests.writes("nodes"));
                last_requests = requests.text();
                operator.stop().await?;
            }
            Turn::Floor => {
                let mut bare = stage.bare("patch").await?;
                start = Instant::now();
                bare.go().await?;
                stage.observer.until(size, size).await?;
                bare.says("done").await?;
                bare.stop().await?;
            }
        }
        let last = stage.observer.last().ok_or("no node is right")?;
        seconds.push(turn, (last - start).as_secs_f64());
        stage.reset(0..size, size).await?;
    }
    let what = |text: &str| format!("{size} nodes: {text}");
    report.add(Row::paired(what("taint retired until the last node is right"), "s", &seconds).ratio_at_most(1.1));
    let row = Row::value(what("writes of a node, worst turn"), "", writes as f64 / size as f64);
    report.add(row.at_most(1.0));
    report.note(&format!("{size} nodes, requests of the last turn: {last_requests}"));
    Ok(())
}
