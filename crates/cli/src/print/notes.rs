//! What an answer lacks, as text.

use std::collections::BTreeSet;

use super::text::{Text, WARN};

/// Adds a line that names the resources that an answer lacks.
pub fn show_unlisted(text: &mut Text, unlisted: &BTreeSet<String>) {
    if !unlisted.is_empty() {
        let names: Vec<&str> = unlisted.iter().map(String::as_str).collect();
        let why = format!(", because you may not list these: {}", names.join(", "));
        text.hanging("", "", WARN, "The answer is incomplete", &why);
    }
}

/// Adds a line for each part that an answer lacks.
pub fn notes_text(text: &mut Text, notes: &[String]) {
    for note in notes {
        text.wrapped("", WARN, &format!("Note: {note}"));
    }
}
