//! Findings as SARIF 2.1.0 (OASIS "Static Analysis Results Interchange Format"), which code scanning reads.

use std::fmt::Write;

use serde::Serialize;
use winpool_core::lint::{Finding, Rule, Severity, rules};

use super::{Located, Report};

#[derive(Serialize)]
pub(super) struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Serialize)]
struct Run {
    tool: Tool,
    results: Vec<Outcome>,
}

#[derive(Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Serialize)]
struct Driver {
    name: &'static str,
    version: &'static str,
    rules: Vec<Descriptor>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    id: &'static str,
    short_description: Message,
    help: Message,
    default_configuration: Configuration,
}

#[derive(Serialize)]
struct Configuration {
    level: &'static str,
}

#[derive(Serialize)]
struct Message {
    text: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    rule_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_index: Option<usize>,
    level: &'static str,
    message: Message,
    locations: [Location; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(skip_serializing_if = "Option::is_none")]
    physical_location: Option<PhysicalLocation>,
    logical_locations: [LogicalLocation; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PhysicalLocation {
    artifact_location: ArtifactLocation,
    region: Region,
}

#[derive(Serialize)]
struct ArtifactLocation {
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LogicalLocation {
    fully_qualified_name: String,
    kind: &'static str,
}

pub(super) fn log(report: &Report) -> Log {
    let driver =
        Driver { name: "winpool", version: env!("CARGO_PKG_VERSION"), rules: rules().map(descriptor).collect() };
    Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [Run { tool: Tool { driver }, results: report.findings.iter().map(outcome).collect() }],
    }
}

fn descriptor(rule: &Rule) -> Descriptor {
    Descriptor {
        id: rule.id,
        short_description: Message { text: rule.reason.to_owned() },
        help: Message { text: rule.remedy.to_owned() },
        default_configuration: Configuration { level: level(rule.verdict.0) },
    }
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn outcome(Located { found: finding, file, line }: &Located<Finding>) -> Outcome {
    let physical_location = file.as_ref().map(|file| PhysicalLocation {
        artifact_location: ArtifactLocation { uri: uri(file) },
        region: Region { start_line: line.unwrap_or_default().max(1) },
    });
    let name = format!("{} {}", finding.object, finding.field);
    Outcome {
        rule_id: finding.rule.clone(),
        rule_index: rules().position(|rule| rule.id == finding.rule),
        level: level(finding.severity),
        message: Message { text: format!("{}: {}; {}", finding.field, finding.message, finding.remedy) },
        locations: [Location {
            physical_location,
            logical_locations: [LogicalLocation { fully_qualified_name: name, kind: "element" }],
        }],
    }
}

/// Returns the path as a URI reference, with other characters percent-encoded.
fn uri(path: &str) -> String {
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
            assert_eq!(uri(path), written);
        }
    }
}
