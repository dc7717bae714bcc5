use std::io::Write;
use std::sync::{Arc, Mutex};

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
