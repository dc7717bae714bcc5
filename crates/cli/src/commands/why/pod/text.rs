//! The answer about a pod or a workload as text.

use winpool_analysis::explain::pod::{ExplainedError, NodeResult, PodExplanation, UnexplainedError};
use winpool_analysis::finding::Finding;
use winpool_analysis::remedy::Rank;
use winpool_client::terminal;
use winpool_core::api::names;
use winpool_core::words::count;

use crate::print::notes::notes_text;
use crate::print::output;
use crate::print::text::{BAD, BOLD, DIM, GOOD, Text, WARN};

/// The number of nodes in a list.
const NAMED: usize = 3;

pub fn text(answer: &PodExplanation) -> Text {
    let mut text = Text::new();
    let is_pod = answer.object.kind == "Pod";
    let on = match &answer.node {
        Some(node) => format!(" is on node {node}"),
        None if is_pod => " is on no node".to_owned(),
        None => String::new(),
    };
    let system = if answer.system == names::WINDOWS { "Windows" } else { "Linux" };
    text.styled("", BOLD, &format!("{}{on}", answer.object));
    errors(&mut text, answer);
    let treats = if is_pod { "treats it as" } else { "treats its pods as" };
    let pods = if is_pod { format!("a {system} pod") } else { format!("{system} pods") };
    if system == "Linux" {
        text.line(&format!("  winpool {treats} {pods}."));
    } else if let Some(sign) = answer.doubt {
        let note = format!(
            "winpool {treats} {pods}, but is not certain: {sign}. For a Linux workload set nodeSelector {}: linux.",
            names::OS
        );
        text.paragraph("  ", &note);
    }
    if let Some(scheduler) = &answer.scheduler {
        let note = format!(
            "spec.schedulerName is {scheduler}: the answer is that of the default scheduler, and {scheduler} may decide otherwise."
        );
        text.paragraph("  ", &note);
    }
    if !answer.is_refused_by_class() {
        text.gap();
        if answer.nodes.is_empty() {
            text.styled("", WARN, &format!("There is no {system} node."));
        } else if !answer.refused.is_empty() {
            text.line("After you correct that:");
        }
        fits(&mut text, &answer.nodes, answer.waiting_pods > 0);
    }
    text.gap();
    match (&answer.remedy, &answer.scheduler_message) {
        (None, Some(reason)) => {
            text.hanging("", "  ", WARN, "The scheduler says:", &format!(" {reason}"));
            text.paragraph("", "winpool finds no reason that has to do with Windows.")
        }
        (None, None) if answer.waiting_pods > 0 => {
            let whom = if is_pod { "it".to_owned() } else { count(answer.waiting_pods, "pod") };
            let why = format!(
                "The scheduler finds no node for {whom}, for a reason that winpool does not consider. kubectl describe pod shows \
                 its message."
            );
            text.paragraph("", &why)
        }
        (None, None) if answer.is_failing() => {
            let whom = if is_pod { "It fails" } else { "Pods of it fail" };
            let nodes: Vec<&str> = answer.failing_on.iter().map(String::as_str).collect();
            let on = if nodes.is_empty() { String::new() } else { format!(" on {}", terminal::some(&nodes, NAMED)) };
            let why = match (answer.unexplained.is_empty(), answer.problems.is_empty()) {
                (true, _) => "for the reason above",
                (false, true) => "and winpool does not know why",
                (false, false) => "perhaps because of the errors above",
            };
            text.paragraph("", &format!("{whom}{on} now, {why}."))
        }
        (None, None) if !answer.problems.is_empty() => text.line("No other change is needed."),
        (None, None) => {
            let other = if answer.refused.is_empty() { "" } else { "other " };
            let is_told = answer.nodes.iter().all(|node| !node.possible || node.starts.is_some());
            let why = if is_told {
                "as far as winpool knows, the pod starts on every node to which it can be scheduled"
            } else {
                "the pod can be scheduled, and nothing shows that it does not start"
            };
            text.paragraph("", &format!("No {other}change is needed: {why}."))
        }
        (Some(remedy), _) => {
            text.styled("", WARN, "Suggested change:").paragraph("  ", &remedy.text);
            let is_one = remedy.rank == Rank::Certain || remedy.object.is_some();
            let command = remedy.command(&answer.object).filter(|_| is_one);
            match command {
                Some(command) => text.line(&format!("  {command}")),
                None => &mut text,
            }
        }
    };
    if let (Some(selected), Some(node)) = (&answer.ends_with_upgrade, &answer.node) {
        let ends = format!(
            "If Windows is upgraded in place on {node}, the kubelet ends the pod when it starts: the pod selects {selected}."
        );
        text.paragraph("", &ends);
    }
    notes_text(&mut text, &answer.notes);
    text.hanging("", "", DIM, "Not considered: cpu, memory, volumes, ports, affinity between pods, topology spread, and the resources of other pods.", "");
    text
}

