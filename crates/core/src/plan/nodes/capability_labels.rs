//! Capability labels: `runs.winpool.dev/<build>` on nodes that run images of this build by process isolation.
//!
//! Such a label is a fact about the Windows build and the container runtime of its node. A node gets it when a
//! RuntimeClass of its pool selects it, and keeps it while it is true: a kubelet that starts ends the pods on its node that
//! select a label which the node lacks.

use std::collections::BTreeSet;

use crate::api::names;
use crate::node::{MetadataChange, NodeFields};
use crate::windows::Build;
use crate::windows::compatibility::{Runs, runs};

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
