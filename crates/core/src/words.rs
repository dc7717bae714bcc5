//! Text for people: text from others, made safe to show, and YAML for them to write.

use std::fmt::Display;

use serde_json::{Value, json};

/// True if a terminal may interpret the character, or reorder the text around it.
pub fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

/// The text on one line, with characters escaped that a terminal would interpret (`\u{1b}`), and cut after `limit`
/// bytes. For status and Events, which users print.
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

/// A number with its noun: `1 node`, `2 nodes`, `2 RuntimeClasses`.
pub fn count(number: impl TryInto<i64>, noun: &str) -> String {
    let number = number.try_into().unwrap_or(i64::MAX);
    match noun {
        _ if number == 1 => format!("1 {noun}"),
        noun if noun.ends_with('s') => format!("{number} {noun}es"),
        noun => format!("{number} {noun}s"),
    }
}

/// The items, separated by commas: `2019, 2022`.
pub fn joined(items: impl IntoIterator<Item: Display>) -> String {
    let texts: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    texts.join(", ")
}

/// YAML on one line, to be pasted into a manifest: `{key: os, value: windows}`.
pub fn yaml(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            format!("{{{}}}", joined(members.iter().map(|(key, value)| format!("{}: {}", scalar(key), yaml(value)))))
        }
        Value::Array(items) => format!("[{}]", joined(items.iter().map(yaml))),
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// Quotes the text if YAML could read it as something else.
fn scalar(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '/' | '_');
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic()) && !NOT_TEXT.contains(&&*text.to_lowercase());
    let is_build = text.split('.').count() > 2 && text.starts_with(|c: char| c.is_ascii_digit());
    if text.chars().all(harmless) && (is_word || is_build) { text.to_owned() } else { json!(text).to_string() }
}

/// Words that YAML 1.1 does not read as text.
const NOT_TEXT: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_on_one_line_is_read_back_as_it_was() {
        let value = json!({
            "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"}},
            "odd": ["", "1", "1.5", "0x1F", "True", "no", "a: b", "a #b", "-", "x\"y", "2001-01-01", 3, true, null, {}, []],
        });
        let text = yaml(&value);
        assert_eq!(serde_yaml::from_str::<Value>(&text).unwrap(), value, "{text}");
        let taint = json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
        assert_eq!(yaml(&taint), "{effect: NoSchedule, key: os, operator: Equal, value: windows}");
    }

    #[test]
    fn foreign_text_becomes_one_short_line() {
        assert_eq!(plain("plain ü 日本", 100), "plain ü 日本");
        assert_eq!(plain("a\r\nb\u{1b}[2J\u{9b}\u{202e}", 100), r"a b\u{1b}[2J\u{9b}\u{202e}");
        assert_eq!(plain("abcd", 4), "abcd");
        assert_eq!(plain("abcde", 4), "abcd…");
        assert_eq!(plain("aü", 2), "a…");
        assert_eq!(plain(&"\u{0}".repeat(100_000), 10), r"\u{0}\u{0}…");
    }
}
