//! Explains a node.

use winpool_analysis::explain::forecast::forecast;
use winpool_analysis::explain::node::{NodeExplanation, UNOWNED, node_explanation, pods_that_end};
use winpool_analysis::explain::status::unread;
use winpool_core::plan::pools::pool::policy_of;

use crate::Error;
use crate::commands::options::Common;
use crate::print::forecast::changes_text;
use crate::print::notes::notes_text;
use crate::print::progress;
use crate::print::text::{BOLD, GOOD, Table, Text, WARN};
use crate::read::assume::Assume;
use crate::read::forecast::snapshot;
use crate::read::gaps::Gaps;
use crate::read::view::{Seen, WITHOUT_NODES, WITHOUT_POOLS};

const WITHOUT_CLASSES: &str =
    "The manifests have no RuntimeClass that winpool can read, so it does not know which ones select the node.";

pub(super) async fn why(name: &str, common: &Common, assume: &Assume) -> Result<(NodeExplanation, Gaps), Error> {
    let Seen { mut view, mut gaps } = common.origin.decisions().await?;
    let assumed = assume.note(&mut view)?;
    let without_pools = view.pools.known().is_none().then(|| WITHOUT_POOLS.to_owned());
    gaps.in_cluster |= without_pools.is_some();
    // A cluster without winpool has no RuntimeClass, and its manifests cannot show that.
    let without_classes = view.classes.known().is_none().then(|| WITHOUT_CLASSES.to_owned());
    let listed = view.nodes.known().ok_or_else(|| Error::Lacking(WITHOUT_NODES.to_owned()))?;
    let seen = listed.iter().find(|node| *node.object.name == *name);
    let seen = seen.ok_or_else(|| Error::NotFound { kind: "Node", name: name.to_owned() })?;
    let ends = view.pods.known().and_then(|pods| pods_that_end(seen, pods));
    let (node, classes) = (seen.object.node.clone(), view.classes.known().cloned().unwrap_or_default());
    let mut snapshot = snapshot(view);
    snapshot.nodes.insert(name.to_owned(), node.clone());
    let notes: Vec<String> = assumed
        .into_iter()
        .chain(unread(&snapshot.pods, &snapshot.workloads, &snapshot.policies))
        .chain(without_pools)
        .chain(without_classes)
        .collect();
    let policy = policy_of(&snapshot.pools);
    let outcome = progress::during("computing what the operator would do", || forecast(&snapshot))?;
    let mut explanation = node_explanation(name, &node, &policy, &classes, &outcome);
    explanation.reasons.extend(ends);
    Ok((NodeExplanation { notes, ..explanation }, gaps))
}

pub(super) fn text(explanation: &NodeExplanation) -> Text {
    let mut text = Text::new();
    let is =
        if explanation.state == UNOWNED { "belongs to no WindowsPool" } else { &format!("is {}", explanation.state) };
    text.styled("", BOLD, &format!("Node {} {is}", explanation.node));
    if let Some(build) = &explanation.build {
        let product = explanation.product.as_deref().unwrap_or("a build that this release has no name for");
        let support =
            explanation.end_of_support.as_ref().map_or_else(String::new, |day| format!("; supported until {day}"));
        text.paragraph("  ", &format!("{build}, {product}{support}"));
    }
    for reason in &explanation.reasons {
        text.paragraph("  ", reason);
    }
    if !explanation.taints.is_empty() {
        let mut table = Table::new(&["TAINT", "FROM"]);
        for taint in &explanation.taints {
            table.row([&taint.taint, &taint.origin]);
        }
        text.gap().table(&table);
    }
    let classes =
        if explanation.runtime_classes.is_empty() { "none".to_owned() } else { explanation.runtime_classes.join(", ") };
    text.gap().paragraph("", &format!("RuntimeClasses that select it: {classes}"));
    text.gap();
    if explanation.changes.is_empty() {
        text.styled("", GOOD, "The operator would change nothing.");
    } else {
        text.styled("", WARN, "The operator would change:");
    }
    changes_text(&mut text, &explanation.changes);
    notes_text(&mut text, &explanation.notes);
    text
}
