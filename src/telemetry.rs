//! Logs: one line per change, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use kube::runtime::watcher;
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

/// Says once that a watch fails, and once that it works again.
pub(crate) fn outages<T>(kind: &'static str) -> impl FnMut(&watcher::Result<T>) + Send + 'static {
    let mut failing = false;
    move |event| match event {
        Ok(_) if std::mem::take(&mut failing) => tracing::info!(kind, "watch works again"),
        Ok(_) => {}
        Err(error) if std::mem::replace(&mut failing, true) => tracing::debug!(kind, %error, "watch still fails"),
        Err(error) => tracing::warn!(kind, %error, "watch fails; trying again, with growing pauses"),
    }
}
