//! Nodes join. Measured is how long a node is there without its taint, both seen by the same watch: as long as that, a
//! Linux pod may land on it. Floor: a bare client that watches and patches.

use crate::Result;
use crate::fleet::{each, name};
use crate::options::Options;
use crate::process::Bare;
use crate::report::{Report, Row};
use crate::stage::Stage;
use crate::statistics::{Pairs, Turn, quantile, turns};
use serde_json::json;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;
use winpool_e2e::Program;

/// Nodes that join while others wait to be written, and how long after each other: all within the second or so that a
/// backlog of 1,000 takes.
const LATECOMERS: usize = 20;
const INTERVAL: Duration = Duration::from_millis(20);

/// A node at first, so that the class is there and the taint has been let through.
const WARM: usize = 3;

/// Who writes in this turn.
enum Writer {
    Winpool(Program),
    Bare(Bare),
}

impl Writer {
    async fn idle(stage: &Stage, turn: Turn) -> Result<Self> {
        Ok(match turn {
            Turn::Winpool => Self::Winpool(stage.operator().await?),
            Turn::Floor => Self::Bare(stage.bare("join").await?),
        })
    }

    /// From now on it writes what there is to write.
    async fn begin(&mut self, stage: &Stage) -> Result<()> {
        match self {
            Self::Winpool(_) => stage.apply_pool(&json!({})).await,
            Self::Bare(bare) => {
                bare.go().await?;
                bare.says("watching").await
            }
        }
    }

    async fn stop(self) -> Result<()> {
        match self {
            Self::Winpool(operator) => Ok(operator.stop().await?),
            Self::Bare(bare) => bare.stop().await,
        }
    }
}

/// Measures it: one after the other, all at once, and behind a backlog.
pub async fn run(options: &Options, program: &Path, report: &mut Report<'_>) -> Result<()> {
    let stage = Stage::set(program, WARM, None, &json!({})).await?;
    let (mut single, mut storm) = (Latencies::default(), Latencies::default());
    for turn in turns(options.pairs) {
        let mut writer = Writer::idle(&stage, turn).await?;
        writer.begin(&stage).await?;
        stage.observer.until(WARM, WARM).await?;
        let (first, second) = (WARM..WARM + options.joins, WARM + options.joins..WARM + options.joins + options.storm);
        for number in first.clone() {
            stage.fleet.join_one(number).await?;
            stage.observer.until(number + 1, number + 1).await?;
        }
        single.add(turn, &stage, first);
        stage.fleet.join(second.clone()).await?;
        stage.observer.until(second.end, second.end).await?;
        storm.add(turn, &stage, second.clone());
        writer.stop().await?;
        stage.fleet.leave(WARM..second.end).await?;
        stage.reset(0..WARM, WARM).await?;
    }
    drop(stage);
    single.tell("one after the other", Some(3.0), report);
    storm.tell(&format!("{} at once", options.storm), Some(3.0), report);

    let backlog = options.backlog;
    let stage = Stage::set(program, backlog, None, &json!({})).await?;
    let mut behind = Latencies::default();
    for turn in turns(options.pairs) {
        let writer = behind_backlog(&stage, turn).await?;
        behind.add(turn, &stage, backlog..backlog + LATECOMERS);
        writer.stop().await?;
        stage.fleet.leave(backlog..backlog + LATECOMERS).await?;
        stage.reset(0..backlog, backlog).await?;
    }
    behind.tell(&format!("behind a backlog of {backlog}"), Some(3.0), report);
    Ok(())
}

async fn behind_backlog(stage: &Stage, turn: Turn) -> Result<Writer> {
    let mut writer = Writer::idle(stage, turn).await?;
    writer.begin(stage).await?;
    stage.observer.until_any().await?;
    let late = stage.size..stage.size + LATECOMERS;
    each(late.clone(), async |number| {
        tokio::time::sleep(INTERVAL * u32::try_from(number - stage.size)?).await;
        stage.fleet.join_one(number).await
    })
    .await?;
    stage.observer.until(late.end, late.end).await?;
    Ok(writer)
}

/// In milliseconds: of each turn, and of all turns together.
#[derive(Default)]
struct Latencies {
    p50: Pairs,
    p99: Pairs,
    all: Pairs,
}

impl Latencies {
    fn add(&mut self, turn: Turn, stage: &Stage, numbers: Range<usize>) {
        let names: Vec<String> = numbers.map(name).collect();
        let milliseconds = stage.observer.unguarded(&names);
        self.p50.push(turn, quantile(&milliseconds, 0.5));
        self.p99.push(turn, quantile(&milliseconds, 0.99));
        for value in milliseconds {
            self.all.push(turn, value);
        }
    }

    fn tell(&self, how: &str, target: Option<f64>, report: &mut Report<'_>) {
        let what = |part: &str| format!("{how}: without its taint, {part}");
        report.add(Row::paired(what("p50 (median of turns)"), "ms", &self.p50));
        let p99 = Row::paired(what("p99 (median of turns)"), "ms", &self.p99);
        report.add(match target {
            Some(target) => p99.ratio_at_most(target),
            None => p99,
        });
        for (part, word) in [(0.9, "p90"), (0.99, "p99"), (1.0, "longest")] {
            let (winpool, floor) = (quantile(&self.all.winpool, part), quantile(&self.all.floor, part));
            report.add(Row::beside(what(&format!("{word} of all turns")), "ms", winpool, floor));
        }
    }
}
