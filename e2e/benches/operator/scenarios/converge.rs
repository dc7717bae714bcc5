//! Nodes exist and the operator runs idle; then the pool is created. Floor: the same patches, made beforehand.

use crate::Result;
use crate::fleet::Fleet;
use crate::options::Options;
use crate::report::{Report, Row};
use crate::stage::Stage;
use crate::statistics::{Pairs, Turn, median, turns};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use winpool_e2e::{Requests, Usage};

/// After the last node the pool reports at most once a second. That is counted as well.
const REPORTED: Duration = Duration::from_millis(2500);

/// Peak memory in MB that is allowed for so many nodes.
const MEMORY: [(usize, f64); 2] = [(1000, 20.0), (5000, 30.0)];

/// What one turn of the operator took.
struct Measured {
    requests: Requests,
    cpu: f64,
    usage: Usage,
}

/// Measures it at each size.
pub async fn run(options: &Options, program: &Path, report: &mut Report<'_>) -> Result<()> {
    for size in &options.nodes {
        at_size(options, program, *size, report).await?;
    }
    Ok(())
}

async fn at_size(options: &Options, program: &Path, size: usize, report: &mut Report<'_>) -> Result<()> {
    let stage = Stage::set(program, size, None, &json!({})).await?;
    report.note(&format!("a node is {} bytes of JSON", Fleet::bytes(&stage.client, 0).await?));
    // The first turn finds a cold API server and does not count.
    floor(&stage).await?;
    stage.reset(0..size, size).await?;
    let (mut seconds, mut floor_cpu, mut measured) = (Pairs::default(), Vec::new(), Vec::new());
    for turn in turns(options.pairs) {
        match turn {
            Turn::Winpool => {
                let (took, result) = winpool(&stage).await?;
                seconds.push(turn, took);
                measured.push(result);
            }
            Turn::Floor => {
                let (took, cpu) = floor(&stage).await?;
                seconds.push(turn, took);
                floor_cpu.push(cpu);
            }
        }
        stage.reset(0..size, size).await?;
    }
    tell(size, &seconds, floor_cpu, &measured, report);
    Ok(())
}

async fn winpool(stage: &Stage) -> Result<(f64, Measured)> {
    let operator = stage.operator().await?;
    let before = (Requests::until_now(&stage.client).await?, operator.usage()?);
    let start = Instant::now();
    stage.apply_pool(&json!({})).await?;
    stage.observer.until(stage.size, stage.size).await?;
    let last = stage.observer.last().ok_or("no node is right")?;
    tokio::time::sleep(REPORTED).await;
    let (requests, usage) = (Requests::until_now(&stage.client).await?.since(&before.0), operator.usage()?);
    operator.stop().await?;
    Ok(((last - start).as_secs_f64(), Measured { requests, cpu: usage.cpu_seconds - before.1.cpu_seconds, usage }))
}

async fn floor(stage: &Stage) -> Result<(f64, f64)> {
    let mut bare = stage.bare("patch").await?;
    let before = bare.usage()?;
    let start = Instant::now();
    bare.go().await?;
    stage.observer.until(stage.size, stage.size).await?;
    let last = stage.observer.last().ok_or("no node is right")?;
    bare.says("done").await?;
    let cpu = bare.usage()?.cpu_seconds - before.cpu_seconds;
    bare.stop().await?;
    Ok(((last - start).as_secs_f64(), cpu))
}

#[expect(clippy::cast_precision_loss, reason = "numbers of nodes and requests are small")]
fn tell(size: usize, seconds: &Pairs, floor_cpu: Vec<f64>, measured: &[Measured], report: &mut Report<'_>) {
    let all = |value: &dyn Fn(&Measured) -> f64| -> Vec<f64> { measured.iter().map(value).collect() };
    let what = |text: &str| format!("{size} nodes: {text}");
    report.add(Row::paired(what("pool created until the last node is right"), "s", seconds).ratio_at_most(1.1));
    let writes = all(&|turn| turn.requests.writes("nodes") as f64);
    let worst = writes.iter().copied().fold(0.0, f64::max);
    report.add(Row::value(what("writes of a node, worst turn"), "", worst / size as f64).at_most(1.0));
    let requests = median(&all(&|turn| turn.requests.total() as f64));
    report.add(Row::beside(what("all requests"), "", requests, size as f64));
    let cpu = Pairs { winpool: all(&|turn| turn.cpu), floor: floor_cpu };
    report.add(Row::paired(what("processor time"), "s", &cpu));
    let peak = all(&|turn| turn.usage.peak_mb).into_iter().fold(0.0, f64::max);
    let row = Row::value(what("peak memory, worst turn"), "MB", peak);
    let target = MEMORY.iter().find(|(nodes, _)| *nodes == size);
    report.add(match target {
        Some((_, megabytes)) => row.at_most(*megabytes),
        None => row,
    });
    let resident = median(&all(&|turn| turn.usage.resident_mb));
    report.add(Row::value(what("memory afterwards"), "MB", resident));
    if let Some(last) = measured.last() {
        // One of them was the bench's own: it created the pool.
        report.note(&format!("{size} nodes, requests of the last turn: {}", last.requests.text()));
    }
}
