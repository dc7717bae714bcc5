//! What to measure, and how much of it.

use crate::Result;
use crate::report::Report;
use crate::scenarios::{cache, converge, core, join, look, migration, quiet, restart, start};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Measures winpool on a real control plane, beside a floor.
#[derive(Parser, Serialize)]
#[command(bin_name = "make bench BENCH=…")]
pub struct Options {
    /// What to measure; everything if nothing is named.
    #[arg(value_enum)]
    pub only: Vec<Scenario>,
    /// Numbers of nodes: `converge` is run with each, other scenarios with the largest.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 5000])]
    pub nodes: Vec<usize>,
    /// How often winpool and the floor take turns.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pub pairs: u16,
    /// `join`: nodes that join one after the other, each turn.
    #[arg(long, default_value_t = 200)]
    pub joins: usize,
    /// `join`: nodes that join all at once, each turn.
    #[arg(long, default_value_t = 500)]
    pub storm: usize,
    /// `join`: nodes that wait to be written when another one joins.
    #[arg(long, default_value_t = 1000)]
    pub backlog: usize,
    /// `quiet`: status updates of nodes, each turn.
    #[arg(long, default_value_t = 5000)]
    pub events: usize,
    /// `cache`: numbers of nodes that are decoded into a cache.
    #[arg(long, value_delimiter = ',', default_values_t = [5000, 100_000])]
    pub decoded: Vec<usize>,
    /// `look`: pods on the API server.
    #[arg(long, default_value_t = 5000)]
    pub pods: usize,
    /// `look`: pods that are decoded without an API server.
    #[arg(long, default_value_t = 50_000)]
    pub decoded_pods: usize,
    /// Where the results go; by default target/bench/results.json.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Said by cargo.
    #[arg(long, hide = true)]
    #[serde(skip)]
    bench: bool,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scenario {
    /// The pure core: what its Criterion benches found (`make bench-core`).
    Core,
    /// First answer and size of the program.
    Start,
    /// Memory of cached nodes.
    Cache,
    /// The workload check before the first taint.
    Look,
    /// Nodes exist, a pool is created: until the last node is right.
    Converge,
    /// A node joins: until it has its taint.
    Join,
    /// Heartbeats: nothing to do.
    Quiet,
    /// The operator starts again on a cluster that is right.
    Restart,
    /// Another taint on all nodes.
    Migration,
}

impl Options {
    /// The scenarios to run, each once, in the order of the report.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let all = Scenario::value_variants().iter().copied();
        all.filter(|scenario| self.only.is_empty() || self.only.contains(scenario)).collect()
    }

    /// The largest number of nodes.
    pub fn largest(&self) -> usize {
        self.nodes.iter().copied().max().unwrap_or_default()
    }

    /// The program of the profile that this one was built with: release, unless someone tries out the bench itself.
    pub fn winpool() -> Result<PathBuf> {
        let program = std::env::var_os("WINPOOL_STATIC").map_or(folder(2)?.join("winpool"), PathBuf::from);
        if program.is_file() {
            return Ok(program);
        }
        Err(format!("{} is missing: cargo build --release", program.display()).into())
    }

    /// Where the results go.
    pub fn json(&self) -> Result<PathBuf> {
        Ok(match &self.json {
            Some(file) => file.clone(),
            None => target()?.join("bench/results.json"),
        })
    }
}

/// Cargo's target folder: this program is `target/release/deps/operator-…`.
pub fn target() -> Result<PathBuf> {
    folder(3)
}

fn folder(up: usize) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(up).ok_or("this program was not started by cargo bench")?.to_owned())
}

impl Scenario {
    /// Measures it.
    pub async fn run(self, options: &Options, program: &Path, report: &mut Report<'_>) -> Result<()> {
        eprintln!("==> {}", self.name());
        report.scenario = self.name();
        match self {
            Self::Core => core::run(report),
            Self::Start => start::run(options, program, report).await,
            Self::Cache => cache::run(options, report).await,
            Self::Look => look::run(options, report).await,
            Self::Converge => converge::run(options, program, report).await,
            Self::Join => join::run(options, program, report).await,
            Self::Quiet => quiet::run(options, program, report).await,
            Self::Restart => restart::run(options, program, report).await,
            Self::Migration => migration::run(options, program, report).await,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Start => "start",
            Self::Cache => "cache",
            Self::Look => "look",
            Self::Converge => "converge",
            Self::Join => "join",
            Self::Quiet => "quiet",
            Self::Restart => "restart",
            Self::Migration => "migration",
        }
    }
}
