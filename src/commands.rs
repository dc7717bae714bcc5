//! The commands of `winpool-operator`.

use clap::{Parser, Subcommand};

use crate::telemetry::LogFormat;
use crate::{Options, cleanup};

/// Makes Windows nodes safe to run beside Linux ones. `winpool` has the commands that change nothing.
#[derive(Parser)]
#[command(name = "winpool-operator", version, about)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    Run(Run),
    Cleanup(cleanup::Arguments),
}

/// Run the operator.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  winpool-operator run
  winpool-operator run --listen 127.0.0.1:8080 --leader-election false")]
pub struct Run {
    #[command(flatten)]
    pub options: Options,
    /// Format of log lines; `RUST_LOG` sets the level.
    #[arg(long, env = "WINPOOL_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}
