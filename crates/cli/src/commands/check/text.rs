//! Findings as text: each problem once, with the objects that have it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use anstyle::Style;
use winpool_analysis::explain::groups::By;
use winpool_analysis::finding::{Consequence, Finding, Severity};
use winpool_client::terminal;
use winpool_core::words::count;

use crate::print::located::{Located, groups};
use crate::print::notes::{notes_text, show_unlisted};
use crate::print::text::{BAD, BOLD, DIM, GOOD, Text, WARN};

use super::CheckReport;

/// Nodes that a line names.
const NAMED: usize = 3;

/// A problem: its severity, rule, message and consequence. The most severe comes first.
type Problem<'a> = (Reverse<Severity>, &'a str, &'a str, Consequence);
/// The findings about one problem, by remedy.
type ByRemedy<'a> = BTreeMap<&'a str, Vec<&'a Located<Finding>>>;

pub(super) fn text(report: &CheckReport, by: Option<&By>) -> Text {
    let mut text = Text::new();
    for group in groups(report.findings.iter().map(|located| &located.group)) {
        if let Some(by) = by {
            text.gap().styled("", GOOD, &by.title(group));
        }
        problems(&mut text, report.findings.iter().filter(|located| located.group.as_deref() == group));
    }
    summary(&mut text, report);
    show_unlisted(&mut text, &report.unlisted);
    if !report.skipped.is_empty() {
        let skipped: Vec<String> = report.skipped.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        text.paragraph(
            "",
            &format!("Not checked, because winpool finds no pod template in them: {}", skipped.join(", ")),
        );
    }
    notes_text(&mut text, &report.notes);
    text
}

/// Adds the problems of these findings.
fn problems<'a>(text: &mut Text, findings: impl Iterator<Item = &'a Located<Finding>>) {
    let mut problems: BTreeMap<Problem<'_>, ByRemedy<'_>> = BTreeMap::new();
    for located in findings {
        let Finding { rule, severity, consequence, message, remedy, .. } = &located.item;
        let problem = (Reverse(*severity), rule.as_str(), message.as_str(), *consequence);
        problems.entry(problem).or_default().entry(remedy.text.as_str()).or_default().push(located);
    }
    for ((Reverse(severity), rule, message, consequence), remedies) in &problems {
        let consequence = if *consequence == Consequence::Note { String::new() } else { format!(" ({consequence})") };
        let head = format!("{severity}[{rule}]{consequence}");
        text.gap().hanging("", "    ", style(*severity), &head, &format!(": {message}"));
        for (remedy, findings) in remedies {
            text.hanging("  ", "      ", BOLD, "help", &format!(": {remedy}"));
            let (nodes, others): (Vec<_>, Vec<_>) =
                findings.iter().copied().partition(|finding| finding.item.object.kind == "Node");
            for finding in others {
                place(text, finding);
            }
            match nodes.as_slice() {
                [first, _, ..] => {
                    let names: Vec<&str> = nodes.iter().map(|node| node.item.object.name.as_str()).collect();
                    let (nodes, names) = (count(names.len(), "node"), terminal::some(&names, NAMED));
                    text.hanging("    ", "        ", DIM, &nodes, &format!(": {names}, {}", first.item.field));
                }
                [node] => place(text, node),
                [] => {}
            }
        }
    }
}

/// Adds the place of a finding: file, line, object and field.
fn place(text: &mut Text, Located { item, file, line, .. }: &Located<Finding>) {
    let within = format!("{}, {}", item.object, item.field);
    match file {
        Some(file) => {
            let place = format!("{file}:{}", line.unwrap_or_default());
            text.hanging("    ", "        ", DIM, &place, &format!(": {within}"))
        }
        None => text.hanging("    ", "        ", DIM, "", &within),
    };
}

fn style(severity: Severity) -> Style {
    match severity {
        Severity::Error => BAD,
        Severity::Warning => WARN,
        Severity::Info => DIM,
    }
}

/// Adds the numbers of findings, shown and hidden.
fn summary(text: &mut Text, report: &CheckReport) {
    let mut shown: BTreeMap<Severity, usize> = BTreeMap::new();
    for finding in &report.findings {
        *shown.entry(finding.item.severity).or_default() += 1;
    }
    let numbers = match report.hidden.keys().next_back() {
        _ if !shown.is_empty() => listed(&shown),
        None => "nothing found".to_owned(),
        Some(Severity::Info) => "no errors and no warnings".to_owned(),
        Some(_) => "no errors".to_owned(),
    };
    let workloads = count(report.workloads, "workload");
    text.gap().styled("", report.worst.map_or(DIM, style), &format!("{workloads} checked: {numbers}"));
    if let Some(lowest) = report.hidden.keys().next() {
        let hidden = listed(&report.hidden);
        text.styled("", DIM, &format!("{hidden} hidden; --min-severity {lowest} shows them"));
    }
}

/// `2 errors, 4 warnings, 50 notes`.
fn listed(counts: &BTreeMap<Severity, usize>) -> String {
    let named = |(severity, number): (&Severity, &usize)| {
        count(*number, if *severity == Severity::Info { "note" } else { severity.as_str() })
    };
    counts.iter().rev().map(named).collect::<Vec<_>>().join(", ")
}
