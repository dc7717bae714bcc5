//! Output on a terminal: text from other users made harmless, and the outcome of a command.

use std::borrow::Cow;
use std::process::ExitCode;

use winpool_core::words::is_command;

/// The outcome of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Nothing is left to do, and nothing was found.
    Done,
    /// Something is left to do, or there are findings.
    Pending,
    /// The command answered, but could not read a part of the input. Standard error has the reasons.
    Unread,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Pending => Self::from(2),
            Outcome::Unread => Self::FAILURE,
        }
    }
}

/// Formats an error as the programs print it.
pub fn error(message: &str) -> String {
    format!("winpool: {}", escape_lines(message))
}

/// Returns the first of these names, and the number of the others.
pub fn some<N: AsRef<str>>(names: &[N], shown: usize) -> String {
    let first = names.iter().take(shown).map(N::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(shown) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Escapes the characters that a terminal would interpret (`\u{1b}`), and line ends.
pub fn escape(text: &str) -> Cow<'_, str> {
    replaced(text, is_command, |c| c.escape_unicode().to_string())
}

/// Does the same for messages, and keeps line ends.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    replaced(text, |c| is_command(c) && c != '\n', |c| c.escape_unicode().to_string())
}

pub fn replaced(text: &str, harmful: impl Fn(char) -> bool, by: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&harmful) {
        return Cow::Borrowed(text);
    }
    let safe: String = text.chars().map(|c| if harmful(c) { by(c) } else { c.to_string() }).collect();
    safe.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape("plain ü 日本"), "plain ü 日本");
        assert_eq!(escape("a\u{1b}[2Jb\r\n\u{9b}\u{202e}"), r"a\u{1b}[2Jb\u{d}\u{a}\u{9b}\u{202e}");
        assert_eq!(escape_lines("a\n\tb"), "a\n\\u{9}b");
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = ["a", "b", "c"];
        assert_eq!(some(&names, 3), "a, b, c");
        assert_eq!(some(&names, 1), "a and 2 more");
    }
}
