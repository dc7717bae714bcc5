//! YAML as kubectl's parser accepts it, rewritten for a parser that follows YAML 1.2 more closely.
//!
//! kubectl's parser is a port of libyaml. It accepts some things that YAML 1.2 and winpool's parser refuse:
//! - lines of a quoted string that are indented with tabs, or less than their parent,
//! - lines between brackets that are indented with tabs,
//! - a comment directly after a quoted string, a bracket, a comma or the sign of a block scalar,
//! - a byte order mark at the start of each document, not only of the first.
//!
//! The rewriting changes no line numbers and no values: a parser drops the indentation of these lines.

use std::io::{self, Read};

/// The number of bytes that are read at once.
const CHUNK: usize = 16 << 10;
/// The largest indentation that is written. Objects are nested at most 64 levels deep.
const INDENT: usize = 1 << 10;
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The part of the syntax to which the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A key or a value may begin.
    Start,
    /// Inside a plain word. `opens` is true if a value may begin after the next blank.
    Word {
        opens: bool,
    },
    /// After the end of a line in a plain word, which may go on.
    Between,
    /// Directly after a quoted string or a bracket.
    Closed,
    Comment,
    Quoted(u8),
    /// After a backslash in double quotes.
    Escaped,
    /// The line that begins a block scalar (`|` or `>`).
    BlockHeader {
        is_explicit: bool,
    },
    /// Inside a block scalar. Its lines begin in this column or later; `None` before the first of them.
    Block(Option<usize>),
}

/// Rewrites what it reads from `source`.
pub(super) struct Relaxed<R> {
    source: R,
    out: Vec<u8>,
    at: usize,
    place: Place,
    previous: u8,
    /// The number of bytes of the line before the next one.
    column: usize,
    /// The indentation of the line.
    indent: usize,
    /// The indentation of the line before.
    outer: usize,
    /// The indentation of what a plain word belongs to.
    parent: usize,
    /// True as long as the line has only blanks.
    is_blank: bool,
    /// The number of open brackets.
    brackets: usize,
    /// The column of the last opening quote.
    quote: usize,
    /// The number of bytes of a byte order mark that were held back.
    mark: usize,
}

