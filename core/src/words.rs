//! What others wrote, made fit to be shown.

/// Whether a terminal may obey the character, or show the text around it in another order.
#[must_use]
pub fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// The text on one line, with what a terminal would obey written out: `\u{1b}`, and cut where it is longer than `limit`
/// bytes. For status and Events, which everybody prints.
#[must_use]
pub fn plain(text: &str, limit: usize) -> String {
    let mut plain = String::new();
    for c in text.chars().filter(|c| *c != '\r') {
        let end = plain.len();
        match c {
            '\n' => plain.push(' '),
            c if is_command(c) => plain.extend(c.escape_unicode()),
            c => plain.push(c),
        }
        if plain.len() > limit {
            plain.truncate(end);
            plain.push('…');
            break;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_becomes_one_short_line() {
        assert_eq!(plain("plain ü 日本", 100), "plain ü 日本");
        assert_eq!(plain("a\r\nb\u{1b}[2J\u{9b}\u{202e}", 100), r"a b\u{1b}[2J\u{9b}\u{202e}");
        assert_eq!(plain("abcd", 4), "abcd");
        assert_eq!(plain("abcde", 4), "abcd…");
        assert_eq!(plain("aü", 2), "a…");
        assert_eq!(plain(&"\u{0}".repeat(100_000), 10), r"\u{0}\u{0}…");
    }
}
