//! Logs: one line per change, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging. The level is read from `RUST_LOG`, `info` without it.
///
/// # Errors
/// When `RUST_LOG` is not a filter.
pub fn start(format: LogFormat) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(text)?,
        // The runtime reports each failed watch itself; winpool says so once, in its own words.
        _ => EnvFilter::new("info,kube_runtime=error,kube_client=error"),
    };
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal();
            registry.with(fmt::layer().with_ansi(colours).with_writer(std::io::stderr)).init();
        }
        LogFormat::Json => registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).init(),
    }
    Ok(())
}