impl<R: Read> Relaxed<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source,
            out: Vec::new(),
            at: 0,
            place: Place::Start,
            previous: b'\n',
            column: 0,
            indent: 0,
            outer: 0,
            parent: 0,
            is_blank: true,
            brackets: 0,
            quote: 0,
            mark: 0,
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.out.clear();
        self.at = 0;
        let mut chunk = [0; CHUNK];
        while self.out.is_empty() {
            let count = self.source.read(&mut chunk)?;
            let read = chunk.get(..count).unwrap_or_default();
            if read.is_empty() {
                self.out.extend_from_slice(MARK.get(..std::mem::take(&mut self.mark)).unwrap_or_default());
                return Ok(());
            }
            for byte in read {
                self.add(*byte);
            }
        }
        Ok(())
    }

    /// Adds a byte, unless it is a part of a byte order mark at the start of a line.
    fn add(&mut self, byte: u8) {
        let may_be_mark = self.column == 0 && matches!(self.place, Place::Start | Place::Between);
        if may_be_mark && MARK.get(self.mark) == Some(&byte) {
            self.mark = (self.mark + 1) % MARK.len();
            return;
        }
        for held in MARK.get(..std::mem::take(&mut self.mark)).unwrap_or_default() {
            self.write(*held);
        }
        self.write(byte);
    }

    fn write(&mut self, byte: u8) {
        if byte == b'\r' {
            return self.out.push(byte);
        }
        // In a block scalar a tab is text.
        let is_blank = byte == b' ' || byte == b'\t' && !matches!(self.place, Place::Block(_));
        let is_in_quotes = matches!(self.place, Place::Quoted(_) | Place::Escaped);
        let is_indentation = self.is_blank && self.brackets > 0 && !is_in_quotes;
        let byte = if is_indentation && byte == b'\t' { b' ' } else { byte };
        if is_in_quotes && self.is_blank && is_blank && self.place != Place::Escaped {
            // The indentation is written when the text of the line begins.
            self.column += 1;
            return;
        }
        if self.is_blank && !is_blank && byte != b'\n' {
            self.begin_line(byte, is_in_quotes);
        }
        let opens_comment = match self.place {
            Place::Closed | Place::BlockHeader { .. } => byte == b'#',
            Place::Start => byte == b'#' && matches!(self.previous, b',' | b'[' | b'{'),
            _ => false,
        };
        if opens_comment && self.previous != b' ' {
            self.out.push(b' ');
            self.previous = b' ';
        }
        self.place = self.next(byte);
        self.out.push(byte);
        self.previous = byte;
        (self.column, self.is_blank) =
            if byte == b'\n' { (0, true) } else { (self.column + 1, self.is_blank && is_blank) };
    }

    /// Called before the first byte of a line that is not blank.
    fn begin_line(&mut self, byte: u8, is_in_quotes: bool) {
        if is_in_quotes {
            // A line that begins with one of these may separate two documents.
            let may_separate = self.column == 0 && matches!(byte, b'-' | b'.');
            let width = if may_separate { 0 } else { self.quote.min(INDENT) };
            self.out.extend(std::iter::repeat_n(b' ', width));
            return;
        }
        if let Place::Block(begin) = self.place {
            let is_inside = self.column >= begin.unwrap_or(self.indent + 1);
            self.place = if is_inside { Place::Block(begin.or(Some(self.column))) } else { Place::Start };
        }
        if self.place == Place::Between {
            let goes_on = byte != b'#' && (self.column > self.parent || self.brackets > 0);
            self.place = if goes_on { Place::Word { opens: false } } else { Place::Start };
            if goes_on {
                return;
            }
        }
        if !matches!(self.place, Place::Block(_)) && byte != b'#' {
            (self.outer, self.indent) = (self.indent, self.column);
        }
    }

    /// Returns the place after this byte.
    fn next(&mut self, byte: u8) -> Place {
        match (self.place, byte) {
            (Place::Quoted(b'"'), b'\\') => Place::Escaped,
            (Place::Escaped, _) => Place::Quoted(b'"'),
            (Place::Quoted(quote), _) if byte == quote => Place::Closed,
            // Two single quotes are one in the text.
            (Place::Closed, b'\'') if self.previous == b'\'' => Place::Quoted(byte),
            (Place::Block(_) | Place::Quoted(_), _) | (Place::Start | Place::Closed, b' ' | b'\t') => self.place,
            (Place::BlockHeader { is_explicit }, b'\n') => Place::Block(is_explicit.then_some(self.indent + 1)),
            (Place::BlockHeader { is_explicit }, _) => {
                Place::BlockHeader { is_explicit: is_explicit || byte.is_ascii_digit() && self.previous != b' ' }
            }
            (Place::Word { opens: false }, b'\n') if self.previous != b':' => Place::Between,
            (Place::Between, b'\n' | b' ' | b'\t') => Place::Between,
            (_, b'\n') => Place::Start,
            (Place::Comment, _) | (Place::Closed, b'#') => Place::Comment,
            (_, b'#') if matches!(self.previous, b' ' | b'\t' | b'\n') => Place::Comment,
            (Place::Word { opens: true } | Place::Closed, b'"' | b'\'') if self.previous == b':' => self.quoted(byte),
            (Place::Word { opens }, b' ' | b'\t') if opens || self.previous == b':' => Place::Start,
            (Place::Start | Place::Closed | Place::Word { .. }, b',' | b'[' | b']' | b'{' | b'}') => self.bracket(byte),
            (Place::Start, b'"' | b'\'') => self.quoted(byte),
            (Place::Start, b'|' | b'>') if self.brackets == 0 => {
                if self.column == self.indent {
                    // Its key is on the line before.
                    self.indent = self.outer;
                }
                Place::BlockHeader { is_explicit: false }
            }
            (Place::Start, b'-' | b'?' | b':' | b'&' | b'!' | b'*') | (Place::Closed, b':') => {
                Place::Word { opens: true }
            }
            // The name of an anchor or a tag.
            (Place::Word { opens: true }, _) if !matches!(self.previous, b'-' | b'?' | b':') => self.place,
            (Place::Start, _) => {
                self.parent = if self.column == self.indent { self.outer } else { self.indent };
                Place::Word { opens: false }
            }
            _ => Place::Word { opens: false },
        }
    }

    fn quoted(&mut self, quote: u8) -> Place {
        self.quote = self.column;
        Place::Quoted(quote)
    }

    fn bracket(&mut self, byte: u8) -> Place {
        let is_open = self.brackets > 0;
        match byte {
            b'[' | b'{' if is_open || self.place == Place::Start => {
                self.brackets += 1;
                Place::Start
            }
            b',' if is_open => Place::Start,
            b']' | b'}' if is_open => {
                self.brackets -= 1;
                Place::Closed
            }
            _ => Place::Word { opens: false },
        }
    }
}

