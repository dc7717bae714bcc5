//! Heartbeats on a cluster that is right. Floor: a cache of the same nodes, filled by the same watch, that does nothing.

use crate::Result;
use crate::options::Options;
use crate::process::Bare;
use crate::report::{Report, Row};
use crate::stage::Stage;
use crate::statistics::{Pairs, Turn, median, turns};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use winpool_e2e::{Requests, Usage};

/// Until the last event has been seen by everybody.
const SETTLED: Duration = Duration::from_secs(1);

/// Measures it with the largest number of nodes and with a tenth of it.
pub async fn run(options: &Options, program: &Path, report: &mut Report<'_>) -> Result<()> {
    let (few, many) = ((options.largest() / 10).max(1), options.largest());
    let at_few = at_size(options, program, few, report).await?;
    let at_many = at_size(options, program, many, report).await?;
    let what = format!("processor time for an event with {many} nodes, beside that with {few}");
    report.add(Row::beside(what, "ms", at_many, at_few).ratio_at_most(1.3));
    Ok(())
}

/// Returns milliseconds of processor time for an event.
#[expect(clippy::cast_precision_loss, reason = "numbers of events are small")]
async fn at_size(options: &Options, program: &Path, size: usize, report: &mut Report<'_>) -> Result<f64> {
    let stage = Stage::set(program, size, None, &json!({})).await?;
    converge(&stage).await?;
    let events = options.events as f64;
    let (mut cpu, mut memory, mut requests) = (Pairs::default(), Pairs::default(), Vec::new());
    for turn in turns(options.pairs) {
        let caused;
        let used = match turn {
            Turn::Winpool => {
                let operator = stage.operator().await?;
                // Its first look at the pool is over.
                tokio::time::sleep(SETTLED).await;
                let before = operator.usage()?;
                caused = beat(&stage, options.events).await?;
                let used = difference(before, operator.usage()?);
                operator.stop().await?;
                used
            }
            Turn::Floor => {
                let mut bare = Bare::start(&["watch"], &stage.server)?;
                bare.says("watching").await?;
                tokio::time::sleep(SETTLED).await;
                let before = bare.usage()?;
                caused = beat(&stage, options.events).await?;
                let used = difference(before, bare.usage()?);
                bare.stop().await?;
                used
            }
        };
        cpu.push(turn, used.0 * 1e3 / events);
        memory.push(turn, used.1);
        if turn == Turn::Winpool {
            requests.push(caused as f64);
        }
    }
    let what = |text: &str| format!("{size} nodes, {} heartbeats: {text}", options.events);
    let worst = requests.into_iter().fold(0.0, f64::max);
    report.add(Row::value(what("requests that they cause, worst turn"), "", worst).at_most(0.0));
    report.add(Row::paired(what("processor time for each"), "ms", &cpu));
    report.add(Row::paired(what("memory afterwards"), "MB", &memory));
    Ok(median(&cpu.winpool))
}

async fn converge(stage: &Stage) -> Result<()> {
    let operator = stage.operator().await?;
    stage.apply_pool(&json!({})).await?;
    stage.observer.until(stage.size, stage.size).await?;
    stage.until_ready(i64::try_from(stage.size)?).await?;
    Ok(operator.stop().await?)
}

/// Tells how many requests there were besides the heartbeats themselves.
async fn beat(stage: &Stage, events: usize) -> Result<u64> {
    let before = Requests::until_now(&stage.client).await?;
    let seen = stage.observer.events();
    stage.fleet.heartbeats(events, stage.size).await?;
    tokio::time::sleep(SETTLED).await;
    let seen = stage.observer.events() - seen;
    if seen != events {
        return Err(format!("{events} heartbeats made {seen} events").into());
    }
    let requests = Requests::until_now(&stage.client).await?.since(&before);
    Ok(requests.total() - requests.of("PATCH nodes/status"))
}

fn difference(before: Usage, after: Usage) -> (f64, f64) {
    (after.cpu_seconds - before.cpu_seconds, after.resident_mb)
}
