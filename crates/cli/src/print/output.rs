//! The output of commands: text for people, JSON or YAML for programs.
//!
//! Names and values come from other users. Characters that a terminal would interpret are escaped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use serde::Serialize;
use winpool_client::terminal::{escape, replaced};
use winpool_core::words::is_command;

use super::text::Text;

/// The output format of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables and sentences, for people.
    #[default]
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// The flag of commands that print for people or programs.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Output<F: ValueEnum + Send + Sync + 'static = Format> {
    /// Output format; text if not set.
    #[arg(long = "output", short = 'o', value_enum, default_value = "text", hide_default_value = true)]
    pub format: F,
}

/// An error while printing.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The output is closed or full.
    #[error("cannot write the output: {0}")]
    Write(#[from] io::Error),
    /// JSON output failed, which does not happen in practice.
    #[error("cannot write the output as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// YAML output failed, which does not happen in practice.
    #[error("cannot write the output as YAML: {0}")]
    Yaml(#[from] serde_yaml::ser::Error),
    /// CSV output failed, which does not happen in practice.
    #[error("cannot write the output as CSV: {0}")]
    Csv(#[from] csv::Error),
}

/// Prints text, without styles in a pipe or if `NO_COLOR` is set. A closed pipe (`| head`) is not an error.
pub fn emit(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if is_closed_pipe(&error) => Ok(()),
        result => result,
    }
}

/// True if the reader has closed the pipe.
fn is_closed_pipe(error: &io::Error) -> bool {
    // The standard library does not know every code with which Windows says so.
    const PIPE_IS_CLOSING: i32 = 232;
    const PIPE_NOT_CONNECTED: i32 = 233;
    let is_windows_code = matches!(error.raw_os_error(), Some(PIPE_IS_CLOSING | PIPE_NOT_CONNECTED));
    error.kind() == io::ErrorKind::BrokenPipe || cfg!(windows) && is_windows_code
}

/// Shows what clap says about arguments, and returns the exit code.
pub fn usage(error: &clap::Error) -> ExitCode {
    // Help and version go to standard output. A usage error ends with 1 like any other error, because 2 means findings.
    let asked = !error.use_stderr();
    let shown = if asked { emit(&error.render().ansi().to_string()).is_ok() } else { error.print().is_ok() };
    if asked && shown { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints `data` in this format; `text` returns the text for people.
pub fn print(format: Format, data: &impl Serialize, text: impl FnOnce() -> Text) -> Result<(), OutputError> {
    match format {
        Format::Text => Ok(emit(text().as_str())?),
        Format::Json => Ok(emit(&escape_json(&(serde_json::to_string_pretty(data)? + "\n")))?),
        Format::Yaml => Ok(emit(&escape_json(&serde_yaml::to_string(data)?))?),
    }
}

/// Prints a table for spreadsheets: a row with the names of the columns, and the others.
pub fn print_csv(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Result<(), OutputError> {
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(header)?;
    for row in rows {
        table.write_record(row.iter().map(|cell| spreadsheet(cell)))?;
    }
    let bytes = table.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(emit(&String::from_utf8_lossy(&bytes))?)
}

/// Escapes a cell. A spreadsheet would run a text of another user that begins as a formula.
fn spreadsheet(cell: &str) -> String {
    let mark = if cell.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    format!("{mark}{}", escape(cell))
}

/// Groups items with equal keys, in the order of their first item. Returns this item and the names of all.
pub fn alike<'a, T>(items: impl Iterator<Item = (String, &'a str, T)>) -> Vec<(T, Vec<&'a str>)> {
    let mut groups: Vec<(T, Vec<&str>)> = Vec::new();
    let mut indexes: BTreeMap<String, usize> = BTreeMap::new();
    for (key, name, item) in items {
        let index = *indexes.entry(key).or_insert(groups.len());
        match groups.get_mut(index) {
            Some((_, names)) => names.push(name),
            None => groups.push((item, vec![name])),
        }
    }
    groups
}

/// Escapes the characters that a terminal would interpret, as in JSON and double-quoted YAML (`\u202e`). Their writers leave these characters unescaped only in strings.
fn escape_json(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_command(c) && c != '\n', |c| format!("\\u{:04x}", u32::from(c)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::text::{GOOD, Table};

    #[test]
    fn control_characters_are_escaped() {
        let json = serde_json::to_string_pretty(&serde_json::json!({"a": "\u{1b}\u{9b}\u{202e}ü"})).unwrap();
        let safe = escape_json(&json);
        assert!(!safe.contains(|c| is_command(c) && c != '\n'), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap()["a"], "\u{1b}\u{9b}\u{202e}ü");
        let yaml = serde_yaml::to_string(&serde_json::json!({"a": "\u{1b}\u{9b}\u{202e}ü"})).unwrap();
        let safe = escape_json(&yaml);
        assert!(!safe.contains(|c| is_command(c) && c != '\n'), "{safe}");
        assert_eq!(serde_yaml::from_str::<serde_json::Value>(&safe).unwrap()["a"], "\u{1b}\u{9b}\u{202e}ü");
        let mut text = Text::new();
        text.line("a\u{1b}]0;x\u{7}").styled("  ", GOOD, "b\u{1b}[0m").paragraph("", "c\u{8}");
        text.table(Table::new(&["NAME"]).row(["d\u{7}"]));
        assert!(!text.plain().contains(|c| is_command(c) && c != '\n'), "{text:?}");
    }
}
