//! What winpool costs: the release program on a real control plane, beside a floor in the same run.
//!
//! The floor is a bare client that does the least anybody could do: the same requests, with the same number at a time,
//! and nothing else. winpool and floor take turns; the verdict is the median of the ratios, pair by pair. See
//! `docs/performance.md`.

mod children;
mod fleet;
mod observer;
mod options;
mod process;
mod report;
mod scenarios;
mod stage;
mod statistics;

use clap::Parser;
use options::Options;
use report::Report;
use std::process::ExitCode;

/// Whatever goes wrong ends the run, with its own words.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((first, child)) if first == process::CHILD => children::run(child).await,
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

async fn measure(options: &Options) -> Result<()> {
    let program = Options::winpool()?;
    let mut report = Report::new(options);
    for scenario in options.scenarios() {
        scenario.run(options, &program, &mut report).await?;
    }
    report.print();
    let file = options.json()?;
    report.write(&file)?;
    println!("\nThe same as JSON: {}", file.display());
    Ok(())
}