/// Shows the errors that `winpool check` finds, and those that the pods report.
fn errors(text: &mut Text, answer: &PodExplanation) {
    let whom = if answer.object.kind != "Pod" && answer.is_refused_as_pod() { "its pods" } else { "it" };
    let refuses = format!("The API server refuses {whom}:");
    for (heading, findings) in [(&*refuses, &answer.refused), ("It does not work:", &answer.problems)] {
        if !findings.is_empty() {
            text.styled("  ", BAD, heading);
        }
        for Finding { field, message, remedy, .. } in findings {
            text.hanging("  - ", "    ", BAD, field, &format!(": {message}"));
            text.hanging("    ", "          ", BOLD, "help", &format!(": {}", remedy.text));
        }
    }
    let of =
        |container: &Option<String>| container.as_ref().map_or_else(String::new, |name| format!("container {name}: "));
    for ExplainedError { error, container, meaning, remedy } in &answer.errors {
        text.hanging("  ", "    ", BAD, &format!("{}{error}", of(container)), &format!(": {meaning}"));
        text.hanging("    ", "          ", BOLD, "help", &format!(": {remedy}"));
    }
    for UnexplainedError { container, reason, message } in &answer.unexplained {
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        text.hanging("  ", "    ", BAD, &format!("{}{reason}", of(container)), &message);
    }
}

/// Shows nodes with the same answer together.
fn fits(text: &mut Text, nodes: &[NodeResult], is_unschedulable: bool) {
    let named = nodes.iter().map(|node| {
        let NodeResult { name, possible, starts, reasons } = node;
        (format!("{possible} {starts:?} {reasons:?}"), name.as_str(), node)
    });
    let mut groups = output::alike(named);
    groups.sort_by_key(|(fit, _)| (!fit.possible, fit.starts == Some(false)));
    for (NodeResult { possible, starts, reasons, .. }, names) in groups {
        let shown = terminal::some(&names, NAMED);
        let (style, verdict) = match (possible, starts) {
            (true, Some(true)) if is_unschedulable => {
                (WARN, "nothing that winpool considers prevents it, and it would start")
            }
            (true, None) if is_unschedulable => {
                (WARN, "nothing that winpool considers prevents it; winpool cannot tell if it would start")
            }
            (true, Some(true)) => (GOOD, "can be scheduled, and starts"),
            (true, None) => (GOOD, "can be scheduled; winpool cannot tell if it starts"),
            (true, Some(false)) => (BAD, "can be scheduled, but does not start"),
            (false, Some(true)) => (WARN, "cannot be scheduled, but would start"),
            (false, None) => (WARN, "cannot be scheduled; winpool cannot tell if it would start"),
            (false, Some(false)) => (BAD, "cannot be scheduled, and would not start"),
        };
        let nodes = count(names.len(), "node");
        text.hanging("", "  ", style, &nodes, &format!(": {shown}")).paragraph("  ", verdict);
        for reason in reasons {
            text.hanging("  - ", "    ", DIM, "", reason);
        }
    }
}
