//! From the start of the process to its first answer. Floor: a process of the same program that prints its version.

use crate::Result;
use crate::options::Options;
use crate::report::{Report, Row};
use crate::stage::start_server;
use crate::statistics::{Pairs, Turn, turns};
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;
use tokio::process::Command;
use winpool_e2e::Program;

/// Measures it, and the size of the program.
#[expect(clippy::cast_precision_loss, reason = "a program is small")]
pub async fn run(options: &Options, program: &Path, report: &mut Report<'_>) -> Result<()> {
    let server = start_server().await?;
    let mut milliseconds = Pairs::default();
    for turn in turns(options.pairs) {
        let took = match turn {
            Turn::Winpool => {
                let operator = Program::start(program, &server)?;
                let took = operator.answers("/metrics").await?;
                operator.stop().await?;
                took
            }
            Turn::Floor => {
                let start = Instant::now();
                Command::new(program).arg("version").stdout(Stdio::null()).status().await?;
                start.elapsed()
            }
        };
        milliseconds.push(turn, took.as_secs_f64() * 1e3);
    }
    report.add(Row::paired("start until /metrics answers", "ms", &milliseconds).at_most(50.0));
    let bytes = std::fs::metadata(program)?.len();
    report.add(Row::value("size of the program (linked with glibc)", "MB", bytes as f64 / 1e6).at_most(12.0));
    Ok(())
}
