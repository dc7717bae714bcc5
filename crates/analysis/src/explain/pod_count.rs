//! Workloads, each with the number of its pods.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::ObjectReference;

/// A workload with the number of its pods that count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PodCount {
    /// The workload, or a pod that has none.
    pub object: ObjectReference,
    /// The number of its pods.
    pub pods: usize,
}

/// Converts workloads that have names such as `Deployment shop/web`.
pub(super) fn pod_counts(counts: &BTreeMap<String, usize>) -> Vec<PodCount> {
    counts.iter().map(|(name, pods)| PodCount { object: ObjectReference::named(name), pods: *pods }).collect()
}