impl<R: Read> Read for Relaxed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.out.len() {
            self.fill()?;
        }
        let count = self.out.get(self.at..).unwrap_or_default().read(into)?;
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn becomes(input: &str, expected: &str) {
        let mut text = String::new();
        Relaxed::new(input.as_bytes()).read_to_string(&mut text).unwrap();
        assert_eq!(text, expected);
    }

    #[test]
    fn indentation_in_quotes_becomes_spaces() {
        becomes("a: \"b\n\t\tc\n\n d\" # e\nf: g\n", "a: \"b\n   c\n\n   d\" # e\nf: g\n");
        becomes("- 'it''s\n\tb'\n- [\"x\n\ty\", 'z\n\t']\n", "- 'it''s\n  b'\n- [\"x\n   y\", 'z\n     ']\n");
        becomes("a: {\"b\":\"c\n\td\"}\n", "a: {\"b\":\"c\n        d\"}\n");
        becomes("a: \"b \\\"\n\tc\\\\\"\nd: |\n \te\n", "a: \"b \\\"\n   c\\\\\"\nd: |\n \te\n");
        becomes("- [\n\tb,\n \t{c:\td,\n\t'e\n\tf'}\n\t]\n", "- [\n b,\n  {c:\td,\n 'e\n f'}\n ]\n");
        becomes("a: !x &b \"c\n\td\"\n", "a: !x &b \"c\n         d\"\n");
    }

    #[test]
    fn everything_else_stays() {
        for same in [
            "a: |\n  it's\n\n  \tb \"\n  \tc\nd: e\n",
            "- a: >-\n    don't\n     \tb\n  b: \"x\"\n",
            "a: |2\n    \"b\n  \tc\n",
            "a: it's\n# don't\nb: |\n \tc\n",
            "a: b#c 'd\ne: x - \"f\n\tg: h\n",
            "a: \"b\n--- c\n",
            "a: [b, c] # d\ne: http://x:80/'\nf: |\n  \tg\n",
            "\u{e4}: \u{feff}x\n\u{eeee}: y\n",
        ] {
            becomes(same, same);
        }
    }

    #[test]
    fn comments_are_set_apart_and_marks_are_dropped() {
        becomes("a: \"b\"# c\nd: [e]# f\ng: h# i\n", "a: \"b\" # c\nd: [e] # f\ng: h# i\n");
        becomes("a: |# b\n  # c\n", "a: | # b\n  # c\n");
        becomes("a: [# b\n c,# d\n {#e\n}]\nf: g,# h\n", "a: [ # b\n c, # d\n { #e\n}]\nf: g,# h\n");
        becomes("\u{feff}a: b\n---\n\u{feff}c: d\n", "a: b\n---\nc: d\n");
    }

    fn values(text: &str) -> Option<Vec<serde_json::Value>> {
        let mut bytes = text.as_bytes();
        serde_yaml::read_with_options(&mut bytes, super::super::documents::options()).collect::<Result<_, _>>().ok()
    }

    proptest! {
        /// Text that the parser reads without help keeps its meaning.
        #[test]
        fn rewriting_changes_no_value(
            text in "([a-c]: |- |  |\t|\"|'|[a-c#]|, |\\[|\\]|\\{|\\}|\\||>-|\n|\n  |\n    ){0,24}",
        ) {
            let text = format!("r:\n  {text}");
            let mut rewritten = String::new();
            Relaxed::new(text.as_bytes()).read_to_string(&mut rewritten).unwrap();
            if let Some(before) = values(&text) {
                prop_assert_eq!(values(&rewritten), Some(before), "{:?}", rewritten);
            }
        }
    }
}
