//! The parts of a forecast as text.

use serde_json::Value;
use winpool_analysis::explain::forecast::Change;
use winpool_analysis::explain::pod_count::PodCount;
use winpool_core::api::{Problem, Taint};
use winpool_core::pod::tolerations;
use winpool_core::words::{count, yaml};

use crate::print::text::{BAD, DIM, GOOD, Text, WARN};

/// Lists workloads, each with the number of its pods if it has any.
pub fn pods_text<'a>(text: &mut Text, workloads: impl IntoIterator<Item = &'a PodCount>) {
    for PodCount { object, pods } in workloads {
        text.line(&match pods {
            0 => format!("    {object}"),
            _ => format!("    {object} ({})", count(*pods, "pod")),
        });
    }
}

/// Lists `DaemonSets`, each with the number of nodes on which it would have no pod.
pub fn daemon_sets_text<'a>(text: &mut Text, sets: impl IntoIterator<Item = &'a PodCount>) {
    for PodCount { object, pods } in sets {
        text.line(&format!("    {object} ({})", count(*pods, "node")));
    }
}

/// Says what to add to `DaemonSets` that do not tolerate these taints, as lines to paste.
pub fn tolerations_text(text: &mut Text, taints: &[String]) {
    let taints: Vec<Taint> = taints.iter().filter_map(|taint| taint.parse().ok()).collect();
    text.line("  Add to their pod templates:").line("    tolerations:");
    for taint in &taints {
        text.line(&format!("    - {}", tolerations::written(&tolerations::toleration(taint))));
    }
}

/// Adds a problem of a pool.
pub fn problem_text(text: &mut Text, Problem { reason, object, message }: &Problem) {
    text.styled("  ", WARN, &format!("{reason} {object}:"));
    parts_text(text, parts(message));
}

/// The sentences of a message, and what a semicolon parts.
pub fn parts(message: &str) -> impl Iterator<Item = &str> {
    message.split(". ").flat_map(|sentence| sentence.split("; "))
}

/// Adds parts of a message. YAML and commands get lines of their own, to paste.
pub fn parts_text<'a>(text: &mut Text, parts: impl Iterator<Item = &'a str>) {
    for part in parts {
        match part.split_once(": ").filter(|(_, rest)| rest.contains('{') || rest.starts_with("kubectl ")) {
            Some((words, to_paste)) => text.paragraph("    ", &format!("{words}:")).line(&format!("      {to_paste}")),
            None => text.paragraph("    ", part),
        };
    }
}

/// Prints the changes of a node, each with its reason.
pub fn changes_text(text: &mut Text, changes: &[Change]) {
    for change in changes {
        change_text(text, change);
        text.wrapped("          ", DIM, &change.reason);
    }
}

pub fn change_text(text: &mut Text, Change { field, from, to, .. }: &Change) {
    match (from, to) {
        (Value::Null, to) => text.wrapped("      ", GOOD, &format!("+ {field}: {}", shown(to))),
        (from, Value::Null) => text.wrapped("      ", BAD, &format!("- {field}: {}", shown(from))),
        (from, to) => text.wrapped("      ", WARN, &format!("~ {field}: {} -> {}", shown(from), shown(to))),
    };
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| yaml(value), str::to_owned)
}
