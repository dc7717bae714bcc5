//! What differs between a cluster before and after, and why.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::{Value, json};

use crate::{
    api::{Taint, names},
    explain::forecast::{Change, ClassForecast, NodeForecast},
    plan::{
        Assessment, ClassAction, DesiredClass, FieldChange, Node, Policy, Pool, WantedTaints, classes::is_declared,
        owner,
    },
    windows::product,
};

/// Why things were written, as far as they still stand at the end.
#[derive(Default)]
pub(super) struct Reasons {
    /// By node: the pool, and a reason for each field.
    nodes: BTreeMap<String, (String, BTreeMap<String, String>)>,
    /// By class: the pool and the reason.
    classes: BTreeMap<String, (String, String)>,
}

fn label_field(key: &str) -> String {
    format!("metadata.labels[{key}]")
}

const ANNOTATION: &str = "metadata.annotations[winpool.dev/applied]";
const TAINTS: &str = "spec.taints";

fn added(taint: &Taint) -> String {
    format!("+{taint}")
}

fn removed(taint: &Taint) -> String {
    format!("-{taint}")
}

impl Reasons {
    pub fn node(&mut self, name: &str, node: &Node, assessment: &Assessment, policy: &Policy) {
        let pool = assessment.pool.as_ref().or(assessment.releasing.as_ref()).cloned().unwrap_or_default();
        let owner = assessment.pool.as_ref().and_then(|pool| policy.pool(pool));
        let plan = &assessment.plan;
        let reasons = self.nodes.entry(name.to_owned()).or_default();
        reasons.0.clone_from(&pool);
        let reasons = &mut reasons.1;
        if let Some(change) = &plan.windows_build {
            let why = match (&change.to, &node.kernel_version) {
                (Some(_), Some(version)) => format!("the node reports {version} in status.nodeInfo.kernelVersion"),
                (Some(_), None) => "the build of the node".to_owned(),
                (None, _) => "the node came back as another system".to_owned(),
            };
            reasons.insert(label_field(names::WINDOWS_BUILD), why);
        }
        for label in &plan.capability_labels {
            let class = label.key.strip_prefix(names::CAPABILITY_LABEL_PREFIX).unwrap_or_default();
            let why = match (&label.to, owner) {
                (Some(_), _) => format!("the node runs the images of RuntimeClass {class}"),
                (None, Some(_)) => format!("the node does not serve a RuntimeClass {class} of its pool"),
                (None, None) => leaves(&pool, policy),
            };
            reasons.insert(label_field(&label.key), why);
        }
        for taint in plan.taints.iter().flat_map(|change| &change.added) {
            reasons.insert(added(taint), why_added(owner));
        }
        for taint in plan.taints.iter().flat_map(|change| &change.removed) {
            let why = match owner {
                Some(owner) if owner.retired_taints.contains(taint) => {
                    format!("spec.retiredTaints of WindowsPool {}", owner.name)
                }
                Some(owner) => format!("winpool put it on, and WindowsPool {} does not want it", owner.name),
                None => leaves(&pool, policy),
            };
            reasons.insert(removed(taint), why);
        }
        let marks = match owner {
            Some(_) => "says what winpool put there".to_owned(),
            None => leaves(&pool, policy),
        };
        if plan.pool.is_some() {
            reasons.insert(label_field(names::POOL), marks.clone());
        }
        if plan.applied.is_some() {
            reasons.insert(ANNOTATION.to_owned(), marks);
        }
    }

    /// Whether the node gets this taint.
    pub fn adds(&self, node: &str, taint: &Taint) -> bool {
        self.nodes.get(node).is_some_and(|(_, reasons)| reasons.contains_key(&added(taint)))
    }

    pub fn class(&mut self, action: &ClassAction, desired: &DesiredClass, pool: &Pool) {
        let build = desired.hosts.build();
        let product = build.and_then(product::by_build).map_or_else(String::new, |p| format!(" ({})", p.name));
        let of =
            build.map_or_else(|| "Windows nodes of any build".to_owned(), |build| format!("build {build}{product}"));
        let pool_name = &pool.name;
        let why = match action {
            ClassAction::Create(_) if is_declared(pool, &desired.name) => {
                format!("declared by WindowsPool {pool_name} for {of}")
            }
            ClassAction::Create(_) => format!("WindowsPool {pool_name} has nodes of {of}"),
            ClassAction::Replace(_) => {
                format!("WindowsPool {pool_name} wants another handler, which cannot be changed")
            }
            ClassAction::Change { adopted: true, .. } => {
                format!("it is what WindowsPool {pool_name} needs for {of}, so winpool keeps it from now on")
            }
            _ => format!("what WindowsPool {pool_name} needs for {of}"),
        };
        // A class that is made and then changed was made for the first reason.
        self.classes.entry(desired.name.clone()).or_insert_with(|| (pool_name.clone(), why));
    }

