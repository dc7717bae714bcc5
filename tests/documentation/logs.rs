//! The reference has every line above DEBUG that winpool logs.

use std::fs;
use std::path::Path;

use super::page::ROOT;

const REFERENCE: &str = "docs/reference/logs.md";

#[test]
fn every_log_line_is_in_the_reference() {
    let reference = fs::read_to_string(Path::new(ROOT).join(REFERENCE)).unwrap();
    let mut lines = 0;
    for (file, source) in sources(&Path::new(ROOT).join("src")) {
        // What tests log is not winpool's.
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for message in messages(source) {
            assert!(reference.contains(&format!("`{message}")), "{file}: {message:?} is missing in {REFERENCE}");
            lines += 1;
        }
    }
    assert!(lines > 20, "{lines} lines were found");
}

fn sources(directory: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(extension) if extension == "rs" => {
                vec![(path.display().to_string(), fs::read_to_string(&path).unwrap())]
            }
            _ => Vec::new(),
        })
        .collect()
}

/// The literal text of each message, up to the first placeholder.
fn messages(source: &str) -> Vec<&str> {
    let calls = ["tracing::info!(", "tracing::warn!(", "tracing::error!("];
    let mut found = Vec::new();
    for call in calls {
        for arguments in source.split(call).skip(1) {
            // Values are named or called, so the message is the only literal by itself.
            let mut parts = arguments.split('"');
            let mut before = parts.next().unwrap_or_default();
            for (number, part) in parts.enumerate() {
                if number % 2 == 0 && (before.trim_end().ends_with(',') || before.trim().is_empty()) {
                    found.push(part.split('{').next().unwrap_or_default().trim_end());
                    break;
                }
                before = part;
            }
        }
    }
    found
}
