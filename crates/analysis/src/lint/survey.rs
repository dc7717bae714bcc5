//! The findings about everything in a view.

use std::collections::BTreeSet;

use crate::finding::{Consequence, Finding, Severity};
use crate::pod::Target;
use crate::view::{Position, View};
use crate::workload::namespace_of;

use super::gmsa::check_credential_spec;
use super::objects::{check_node, check_service, selects};
use super::rules::{HOLDS_TAINTS, check_landing, elsewhere, is_unplaced};
use super::{Facts, check};

/// Calls `add` with the findings about each object: workloads, the Services of those for Windows, names of group managed
/// service accounts, and with `has_nodes` the Windows nodes. Workloads may also be applied to clusters whose nodes are `open`.
/// Returns the number of workloads.
pub fn survey(
    view: &View,
    facts: &Facts,
    open: Option<&Facts>,
    has_nodes: bool,
    mut add: impl FnMut(Option<&Position>, Vec<Finding>),
) -> usize {
    let (mut number, mut for_windows) = (0, BTreeSet::new());
    // While a DaemonSet holds the taints of pools, these keep no pod off.
    let (held, mut holds, mut landing) = (facts.with_held_taints(), false, Vec::new());
    view.written.each(|source, workload| {
        number += 1;
        let (found, target) = (check(workload, facts), Target::of(facts.guess_of(workload)));
        holds |= target == Target::Windows && found.iter().any(|finding| finding.rule == HOLDS_TAINTS);
        let is_unplaced = is_unplaced(target, &workload.pod);
        let while_held = held.as_ref().filter(|_| is_unplaced).and_then(|held| check_landing(workload, held));
        let while_held = while_held.filter(|landing| !found.contains(landing));
        // The cluster in question is safe.
        let as_note = |landing| Finding { severity: Severity::Info, consequence: Consequence::Note, ..landing };
        let elsewhere = elsewhere(workload, &found, open.filter(|_| is_unplaced)).map(as_note);
        if while_held.is_some() || elsewhere.is_some() {
            landing.push((source.cloned(), while_held, elsewhere));
        }
        add(source, found);
        if matches!(target, Target::Windows | Target::WindowsImage) {
            for_windows.insert((workload.namespace().to_owned(), workload.labels()));
        }
    });
    for (source, while_held, elsewhere) in landing {
        let found = while_held.filter(|_| holds).or(elsewhere);
        add(source.as_ref(), Vec::from_iter(found));
    }
    for (source, found) in &view.refused {
        add(Some(source), vec![found.clone()]);
    }
    for (source, service) in view.services.known().into_iter().flatten() {
        let namespace = namespace_of(service);
        if for_windows.iter().any(|(of, labels)| of == namespace && selects(service, labels)) {
            add(source.as_ref(), check_service(service, facts));
        }
    }
    for node in view.nodes.known().into_iter().flatten().filter(|node| has_nodes && node.object.node.is_windows()) {
        add(node.source.as_ref(), check_node(&node.written, facts));
    }
    for (source, object) in view.credential_specs.known().into_iter().flatten() {
        add(source.as_ref(), check_credential_spec(object, facts));
    }
    number
}