    pub fn class_retired(&mut self, name: &str, pool: &Pool, why: &str) {
        let what = if pool.deleting { "is being deleted" } else { "does not want it any more" };
        let why = format!("WindowsPool {} {what}; {why}", pool.name);
        self.classes.insert(name.to_owned(), (pool.name.clone(), why));
    }
}

fn why_added(owner: Option<&Arc<Pool>>) -> String {
    match owner.map(|owner| (&owner.taints, &owner.name)) {
        Some((WantedTaints::Guard, name)) => {
            format!("no Windows taint keeps other pods off the node; default of WindowsPool {name}")
        }
        Some((WantedTaints::Exactly(_), name)) => format!("spec.taints of WindowsPool {name}"),
        None => String::new(),
    }
}

fn leaves(pool: &str, policy: &Policy) -> String {
    if policy.pool(pool).is_some_and(|pool| pool.deleting) {
        format!("WindowsPool {pool} is being deleted")
    } else {
        format!("WindowsPool {pool} does not select the node")
    }
}

/// The nodes that differ.
pub(super) fn nodes(
    before: &BTreeMap<String, Node>,
    after: &BTreeMap<String, Node>,
    reasons: &Reasons,
) -> Vec<NodeForecast> {
    let touched = reasons.nodes.iter().filter_map(|(name, (pool, reasons))| {
        let changes = node_changes(before.get(name)?, after.get(name)?, reasons);
        (!changes.is_empty()).then(|| NodeForecast { name: name.clone(), pool: pool.clone(), changes })
    });
    touched.collect()
}

fn node_changes(before: &Node, after: &Node, reasons: &BTreeMap<String, String>) -> Vec<Change> {
    let why = |key: &str| reasons.get(key).cloned().unwrap_or_default();
    let mut changes = Vec::new();
    let own = |node: &'_ Node| -> BTreeSet<String> {
        let capability_labels = node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX).map(|(key, _)| key.to_owned());
        [names::WINDOWS_BUILD, names::POOL].map(str::to_owned).into_iter().chain(capability_labels).collect()
    };
    for key in own(before).union(&own(after)) {
        let (from, to) = (before.labels.get(key), after.labels.get(key));
        if from != to {
            let field = label_field(key);
            let reason = why(&field);
            changes.push(Change { field, from: json!(from), to: json!(to), reason });
        }
    }
    let (old, new) = (before.taints.taints(), after.taints.taints());
    let text = |taint: Option<&Taint>| json!(taint.map(ToString::to_string));
    for taint in new.iter().filter(|taint| !old.contains(taint)) {
        let replaced = old.iter().find(|old| old.same_identity(taint));
        let reason = why(&added(taint));
        changes.push(Change { field: TAINTS.to_owned(), from: text(replaced), to: text(Some(taint)), reason });
    }
    for taint in old.iter().filter(|taint| !new.iter().any(|new| new.same_identity(taint))) {
        let reason = why(&removed(taint));
        changes.push(Change { field: TAINTS.to_owned(), from: text(Some(taint)), to: Value::Null, reason });
    }
    if before.applied != after.applied {
        let (from, to) = (json!(before.applied), json!(after.applied));
        changes.push(Change { field: ANNOTATION.to_owned(), from, to, reason: why(ANNOTATION) });
    }
    changes
}

/// The class after these changes.
pub(super) fn apply(class: &RuntimeClass, changes: &[FieldChange]) -> RuntimeClass {
    let mut object = json!(class);
    for FieldChange { path, to, .. } in changes {
        let Some((last, parents)) = path.split_last() else { continue };
        let map =
            parents.iter().try_fold(&mut object, |object, key| object.get_mut(*key)).and_then(Value::as_object_mut);
        if let Some(map) = map {
            if to.is_null() {
                map.remove(*last);
            } else {
                map.insert((*last).to_owned(), to.clone());
            }
        }
    }
    serde_json::from_value(object).unwrap_or_else(|_| class.clone())
}

/// The classes that differ.
pub(super) fn classes(
    before: &BTreeMap<String, Arc<RuntimeClass>>,
    after: &BTreeMap<String, Arc<RuntimeClass>>,
    reasons: &Reasons,
) -> Vec<ClassForecast> {
    let touched = reasons.classes.iter().filter_map(|(name, (pool, reason))| {
        let (old, new) = (before.get(name).map(AsRef::as_ref), after.get(name).map(AsRef::as_ref));
        let changes = class_changes(old, new, reason);
        let action = match (old, new) {
            (None, _) => "Create",
            (_, None) => "Delete",
            (Some(old), Some(new)) if old.handler != new.handler => "Replace",
            (Some(old), Some(new)) if owner(old).is_some() && owner(new).is_none() => "Release",
            (Some(old), Some(new)) if owner(old).is_none() && owner(new).is_some() => "Adopt",
            _ => "Change",
        };
        (!changes.is_empty()).then(|| ClassForecast { name: name.clone(), pool: pool.clone(), action, changes })
    });
    touched.collect()
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
