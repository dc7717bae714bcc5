//! The page of known errors, `docs/reference/errors.md`.

use std::fmt::Write;

use winpool_core::pod::KnownError;

use super::api::prose;
use crate::pod::error::all_errors;

/// Returns the page.
pub fn reference() -> String {
    let mut text = "<!-- Written by `make generate` from the tables of known errors. -->\n# Errors of Windows pods\n\n\
        If the status or the Events of a pod have one of these errors, `winpool why pod/NAME` shows what it means.\n\
        If two texts are joined by \"with\", the message contains both. The operator counts those with a cause: see\n\
        [Monitoring](../guides/monitoring.md#pods-that-fail-because-of-windows).\n\n\
        | Error | Meaning | Remedy | Cause | Seen in | Source |\n|---|---|---|---|---|---|\n"
        .to_owned();
    let errors: Vec<&KnownError> = all_errors().collect();
    // Errors with the same meaning and remedy share a row.
    for group in errors.chunk_by(|a, b| (a.meaning, a.remedy) == (b.meaning, b.remedy)) {
        let Some(KnownError { counted, seen_in, .. }) = group.first() else { continue };
        let mut sources: Vec<&str> = group.iter().map(|error| error.source).collect();
        sources.dedup();
        let cause = counted.map_or_else(|| "-".to_owned(), |cause| format!("`{}`", cause.as_str()));
        // Writing to a String never fails.
        let _ = writeln!(text, "{} {cause} | {seen_in} | {} |", row(group), sources.join(", "));
    }
    text
}

fn row(group: &[&KnownError]) -> String {
    let errors: Vec<String> = group.iter().map(|error| texts(error)).collect();
    let texts = group.first().map(|error| (sentence(error.meaning), sentence(error.remedy)));
    let (meaning, remedy) = texts.unwrap_or_default();
    format!("| {} | {meaning} | {remedy} |", errors.join("; "))
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    prose(&format!("{}.", first.into_iter().chain(letters).collect::<String>()))
}

/// The texts that identify it, as Markdown.
fn texts(error: &KnownError) -> String {
    let beside: Vec<String> = error.beside.iter().map(|words| format!("`{words}`")).collect();
    let with = if beside.is_empty() { "" } else { " with " };
    format!("`{}`{with}{}", error.error, beside.join(" or "))
}
