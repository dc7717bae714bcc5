//! Findings as SARIF 2.1.0 (OASIS "Static Analysis Results Interchange Format"), which code scanning reads.

mod fixes;

use std::fmt::Write;

use serde_json::{Value, json};
use winpool_analysis::finding::{Finding, Severity};
use winpool_analysis::lint::{Rule, rules};

use crate::print::located::Located;

use super::report::CheckReport;

use fixes::Fixes;

/// Returns the findings. Code scanning does not close its alerts because of a check that is not complete.
pub(super) fn log(report: &CheckReport, is_complete: bool) -> Value {
    let rules: Vec<Value> = rules().map(descriptor).collect();
    let driver = json!({"name": "winpool", "version": env!("CARGO_PKG_VERSION"), "rules": rules});
    let mut fixes = Fixes::default();
    let results: Vec<Value> = report.findings.iter().map(|finding| result(finding, fixes.of(finding))).collect();
    let unlisted = report.unlisted.iter().map(|resource| format!("You may not list {resource}."));
    let lacks: Vec<Value> = unlisted.map(|text| json!({"level": "error", "message": {"text": text}})).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": driver},
            "invocations": [{"executionSuccessful": is_complete, "toolExecutionNotifications": lacks}],
            "results": results,
        }],
    })
}

fn descriptor(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "shortDescription": {"text": rule.reason},
        "help": {"text": rule.remedy},
        "defaultConfiguration": {"level": level(rule.verdict.0)},
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn result(Located { item, file, line, .. }: &Located<Finding>, fix: Option<Value>) -> Value {
    let Finding { object, field, message, remedy, .. } = item;
    let name = format!("{object} {field}");
    let mut location = json!({"logicalLocations": [{"fullyQualifiedName": name, "kind": "element"}]});
    if let Some(file) = file {
        let region = json!({"startLine": line.unwrap_or_default().max(1)});
        location["physicalLocation"] = json!({"artifactLocation": {"uri": uri(file)}, "region": region});
    }
    let mut result = json!({
        "ruleId": item.rule,
        "ruleIndex": rules().position(|rule| rule.id == item.rule),
        "level": level(item.severity),
        "message": {"text": format!("{field}: {message}; {}", remedy.text)},
        "locations": [location],
    });
    if let Some(fix) = fix {
        result["fixes"] = json!([fix]);
    }
    result
}

/// Returns the path as a URI reference.
fn uri(path: &str) -> String {
    if cfg!(windows) { uri_of_windows(path) } else { encoded(path) }
}

/// Does so for a path of Windows. The drive of an absolute path would be read as the scheme of a URI.
fn uri_of_windows(path: &str) -> String {
    let path = path.replace('\\', "/");
    match path.split_once(':') {
        Some((drive, rest)) if drive.len() == 1 => format!("file:///{drive}:{}", encoded(rest)),
        _ if path.starts_with("//") => format!("file:{}", encoded(&path)),
        _ => encoded(&path),
    }
}

/// Percent-encodes all characters that have a meaning in a URI, except slashes.
fn encoded(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    path.bytes().fold(String::new(), |mut uri, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(uri, "%{byte:02X}");
        }
        uri
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris() {
        for (path, written) in [
            ("a/b.yaml", "a/b.yaml"),
            ("./a.yaml", "a.yaml"),
            ("a b#c.yaml", "a%20b%23c.yaml"),
            ("ü.yaml", "%C3%BC.yaml"),
            ("/x/y.json", "/x/y.json"),
        ] {
            assert_eq!(encoded(path), written);
        }
    }

    #[test]
    fn paths_of_windows_become_uris() {
        for (path, written) in [
            (r"a\b.yaml", "a/b.yaml"),
            (r".\a.yaml", "a.yaml"),
            (r"C:\x y\z.yaml", "file:///C:/x%20y/z.yaml"),
            (r"\\server\share\a.yaml", "file://server/share/a.yaml"),
        ] {
            assert_eq!(uri_of_windows(path), written);
        }
    }
}
