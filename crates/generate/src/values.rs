//! The table of the chart's values, from `values.yaml`: a row has the path of a value, its default, and the comment above it.

use std::fmt::Write;

/// Returns the table. A parser of YAML would leave out the comments.
pub fn table(values: &str) -> String {
    let (mut table, mut comment) = ("| Value | Default | Description |\n|---|---|---|\n".to_owned(), Vec::new());
    let mut path: Vec<&str> = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        if let Some(words) = text.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        if let Some((key, default)) = text.split_once(':').filter(|(key, _)| key.chars().all(char::is_alphabetic)) {
            path.truncate((line.len() - text.len()) / 2);
            path.push(key);
            let default = default.trim();
            if !default.is_empty() || !comment.is_empty() {
                let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
                let (path, description) = (path.join("."), comment.join(" ").replace('|', r"\|"));
                // Writing to a String never fails.
                let _ = writeln!(table, "| `{path}` | {default} | {description} |");
            }
        }
        comment.clear();
    }
    table
}
