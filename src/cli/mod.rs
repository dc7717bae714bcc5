//! Commands for people, which end: all but `run`.

pub mod blockers;
pub mod builds;
pub mod check;
pub mod cleanup;
pub mod cluster;
pub mod connect;
pub mod generate;
pub mod input;
pub mod output;
pub mod plan;
pub mod reference;
pub mod render;
pub mod why;
pub mod workloads;

use std::process::ExitCode;

pub use connect::{ConfigError, config};

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
