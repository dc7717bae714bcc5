//! The result of a forecast: the changes that the operator would make.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use winpool_core::api::Problem;

use crate::explain::pod_count::PodCount;
use crate::explain::scale::ScaleExplanation;

use super::workloads::WorkloadForecast;

/// The changes that the operator would make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The summary of these changes.
    pub summary: ForecastSummary,
    /// The nodes that it would change, by name.
    pub nodes: Vec<NodeForecast>,
    /// The RuntimeClasses that it would change.
    pub runtime_classes: Vec<ClassForecast>,
    /// The workloads whose new pods then run elsewhere; empty if the nodes are not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<WorkloadForecast>,
}

impl Forecast {
    /// True if the operator would change nothing.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.runtime_classes.is_empty()
    }

    /// Returns the forecast for the pool with this name.
    pub fn pool(&self, name: &str) -> Option<&PoolForecast> {
        self.summary.pools.iter().find(|pool| pool.name == name)
    }

    /// Returns the changes of the node with this name, if it changes.
    pub fn node(&self, name: &str) -> Option<&NodeForecast> {
        let place = self.nodes.binary_search_by(|node| node.name.as_str().cmp(name)).ok()?;
        self.nodes.get(place)
    }
}

/// The summary of a forecast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForecastSummary {
    /// The number of nodes that winpool checked.
    pub node_count: usize,
    /// The number of nodes that the operator would change.
    pub nodes_to_change: usize,
    /// The number of RuntimeClasses that the operator would change.
    pub runtime_classes_to_change: usize,
    /// The forecast for each pool.
    pub pools: Vec<PoolForecast>,
    /// The workloads that run on Windows nodes without specifying Windows, each with the number of its pods.
    pub silent_workloads: Vec<PodCount>,
    /// The pools' RuntimeClasses that can or cannot start from zero nodes; empty if no autoscaler is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<ScaleExplanation>,
    /// Facts that winpool cannot determine, with the reasons.
    pub notes: Vec<String>,
}

/// The forecast for a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolForecast {
    /// The name of the pool.
    pub name: String,
    /// `Enforce` or `DryRun`; `Invalid` for a pool that winpool ignores until you correct it; `Deleting` for a pool
    /// that is being deleted.
    pub mode: String,
    /// The number of nodes that it owns at the end.
    pub node_count: usize,
    /// The number of nodes that the operator would change or, in dry run, would change if you enforced the pool.
    pub would_change: usize,
    /// The taints that winpool does not add to all nodes.
    pub held_taints: Vec<String>,
    /// The `DaemonSets` that would make no pods for nodes with these taints, each with the number of those nodes.
    pub without_pods: Vec<PodCount>,
    /// The workloads whose pods get tolerations, each with the number of these pods; 0 for a workload that has no pods yet.
    /// Without those in `withoutPods`.
    pub helped: Vec<PodCount>,
    /// The problems that need attention.
    pub problems: Vec<Problem>,
}

/// The changes of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct NodeForecast {
    /// The name of the node.
    pub name: String,
    /// The pool that requires the changes.
    pub pool: String,
    /// The fields that change.
    pub changes: Vec<Change>,
}

/// The changes of a RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ClassForecast {
    /// The name of the RuntimeClass.
    pub name: String,
    /// The pool that requires the changes.
    pub pool: String,
    /// The action: `Create`, `Change`, `Adopt`, `Release` or `Delete`.
    pub action: &'static str,
    /// The fields that change.
    pub changes: Vec<Change>,
}

/// A field before and after the change; `null` means absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// The path of the field.
    pub field: String,
    /// The current value.
    pub from: Value,
    /// The new value.
    pub to: Value,
    /// The reason for the change.
    pub reason: String,
}
