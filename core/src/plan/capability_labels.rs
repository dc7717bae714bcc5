//! Capability labels: they show which RuntimeClasses a node can serve, where its build alone does not.

use crate::{
    api::{Isolation, names},
    plan::{
        node::{MetadataChange, NodeFields},
        pool_consent::LabelledClass,
        pool_spec::Hosts,
        pools::Pool,
    },
    windows::{
        ContainerRuntime,
        compatibility::{runs_by_hyperv_isolation, runs_by_process_isolation},
    },
};

const ABLE: &str = "true";

/// The label of nodes that can serve this class.
pub fn key(class: &str) -> String {
    format!("{}{class}", names::CAPABILITY_LABEL_PREFIX)
}

/// The class whose nodes have this label.
fn class_of(key: &str) -> &str {
    key.strip_prefix(names::CAPABILITY_LABEL_PREFIX).unwrap_or(key)
}

/// True if the node has a capability label of any pool.
pub fn has_capability_labels(node: &NodeFields) -> bool {
    node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX).next().is_some()
}

/// The capability labels that `pool` wants on nodes that can serve them.
pub(super) fn wanted(pool: &Pool) -> impl Iterator<Item = String> + '_ {
    served(pool).map(|(class, _)| key(class))
}

/// True if nodes get the label of this class, which runs images by process isolation.
pub(super) fn serves(pool: &Pool, class: &str) -> bool {
    served(pool).any(|(served, _)| served == class)
}

/// The declared classes that select a label, and the others that do, now or soon.
fn served(pool: &Pool) -> impl Iterator<Item = (&str, LabelledClass)> {
    let declared = pool.spec.declared.iter().filter_map(|(hosts, spec)| match *hosts {
        Hosts::Running(image, isolation) => {
            let handler = spec.effective_handler().to_owned();
            Some((spec.name.as_str(), LabelledClass { image, isolation, handler }))
        }
        Hosts::Any | Hosts::Of(_) => None,
    });
    let is_declared =
        |class: &str| pool.spec.declared.iter().any(|(hosts, spec)| hosts.is_by_label() && spec.name == class);
    let others = pool.consent.labelled.iter().filter(move |(class, _)| !is_declared(class));
    declared.chain(others.map(|(class, labelled)| (class.as_str(), labelled.clone())))
}

/// The plan for the capability labels of a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LabelsPlan {
    pub changes: Vec<MetadataChange>,
    /// Labels that its pool does not want, and that stay because pods may need them.
    pub leaving: Vec<String>,
}

/// Plans the capability labels of a node of `pool`. A label that the pool does not want is removed if `goes` returns
/// true for it, because a kubelet that starts ends the pods on its node that select a label which the node lacks.
pub(super) fn plan(node: &NodeFields, pool: Option<&Pool>, goes: impl Fn(&str) -> bool) -> LabelsPlan {
    let mut plan = LabelsPlan::default();
    let wanted: Vec<_> = pool.into_iter().flat_map(served).collect();
    for (class, labelled) in &wanted {
        let (key, able) = (key(class), is_able(node, labelled));
        let value = node.labels.get(&key);
        // An unknown answer changes nothing: a runtime that does not answer leaves the fields empty for a moment.
        let to = able.unwrap_or(value == Some(ABLE)).then_some(ABLE);
        plan.changes.extend(MetadataChange::between(&key, value, to));
    }
    for (key, value) in node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX) {
        if wanted.iter().any(|(class, _)| *class == class_of(key)) {
            continue;
        }
        if goes(key) {
            plan.changes.extend(MetadataChange::between(key, Some(value), None));
        } else {
            plan.leaving.push(key.to_owned());
        }
    }
    plan
}

/// True if the node can serve the class; `None` if that is unknown.
fn is_able(node: &NodeFields, LabelledClass { image, isolation, handler }: &LabelledClass) -> Option<bool> {
    let host = node.windows_version()?.build;
    if node.runtime_handlers.as_ref().is_some_and(|handlers| !handlers.iter().any(|name| **name == **handler)) {
        return Some(false);
    }
    match isolation {
        Isolation::HyperV => Some(runs_by_hyperv_isolation(host, *image)),
        Isolation::Process if host == *image => Some(true),
        Isolation::Process => {
            let runtime: ContainerRuntime = node.container_runtime.as_deref()?.parse().ok()?;
            runtime.version?;
            Some(runs_by_process_isolation(host, Some(runtime), *image))
        }
    }
}
