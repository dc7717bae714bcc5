//! The text that `winpool-operator cleanup` shows before it asks.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use kube::ResourceExt;
use winpool_client::terminal::{escape, some};
use winpool_core::{
    api::names::{self, CLEANUP},
    plan::classes::runtime_class::ClassRetirement,
    words::count,
};

use crate::uninstall::HeldObject;

use super::{
    cleaner::ManagedObjects,
    list::{SHOWN, list},
};

/// Shows the objects that were found.
pub fn show(cluster: &str, managed: &ManagedObjects, held: &[HeldObject], out: &mut impl Write) -> io::Result<()> {
    if managed.is_empty() && held.is_empty() {
        writeln!(out, "winpool has nothing to remove in {cluster}.")?;
    } else {
        writeln!(out, "Found in {cluster}:")?;
    }
    let ManagedObjects { nodes, classes, pools, ignored, doubtful, users, .. } = managed;
    let mut taints: BTreeMap<String, usize> = BTreeMap::new();
    for taint in nodes.iter().flat_map(|(_, plan)| plan.taints.iter().flat_map(|change| &change.removed)) {
        *taints.entry(taint.to_string()).or_default() += 1;
    }
    let taints =
        taints.into_iter().map(|(taint, nodes)| format!("{nodes} with the taint {taint}, which winpool added"));
    let names = nodes.iter().map(|(node, _)| node.name.to_string());
    let lines: Vec<_> = named(names).into_iter().chain(taints).collect();
    section(out, &format!("{} with winpool's labels and annotation", count(nodes.len(), "Node")), &lines)?;

    let (mut deleted, mut released) = (Vec::new(), Vec::new());
    for (class, end) in classes {
        match end {
            ClassRetirement::Delete => deleted.push(class.name_any()),
            ClassRetirement::Release { why, .. } => released.push(format!("{}: {}", class.name_any(), escape(why))),
        }
    }
    let heading = format!("{} to delete, used by no pod", count(deleted.len(), "RuntimeClass"));
    section(out, &heading, &named(deleted))?;
    let heading = format!("{} to release: winpool only removes its own labels", count(released.len(), "RuntimeClass"));
    section(out, &heading, &released)?;

    for (is_going, what) in [(false, "to keep"), (true, "being deleted")] {
        let going = pools.iter().filter(|pool| pool.deletion_timestamp.is_some() == is_going);
        let names: Vec<_> = going.map(|pool| pool.name.clone().unwrap_or_default()).collect();
        let pools = count(names.len(), "WindowsPool");
        section(out, &format!("{pools} {what}; winpool removes the finalizer {CLEANUP}"), &named(names))?;
    }
    for (is_going, what) in [(false, "to keep"), (true, "being deleted")] {
        let objects: Vec<_> =
            held.iter().filter(|held| held.is_deleted() == is_going).map(HeldObject::object).collect();
        let heading = format!("Objects of the installation {what}; winpool removes the finalizer {CLEANUP}");
        section(out, &heading, &objects)?;
    }

    let nodes = count(ignored.len(), "Node");
    section(out, &format!("Not changed: {nodes} with {}: \"true\"", names::IGNORE), &named(ignored.clone()))?;
    let doubtful = doubtful.iter().map(|(node, taint)| {
        let (key, effect) = (&taint.key, &taint.effect);
        format!("{taint}; if it is winpool's: kubectl taint nodes {node} {key}:{effect}-")
    });
    let heading = "Not changed: taints that only the annotation of their node claims for winpool";
    section(out, heading, &doubtful.collect::<Vec<_>>())?;
    let in_use = users.in_use().map(|(label, user)| format!("{}: {}", escape(label), escape(user)));
    let heading = "Not changed: labels of nodes that pods or RuntimeClasses select; run this again when these are gone";
    section(out, heading, &in_use.collect::<Vec<_>>())
}

/// One line with these names, if there are some.
fn named(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let names: Vec<_> = names.into_iter().collect();
    if names.is_empty() { names } else { vec![some(&names, SHOWN)] }
}

/// Shows these lines under a heading, if there are some.
fn section(out: &mut impl Write, heading: &str, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() { Ok(()) } else { writeln!(out, "\n{heading}:\n{}", list(lines)) }
}
