//! Measures winpool: the release binary on a real control plane, beside a floor in the same run.
//!
//! The floor is a client with the least possible work: the same requests, with the same concurrency, and nothing else.
//! winpool and the floor take turns. The result is the median of the ratios, pair by pair: see `docs/performance.md`.

mod children;
mod objects;
mod observer;
mod report;
mod scenarios;
mod stage;

use clap::{Parser, ValueEnum};
use report::Report;
use scenarios::PARTS;
use serde::Serialize;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Measures winpool on a real control plane, beside a floor.
#[derive(Parser, Serialize)]
#[command(bin_name = "make bench BENCH=…")]
struct Options {
    /// The scenarios to measure; all by default.
    #[arg(value_enum)]
    only: Vec<Scenario>,
    /// Numbers of nodes: `converge` runs with each, other scenarios with the largest.
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 5000])]
    nodes: Vec<usize>,
    /// The number of turns of winpool and the floor.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// `join`: nodes that join one after the other, each turn.
    #[arg(long, default_value_t = 200)]
    joins: usize,
    /// `join`: nodes that join at once, each turn.
    #[arg(long, default_value_t = 500)]
    storm: usize,
    /// `join`: nodes that wait to be written when another one joins.
    #[arg(long, default_value_t = 1000)]
    backlog: usize,
    /// `quiet`: heartbeats, each turn.
    #[arg(long, default_value_t = 5000)]
    events: usize,
    /// `cache`: numbers of nodes that are decoded into a cache.
    #[arg(long, value_delimiter = ',', default_values_t = [5000, 100_000])]
    decoded: Vec<usize>,
    /// `pods`: numbers of pods on the API server.
    #[arg(long, value_delimiter = ',', default_values_t = [50_000])]
    watched: Vec<usize>,
    /// `pods`: pods that are decoded into the table without an API server.
    #[arg(long, default_value_t = 150_000)]
    tabled: usize,
    /// `converge` and `join`: pods on the API server beside the nodes.
    #[arg(long, default_value_t = 0)]
    beside: usize,
    /// The file for the results; by default target/bench/results.json.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    #[serde(skip)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Scenario {
    /// First answer and size of the binary.
    Start,
    /// Memory of cached nodes.
    Cache,
    /// Nodes exist, a pool is created: until the last node is converged.
    Converge,
    /// A node joins: until it has its taint.
    Join,
    /// Heartbeats: nothing to do.
    Quiet,
    /// The operator starts on a converged cluster.
    Restart,
    /// Another taint on all nodes.
    Migration,
    /// The watch of all pods: its first list, new pods, and rest.
    Pods,
}

impl Scenario {
    fn name(self) -> String {
        json!(self).as_str().unwrap_or_default().to_owned()
    }
}

impl Options {
    fn largest(&self) -> usize {
        self.nodes.iter().copied().max().unwrap_or_default()
    }

    fn has(&self, scenario: Scenario) -> bool {
        self.only.is_empty() || self.only.contains(&scenario)
    }

    /// Replaces `{size}` and the names of options.
    fn fill_in(&self, text: &str, size: usize) -> String {
        let text = text.replace("{size}", &size.to_string()).replace("{storm}", &self.storm.to_string());
        text.replace("{events}", &self.events.to_string())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, child)) if first == stage::CHILD => children::run(child).await,
        _ => measure(&Options::parse()).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures the static binary that `make bench` names, or else the binary of the profile that this one has:
/// `target/release/deps/operator-…`.
async fn measure(options: &Options) -> Result<()> {
    let bench = std::env::current_exe()?;
    let directory = |up| bench.ancestors().nth(up).ok_or("cargo bench did not start this binary");
    let (own, target) = (directory(2)?.join("winpool-operator"), directory(3)?);
    let program = std::env::var_os("WINPOOL_STATIC").map_or(own, PathBuf::from);
    if !program.is_file() {
        return Err(format!("{} is missing: cargo build --release", program.display()).into());
    }
    let mut report = Report::default();
    for part in PARTS.iter().filter(|part| options.has(part.scenario)) {
        part.run(options, &program, &mut report).await?;
    }
    let file = options.json.clone().unwrap_or_else(|| target.join("bench/results.json"));
    report.finish(&json!(options), &file)
}
