//! The differences between a cluster before and after, with their reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::{Value, json};
use winpool_core::api::{Taint, names};
use winpool_core::node::{Applied, NodeFields};
use winpool_core::plan::classes::is_declared;
use winpool_core::plan::classes::runtime_class::{is_made_by_winpool, owner, selected_build};
use winpool_core::plan::pools::pool::{Hosts, Policy, Pool, WantedTaints};
use winpool_core::plan::reconcile::Note;
use winpool_core::windows::builds;
use winpool_simulation::Cluster;

use super::result::{Change, ClassForecast, NodeForecast};

const ANNOTATION: &str = "metadata.annotations[winpool.dev/applied]";
const TAINTS: &str = "spec.taints";

/// Returns the nodes that differ.
pub(super) fn nodes(before: &BTreeMap<String, NodeFields>, after: &Cluster) -> Vec<NodeForecast> {
    let policy = after.operator.published.clone().unwrap_or_default();
    let differing = before.iter().filter_map(|(name, before)| Some((name, before, after.nodes.get(name)?)));
    let differing = differing.filter_map(|(name, before, after)| {
        let owner = policy.owner(&after.labels).map(|entry| &entry.pool);
        let claimed = || Some(before.applied.as_deref().and_then(Applied::parse)?.pool);
        let former = before.labels.get(names::POOL).map(str::to_owned).or_else(claimed).unwrap_or_default();
        let pool = owner.map_or_else(|| former.clone(), |owner| owner.spec.name.clone());
        let difference = Difference { before, after, owner, former, policy: &policy };
        let changes = difference.changes();
        (!changes.is_empty()).then(|| NodeForecast { name: name.clone(), pool, changes })
    });
    differing.collect()
}

/// A node that changed.
struct Difference<'a> {
    before: &'a NodeFields,
    after: &'a NodeFields,
    /// The pool that owns the node at the end.
    owner: Option<&'a Arc<Pool>>,
    /// The pool whose labels, annotations and taints the node had.
    former: String,
    policy: &'a Policy,
}

impl Difference<'_> {
    fn changes(&self) -> Vec<Change> {
        let (before, after) = (self.before, self.after);
        let mut changes = Vec::new();
        let mut add = |field: &str, from: Value, to: Value, reason: String| {
            changes.push(Change { field: field.to_owned(), from, to, reason });
        };
        let own = |node: &'_ NodeFields| -> BTreeSet<String> {
            let capability_labels =
                node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX).map(|(key, _)| key.to_owned());
            [names::WINDOWS_BUILD, names::POOL].map(str::to_owned).into_iter().chain(capability_labels).collect()
        };
        for key in own(before).union(&own(after)) {
            let (from, to) = (before.labels.get(key), after.labels.get(key));
            if from != to {
                add(&format!("metadata.labels[{key}]"), json!(from), json!(to), self.why_label(key, to.is_some()));
            }
        }
        let (old, new) = (before.taints.taints(), after.taints.taints());
        let text = |taint: Option<&Taint>| json!(taint.map(ToString::to_string));
        for taint in new.iter().filter(|taint| !old.contains(taint)) {
            let replaced = old.iter().find(|old| old.same_identity(taint));
            add(
                TAINTS,
                text(replaced),
                text(Some(taint)),
                self.owner.map(|owner| why_added(owner)).unwrap_or_default(),
            );
        }
        for taint in old.iter().filter(|taint| !new.iter().any(|new| new.same_identity(taint))) {
            add(TAINTS, text(Some(taint)), Value::Null, self.why_removed(taint));
        }
        if before.applied != after.applied {
            add(ANNOTATION, json!(before.applied.as_deref()), json!(after.applied.as_deref()), self.why_marked());
        }
        changes
    }

    fn why_label(&self, key: &str, is_set: bool) -> String {
        if key == names::POOL {
            return self.why_marked();
        }
        if key == names::WINDOWS_BUILD {
            return match (is_set, self.after.kernel_version.as_deref()) {
                (true, Some(version)) => format!("the node reports {version} in status.nodeInfo.kernelVersion"),
                (true, None) => "the build of the node".to_owned(),
                (false, _) => "the node came back with another operating system".to_owned(),
            };
        }
        let image = key.strip_prefix(names::CAPABILITY_LABEL_PREFIX).unwrap_or_default();
        let runs = if is_set { "runs" } else { "does not run" };
        format!("the node {runs} images of {image} by process isolation")
    }

    fn why_removed(&self, taint: &Taint) -> String {
        match self.owner {
            Some(owner) if owner.spec.retired_taints.contains(taint) => {
                format!("spec.retiredTaints of WindowsPool {}", owner.spec.name)
            }
            Some(owner) => format!("winpool added it, and WindowsPool {} does not want it", owner.spec.name),
            None => self.why_left(),
        }
    }

    fn why_marked(&self) -> String {
        self.owner.map_or_else(|| self.why_left(), |_| "records what winpool added to the node".to_owned())
    }

    fn why_left(&self) -> String {
        let what = if self.policy.exists(&self.former) { "does not select the node" } else { "is being deleted" };
        format!("WindowsPool {} {what}", self.former)
    }
}

