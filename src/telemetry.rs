//! Logs: one line for each change, on standard error. `docs/reference/logs.md` lists the fields.
//!
//! Text from others (a node, a policy's message) is a separate field and never part of the message, and is recorded as
//! text and not by its `Display`. So the text format quotes it and escapes its control characters, and no line can be
//! forged.

use std::io::IsTerminal;

use clap::ValueEnum;
use kube::runtime::watcher;
use tracing::Subscriber;
use tracing_subscriber::{
    filter::{ParseError, Targets},
    fmt::{MakeWriter, layer},
    prelude::*,
};
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
pub(crate) mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use serde_json::Value;
    use tracing::subscriber::DefaultGuard;

    use winpool_client::causes::shortened;

    use super::*;

    /// Lines of the log.
    #[derive(Clone, Default)]
    pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        /// Records the log of this thread while the guard exists.
        pub(crate) fn record(format: LogFormat) -> (Self, DefaultGuard) {
            let lines = Self::default();
            let writer = lines.clone();
            let subscriber = subscriber(format, "info".parse().unwrap(), move || writer.clone(), false);
            (lines, tracing::subscriber::set_default(subscriber))
        }

        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn logged(format: LogFormat, log: impl FnOnce()) -> String {
        let (lines, _guard) = Lines::record(format);
        log();
        lines.text()
    }

    /// A line break, a forged line, terminal codes, a direction mark, and too much of it.
    fn hostile() -> String {
        let forged = "no\r\n2026-01-01T00:00:00Z  INFO winpool: all is well\u{1b}[2J\u{9b}31m\u{202e}\u{0}\"";
        format!("{forged}{}", "x".repeat(1_000_000))
    }

    fn log_hostile() {
        tracing::warn!(node = "win-1", detail = shortened(&hostile()), "the API server refuses to change the node");
        tracing::debug!("not at this level");
    }

    #[test]
    fn in_text_what_others_wrote_stays_one_short_line_without_control_characters() {
        let text = logged(LogFormat::Text, log_hostile);
        assert_eq!(text.lines().count(), 1, "{text}");
        let line = text.trim_end_matches('\n');
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line}");
        assert!(line.contains(r#"node="win-1""#) && line.contains(r"detail=") && line.len() < 1500, "{line}");
        assert!(line.contains("WARN winpool_operator::telemetry"), "{line}");
    }

    #[test]
    fn in_json_each_line_is_one_object_whose_fields_come_back_as_they_were() {
        let text = logged(LogFormat::Json, || {
            log_hostile();
            tracing::info!(pool = "default", "pool cleaned up");
        });
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_ascii_control()), "{text}");
        assert_eq!(lines[0]["level"], "WARN");
        assert_eq!(lines[0]["message"], "the API server refuses to change the node");
        assert_eq!(lines[0]["node"], "win-1");
        assert_eq!(lines[0]["detail"], shortened(&hostile()));
        assert_eq!(lines[1]["pool"], "default");
    }
}
