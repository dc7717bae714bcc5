//! Commands for people, which end: all but `run`.

pub mod blockers;
pub mod builds;
pub mod check;
pub mod cleanup;
pub mod cluster;
pub mod connect;
mod error;
pub mod generate;
pub mod input;
pub mod live;
pub mod output;
pub mod plan;
pub mod reference;
pub mod render;
pub mod why;
pub mod workloads;

use std::{path::PathBuf, process::ExitCode};

pub use error::Error;

use connect::Connection;
use output::Output;

/// Where to look and how to print.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Common {
    /// File or folder with manifests, or - for standard input; may be repeated. Without it the cluster is looked at.
    #[arg(long = "filename", short = 'f', value_name = "FILE|DIR|-")]
    pub files: Vec<PathBuf>,
    /// Which cluster.
    #[command(flatten)]
    pub connection: Connection,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do, nothing was found.
    Done,
    /// There is something to do that was not done, or there are findings.
    Pending,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Pending => Self::from(2),
        }
    }
}
