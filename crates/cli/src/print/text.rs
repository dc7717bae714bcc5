//! Text and tables for people.
//!
//! Names and values come from other users. Characters that a terminal would interpret are escaped.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::io;

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;
use winpool_client::terminal::escape;

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
        let whole = format!("{head}{text}");
        // Only the first line can contain the head: a head is one word, or too long for any line.
        let mut lines = wrap(&whole, first, rest, width()).into_iter();
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

    /// Returns the text with its styles.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text without styles.
    #[cfg(test)]
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
