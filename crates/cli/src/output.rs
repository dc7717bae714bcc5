//! The output of commands: text for people, JSON or YAML for programs.
//!
//! Names and values come from other users. Characters that a terminal would interpret are escaped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde::Serialize;
use unicode_width::UnicodeWidthStr;
use winpool_client::terminal::{escape, replaced};
use winpool_core::words::is_command;

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
pub struct Output {
    /// Output format; text if not set.
    #[arg(long = "output", short = 'o', value_enum, default_value_t, hide_default_value = true)]
    pub format: Format,
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
        Format::Text => Ok(emit(&text().0)?),
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
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for (key, name, item) in items {
        let index = *known.entry(key).or_insert(groups.len());
        match groups.get_mut(index) {
            Some((_, names)) => names.push(name),
            None => groups.push((item, vec![name])),
        }
    }
    groups
}

/// Writes objects for `kubectl apply -f -` without escaping: YAML documents, or a List as JSON.
pub fn objects(format: Format, objects: &[serde_json::Value]) -> Result<String, OutputError> {
    if format == Format::Json {
        let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": objects});
        return Ok(serde_json::to_string_pretty(&list)? + "\n");
    }
    let documents: Result<Vec<String>, _> = objects.iter().map(serde_yaml::to_string).collect();
    Ok(documents?.join("---\n"))
}

/// Escapes the characters that a terminal would interpret, as in JSON and double-quoted YAML (`\u202e`). Their writers leave these characters unescaped only in strings.
fn escape_json(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_command(c) && c != '\n', |c| format!("\\u{:04x}", u32::from(c)))
}

/// The style of correct and added things.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// The style of wrong and removed things.
pub const BAD: Style = AnsiColor::Red.on_default();
/// The style of changed things and warnings.
pub const WARN: Style = AnsiColor::Yellow.on_default();
/// The style of headings.
pub const BOLD: Style = Style::new().bold();
/// The style of less important text.
pub const DIM: Style = Style::new().dimmed();

/// Text for people. Characters that a terminal would interpret are escaped.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    pub fn new() -> Self {
        Self::default()
    }

    fn push(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = self.0.write_fmt(text);
    }

    pub fn line(&mut self, text: &str) -> &mut Self {
        self.styled("", Style::new(), text)
    }

    /// Adds a line in a style, after `indent`.
    pub fn styled(&mut self, indent: &str, style: Style, text: &str) -> &mut Self {
        let text = escape(text);
        if style == Style::new() {
            self.push(format_args!("{indent}{text}\n"));
        } else {
            self.push(format_args!("{indent}{style}{text}{style:#}\n"));
        }
        self
    }

    /// Adds styled text, broken into lines that fit. Lines after the first are indented further.
    pub fn wrapped(&mut self, indent: &str, style: Style, text: &str) -> &mut Self {
        for line in wrap(&escape(text), indent, &format!("{indent}    "), width()) {
            let words = line.trim_start_matches(' ');
            self.styled(&line[..line.len() - words.len()], style, words);
        }
        self
    }

    /// Adds an empty line, between two parts.
    pub fn gap(&mut self) -> &mut Self {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self
    }

    /// Adds a paragraph, wrapped, with each line after `indent`.
    pub fn paragraph(&mut self, indent: &str, text: &str) -> &mut Self {
        self.hanging(indent, indent, Style::new(), "", text)
    }

    /// Adds a paragraph that begins with a styled `head` after `first`; the following lines begin with `rest`.
    pub fn hanging(&mut self, first: &str, rest: &str, style: Style, head: &str, text: &str) -> &mut Self {
        let (head, text) = (escape(head), escape(text));
        let all = format!("{head}{text}");
        // Only the first line can contain the head: a head is one word, or too long for any line.
        let mut lines = wrap(&all, first, rest, width()).into_iter();
        let line = lines.next().unwrap_or_default();
        match line.strip_prefix(&format!("{first}{head}")).filter(|_| !head.is_empty()) {
            Some(line) => self.push(format_args!("{first}{style}{head}{style:#}{line}\n")),
            None => self.push(format_args!("{line}\n")),
        }
        lines.for_each(|line| self.push(format_args!("{line}\n")));
        self
    }

    pub fn table(&mut self, table: &Table) -> &mut Self {
        self.0.push_str(&table.render(width()).0);
        self
    }

    /// Returns the text without styles.
    pub fn plain(&self) -> String {
        anstream::adapter::strip_str(&self.0).to_string()
    }
}

/// Returns the width of lines: `COLUMNS` or the width of the terminal. Output into a pipe or file is not wrapped.
fn width() -> usize {
    let wanted: Option<usize> = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    // Standard error may be a terminal although the output goes to another program.
    let of_terminal = || terminal_size::terminal_size_of(io::stdout());
    let width = wanted.or_else(|| of_terminal().map(|(terminal_size::Width(columns), _)| columns.into()));
    width.map_or(usize::MAX, |width| width.clamp(40, 1000))
}