fn why_added(owner: &Pool) -> String {
    let name = &owner.spec.name;
    match owner.spec.wants {
        Some(WantedTaints::Exactly(_)) => format!("spec.taints of WindowsPool {name}"),
        _ => format!("no Windows taint keeps other pods off the node; default of WindowsPool {name}"),
    }
}

/// Returns the RuntimeClasses that differ.
pub(super) fn classes(before: &BTreeMap<String, Arc<RuntimeClass>>, after: &mut Cluster) -> Vec<ClassForecast> {
    let notes = after.operator.memory.take_notes();
    let policy = after.operator.published.clone().unwrap_or_default();
    let names: BTreeSet<&String> = before.keys().chain(after.classes.keys()).collect();
    let differing = names.into_iter().filter_map(|name| {
        let (old, new) = (before.get(name).map(AsRef::as_ref), after.classes.get(name).map(AsRef::as_ref));
        let (old_owner, new_owner) = (old.and_then(owner), new.and_then(owner));
        let pool = new_owner.or(old_owner)?;
        let action = match (old, new) {
            (None, _) => "Create",
            (_, None) => "Delete",
            _ if old_owner.is_some() && new_owner.is_none() => "Release",
            _ if old_owner.is_none() && new_owner.is_some() => "Adopt",
            _ => "Change",
        };
        let reason = match (action, new) {
            ("Delete" | "Release", _) | (_, None) => {
                let what = if policy.exists(pool) { "does not want it any more" } else { "is being deleted" };
                format!("WindowsPool {pool} {what}; {}", why_retired(name, &notes))
            }
            (action, Some(class)) => {
                let adopted = old.is_some_and(|old| !is_made_by_winpool(old));
                why_written(action, adopted, name, pool, class, &policy)
            }
        };
        let changes = class_changes(old, new, &reason);
        (!changes.is_empty()).then(|| ClassForecast { name: name.clone(), pool: pool.to_owned(), action, changes })
    });
    differing.collect()
}

fn why_retired(class: &str, notes: &[(String, Note)]) -> String {
    let released = notes.iter().find_map(|(_, note)| match note {
        Note::ClassReleased(released, why) if released == class => Some(why.as_str()),
        _ => None,
    });
    released.unwrap_or("no pod uses it").to_owned()
}

fn why_written(action: &str, adopted: bool, name: &str, pool: &str, class: &RuntimeClass, policy: &Policy) -> String {
    let found = policy.pool(pool);
    let declared = found.and_then(|pool| pool.spec.declared.iter().find(|(_, spec)| spec.name == name));
    let build = declared.map_or_else(|| selected_build(class), |(hosts, _)| Hosts::build(*hosts));
    let of = build.map_or_else(
        || "Windows nodes of any build".to_owned(),
        |build| {
            let product = builds::by_build(build).map_or_else(String::new, |product| format!(" ({})", product.name));
            format!("build {build}{product}")
        },
    );
    match action {
        "Create" if found.is_some_and(|pool| is_declared(pool, name)) => {
            format!("declared by WindowsPool {pool} for {of}")
        }
        "Create" => format!("WindowsPool {pool} has nodes of {of}"),
        _ if adopted => format!("it is what WindowsPool {pool} needs for {of}, so winpool manages it from now on"),
        _ => format!("what WindowsPool {pool} needs for {of}"),
    }
}

fn class_changes(old: Option<&RuntimeClass>, new: Option<&RuntimeClass>, reason: &str) -> Vec<Change> {
    let fields = |class: Option<&RuntimeClass>| -> Vec<(&'static str, Value)> {
        let label = |key| class.and_then(|class| class.metadata.labels.as_ref()?.get(key));
        let scheduling = class.and_then(|class| class.scheduling.as_ref());
        vec![
            ("handler", json!(class.map(|class| &class.handler))),
            ("scheduling.nodeSelector", json!(scheduling.and_then(|scheduling| scheduling.node_selector.as_ref()))),
            ("scheduling.tolerations", json!(scheduling.and_then(|scheduling| scheduling.tolerations.as_ref()))),
            ("overhead.podFixed", json!(class.and_then(|class| class.overhead.as_ref()?.pod_fixed.as_ref()))),
            ("metadata.labels[winpool.dev/pool]", json!(label(names::POOL))),
            ("metadata.labels[app.kubernetes.io/managed-by]", json!(label(names::MANAGED_BY))),
        ]
    };
    let differing = fields(old).into_iter().zip(fields(new)).filter(|((_, from), (_, to))| from != to);
    differing
        .map(|((field, from), (_, to))| Change { field: field.to_owned(), from, to, reason: reason.to_owned() })
        .collect()
}
