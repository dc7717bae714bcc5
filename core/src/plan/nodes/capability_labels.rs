//! Capability labels: `runs.winpool.dev/<build>` on nodes that run images of this build by process isolation.
//!
//! Such a label is a fact about the Windows build and the container runtime of its node. A node gets it when a
//! RuntimeClass of its pool selects it, and keeps it while it is true: a kubelet that starts ends the pods on its node that
//! select a label which the node lacks.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::names,
    plan::{
        nodes::node::{MetadataChange, NodeFields},
        pods::table::PodTable,
    },
    pod::selector_of,
    windows::{
        Build,
        compatibility::{Runs, runs},
    },
};

const TRUE: &str = "true";

/// The label of nodes that run images of this build.
pub fn key(image: Build) -> String {
    format!("{}{image}", names::CAPABILITY_LABEL_PREFIX)
}

/// The build in the key of a capability label.
pub fn build_of(label: &str) -> Option<Build> {
    let image = label.strip_prefix(names::CAPABILITY_LABEL_PREFIX)?.parse().ok()?;
    (key(image) == label).then_some(image)
}

/// Plans the capability labels of a node whose pool wants those for `images`. A label that is not true is removed,
/// even if another writer added it. While the container runtime is unknown, nothing changes: it may be restarting.
pub(crate) fn plan(node: &NodeFields, images: &BTreeSet<Build>) -> Vec<MetadataChange> {
    let present = node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX).map(|(key, _)| key.to_owned());
    let keys: BTreeSet<String> = images.iter().map(|image| key(*image)).chain(present).collect();
    let change = |key: &String| {
        let value = node.labels.get(key);
        let to = match build_of(key).map(|image| node.windows_host().map_or(Runs::Unknown, |host| runs(image, host))) {
            Some(Runs::Yes) => Some(TRUE),
            Some(Runs::IfContainerd(_) | Runs::Unknown) => value,
            Some(Runs::No) | None => None,
        };
        MetadataChange::between(key, value, to)
    };
    keys.iter().filter_map(change).collect()
}

/// Removes all capability labels of a node, for example because it runs Linux now.
pub(crate) fn removal(node: &NodeFields) -> Vec<MetadataChange> {
    let present = node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX);
    present.filter_map(|(key, value)| MetadataChange::between(key, Some(value), None)).collect()
}

/// The capability labels on nodes, each with a RuntimeClass or an unfinished pod that selects it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelUsers {
    labels: BTreeMap<String, Option<String>>,
}

impl LabelUsers {
    /// Adds the labels of a node.
    pub fn add_node(&mut self, node: &NodeFields) {
        let present = node.labels.with_prefix(names::CAPABILITY_LABEL_PREFIX);
        self.labels.extend(present.map(|(key, _)| (key.to_owned(), None)));
    }

    /// Adds the unfinished pods, which need the labels that they select.
    pub fn add_pods(&mut self, pods: &PodTable) {
        for (placement, pod) in pods.placements() {
            if placement.is_known {
                placement.selected_keys().for_each(|key| self.add_user(key, || format!("Pod {pod}")));
            } else {
                self.add_user_of_all(|| format!("Pod {pod}"));
            }
        }
    }

    /// Adds a RuntimeClass, whose next pod needs the labels that it selects.
    pub fn add_class(&mut self, class: &RuntimeClass) {
        for key in selector_of(class).keys() {
            self.add_user(key, || format!("RuntimeClass {}", class.name_any()));
        }
    }

    /// Adds a user of all labels: the reason why pods cannot be listed.
    pub fn add_unknown(&mut self, reason: &str) {
        self.add_user_of_all(|| format!("pods cannot be listed: {reason}"));
    }

    fn add_user_of_all(&mut self, user: impl Fn() -> String) {
        for known in self.labels.values_mut() {
            known.get_or_insert_with(&user);
        }
    }

    fn add_user(&mut self, label: &str, user: impl FnOnce() -> String) {
        if let Some(known) = self.labels.get_mut(label) {
            known.get_or_insert_with(user);
        }
    }

    /// The user of this label, if there is one.
    pub fn of(&self, label: &str) -> Option<&str> {
        self.labels.get(label)?.as_deref()
    }

    /// The labels that are in use, each with a user.
    pub fn in_use(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().filter_map(|(label, user)| Some((label.as_str(), user.as_deref()?)))
    }
}