/// Wraps a text at spaces. A word that is longer than a line stays whole.
fn wrap(text: &str, first: &str, rest: &str, width: usize) -> Vec<String> {
    wrap_with(text, textwrap::Options::new(width).initial_indent(first).subsequent_indent(rest).break_words(false))
}

fn wrap_with(text: &str, options: textwrap::Options<'_>) -> Vec<String> {
    let options = options
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(text, options).into_iter().map(Cow::into_owned).collect()
}

/// A table as kubectl prints it. On a narrow terminal the cells of the widest columns are wrapped.
#[derive(Debug)]
pub struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = impl AsRef<str>>) -> &mut Self {
        self.rows.push(cells.into_iter().map(|cell| escape(cell.as_ref()).into_owned()).collect());
        self
    }

    fn render(&self, width: usize) -> Text {
        let widths = self.widths(width);
        let mut text = Text::new();
        let header = self.header.iter().map(|name| (*name).to_owned()).collect();
        for (style, row) in std::iter::once((BOLD, &header)).chain(self.rows.iter().map(|row| (Style::new(), row))) {
            let cells: Vec<Vec<String>> = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| wrap_with(cell, textwrap::Options::new((*width).max(1))))
                .collect();
            for number in 0..cells.iter().map(Vec::len).max().unwrap_or_default() {
                let mut line = String::new();
                for (lines, width) in cells.iter().zip(&widths) {
                    let part = lines.get(number).map_or("", String::as_str);
                    line.push_str(part);
                    line.push_str(&" ".repeat((width + GAP).saturating_sub(part.width())));
                }
                text.push(format_args!("{style}{}{style:#}\n", line.trim_end()));
            }
        }
        text
    }

    /// Returns the widths of the columns: as wide as the widest cell, or narrower if lines would be longer than `limit`. Words,
    /// such as names to copy, stay whole if possible.
    fn widths(&self, limit: usize) -> Vec<usize> {
        let widest = |column: usize, of: fn(&str) -> usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| of(cell));
            cells.max().unwrap_or_default().max(self.header.get(column).map_or(0, |name| name.width()))
        };
        let word = |cell: &str| cell.split(' ').map(UnicodeWidthStr::width).max().unwrap_or_default();
        let columns = 0..self.header.len();
        let mut widths: Vec<usize> = columns.clone().map(|column| widest(column, UnicodeWidthStr::width)).collect();
        let words: Vec<usize> = columns.map(|column| widest(column, word).max(NARROW)).collect();
        let narrowest: Vec<usize> = self.header.iter().map(|name| name.width().max(NARROW)).collect();
        let gaps = GAP * widths.len().saturating_sub(1);
        for least in [words, narrowest] {
            while widths.iter().sum::<usize>() + gaps > limit {
                let wider = widths.iter_mut().zip(&least).filter(|(width, least)| **width > **least);
                let Some((widest, _)) = wider.max_by_key(|(width, _)| **width) else { break };
                *widest -= 1;
            }
        }
        widths
    }
}

/// The number of spaces between two columns.
const GAP: usize = 3;
/// The smallest width of a column.
const NARROW: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn objects_are_read_back_as_they_were() {
        let strange = [
            "a\tb\n\tc",
            "a\n\nb\n",
            " a ",
            "\u{1b}[2J",
            "yes",
            "n",
            "0644",
            "1e3",
            "null",
            "~",
            "a: b #c",
            "---\na",
            "|\n a",
            "",
        ];
        let data: serde_json::Map<_, _> =
            strange.iter().enumerate().map(|(number, text)| (number.to_string(), (*text).into())).collect();
        let object = serde_json::json!({"kind": "ConfigMap", "data": data, "number": 1.5, "none": null, "empty": {}, "list": []});
        let written = vec![object.clone(), object];
        let yaml = objects(Format::Yaml, &written).unwrap();
        assert_eq!(serde_yaml::from_multiple::<serde_json::Value>(&yaml).unwrap(), written, "{yaml}");
        let json: serde_json::Value = serde_json::from_str(&objects(Format::Json, &written).unwrap()).unwrap();
        assert_eq!(json["items"], serde_json::Value::from(written));
    }

    #[test]
    fn a_narrow_terminal_breaks_the_widest_columns() {
        let mut table = Table::new(&["NODE", "POSSIBLE", "REASONS"]);
        table.row([
            "win-2022-a",
            "no",
            "the node carries the taint os=windows:NoSchedule, which the pod does not tolerate",
        ]);
        table.row(["日本", "yes", ""]);
        insta::assert_snapshot!(table.render(60).plain());
        insta::assert_snapshot!(table.render(usize::MAX).plain());
    }
}
