//! The text that `winpool-operator cleanup` shows before it asks.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use kube::ResourceExt;
use winpool_client::terminal::{escape, some as first};
use winpool_core::{api::names, plan::classes::runtime_class::ClassRetirement, words::count};

use crate::removal::{
    cleanup::{ManagedNodes, ManagedObjects},
    installation::HeldObject,
};

use super::list::SHOWN;

/// Shows the objects that were found.
pub fn show(cluster: &str, managed: &ManagedObjects, held: &[HeldObject], out: &mut impl Write) -> io::Result<()> {
    if managed.is_empty() && held.is_empty() {
        writeln!(out, "winpool has nothing to remove in {cluster}.")?;
    } else {
        writeln!(out, "Found in {cluster}:")?;
    }
    show_nodes(&managed.nodes, out)?;
    let (deleted, released): (Vec<_>, Vec<_>) =
        managed.classes.iter().partition(|(_, end)| matches!(end, ClassRetirement::Delete));
    if !deleted.is_empty() {
        let names = deleted.iter().map(|(class, _)| class.name_any());
        writeln!(out, "\n{} to delete, used by no pod:\n  {}", count(deleted.len(), "RuntimeClass"), some(names))?;
    }
    if !released.is_empty() {
        writeln!(out, "\n{} to release: winpool only removes its own labels:", count(released.len(), "RuntimeClass"))?;
    }
    for (class, end) in released {
        if let ClassRetirement::Release { why, .. } = end {
            writeln!(out, "  {}: {}", class.name_any(), escape(why))?;
        }
    }
    let (going, staying): (Vec<_>, Vec<_>) = managed.pools.iter().partition(|pool| pool.deletion_timestamp.is_some());
    for (pools, what) in [(staying, "to keep"), (going, "being deleted")] {
        if !pools.is_empty() {
            let names = pools.iter().map(|pool| pool.name.clone().unwrap_or_default());
            let (pools, finalizer) = (count(pools.len(), "WindowsPool"), names::CLEANUP);
            writeln!(out, "\n{pools} {what}; winpool removes the finalizer {finalizer}:\n  {}", some(names))?;
        }
    }
    let (going, staying): (Vec<_>, Vec<_>) = held.iter().partition(|held| held.is_deleted());
    for (held, what) in [(staying, "to keep"), (going, "being deleted")] {
        if !held.is_empty() {
            writeln!(out, "\nObjects of the installation {what}; winpool removes the finalizer {}:", names::CLEANUP)?;
        }
        for held in held {
            writeln!(out, "  {}", held.object())?;
        }
    }
    show_what_stays(managed, out)
}

fn show_nodes(nodes: &ManagedNodes, out: &mut impl Write) -> io::Result<()> {
    if nodes.plans.is_empty() {
        return Ok(());
    }
    let names = nodes.plans.iter().map(|(node, _)| node.name.to_string());
    writeln!(out, "\n{} with winpool's labels and annotation:\n  {}", count(nodes.plans.len(), "Node"), some(names))?;
    let mut taints: BTreeMap<String, usize> = BTreeMap::new();
    for taint in nodes.plans.iter().flat_map(|(_, plan)| plan.taints.iter().flat_map(|change| &change.removed)) {
        *taints.entry(taint.to_string()).or_default() += 1;
    }
    for (taint, nodes) in taints {
        writeln!(out, "  {nodes} with the taint {taint}, which winpool added")?;
    }
    Ok(())
}

fn show_what_stays(ManagedObjects { nodes, users, .. }: &ManagedObjects, out: &mut impl Write) -> io::Result<()> {
    if !nodes.ignored.is_empty() {
        let (count, names) = (count(nodes.ignored.len(), "Node"), some(nodes.ignored.iter().cloned()));
        writeln!(out, "\nNot changed: {count} with {}: \"true\":\n  {names}", names::IGNORE)?;
    }
    if !nodes.doubtful.is_empty() {
        writeln!(out, "\nNot changed: taints that only the annotation of their node claims for winpool:")?;
    }
    for (node, taint) in nodes.doubtful.iter().take(SHOWN) {
        let (key, effect) = (&taint.key, &taint.effect);
        writeln!(out, "  {taint}; if it is winpool's: kubectl taint nodes {node} {key}:{effect}-")?;
    }
    if let Some(more) = nodes.doubtful.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        writeln!(out, "  and {more} more")?;
    }
    let in_use: Vec<_> = users.in_use().collect();
    if !in_use.is_empty() {
        writeln!(
            out,
            "\nNot changed: labels of nodes that pods or RuntimeClasses select; run this again when these are gone:"
        )?;
    }
    for (label, user) in in_use.iter().take(SHOWN) {
        writeln!(out, "  {}: {}", escape(label), escape(user))?;
    }
    if let Some(more) = in_use.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        writeln!(out, "  and {more} more")?;
    }
    Ok(())
}

fn some(names: impl Iterator<Item = String>) -> String {
    first(&names.collect::<Vec<_>>(), SHOWN)
}
