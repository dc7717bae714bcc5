//! Logs: one line for each change, on standard error. `docs/reference/logs.md` lists the fields.
//!
//! Text from others (a node, a policy's message) is a separate field and never part of the message, and is recorded as
//! text and not by its `Display`. So the text format quotes it and escapes its control characters, and no line can be
//! forged.

use std::io::IsTerminal;

use clap::ValueEnum;
use kube::runtime::watcher;
use tracing::Subscriber;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::{MakeWriter, layer};
use tracing_subscriber::prelude::*;
use winpool_client::causes::failure;

/// The default of `RUST_LOG`. kube's runtime reports each failed watch and its client each failed request; winpool
/// logs them once, in its own words.
pub const DIRECTIVES: &str = "info,kube_runtime=error,kube_client=off";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Readable text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging, at the level of `RUST_LOG`, or by these directives.
pub fn start(format: LogFormat, default: &str) -> Result<(), ParseError> {
    let directives = std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let filter = directives.as_deref().unwrap_or(default).parse()?;
    subscriber(format, filter, std::io::stderr, std::io::stderr().is_terminal()).init();
    Ok(())
}

/// Logs once that a watch fails, and once that it works again.
pub(crate) fn outages<T>(kind: &'static str) -> impl FnMut(&watcher::Result<T>) + Send + 'static {
    let mut failing = false;
    move |event| match event {
        Ok(_) if std::mem::take(&mut failing) => watch_works(kind),
        Ok(_) => {}
        Err(error) => watch_fails(kind, !std::mem::replace(&mut failing, true), error),
    }
}

/// Logs the first failure of a watch in a row.
pub(crate) fn watch_fails(kind: &'static str, is_first: bool, error: &watcher::Error) {
    if is_first {
        tracing::warn!(kind, error = failure(error), "watch fails; trying again, with growing pauses");
    } else {
        tracing::debug!(kind, error = failure(error), "watch still fails");
    }
}

/// Logs that a watch works after failures.
pub(crate) fn watch_works(kind: &'static str) {
    tracing::info!(kind, "watch works again");
}

fn subscriber<W>(format: LogFormat, filter: Targets, writer: W, colours: bool) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let lines = match format {
        LogFormat::Text => layer().with_ansi(colours).with_writer(writer).boxed(),
        LogFormat::Json => layer().json().flatten_event(true).with_writer(writer).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines)
}

/// A list as one field, which is absent if the list is empty.
pub(crate) fn list(things: impl IntoIterator<Item = String>) -> Option<String> {
    let things: Vec<String> = things.into_iter().collect();
    (!things.is_empty()).then(|| things.join(","))
}

#[cfg(test)]
pub(crate) mod tests;
