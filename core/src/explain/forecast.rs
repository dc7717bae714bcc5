//! What the operator would do to a cluster until it rests: the same decisions, made again and again on a copy.

mod changes;
mod pools;
mod simulation;

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::{
    api::{Problem, names},
    labels::Labels,
    plan::{
        GuardedPool, Node, ScaleStory,
        reconcile::{ControlPlaneInfo, Now},
        silent,
    },
    pod::{Pod, Workload, WorkloadKind},
};

pub use simulation::Simulation;

/// A cluster at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The pools.
    pub pools: Vec<GuardedPool>,
    /// The nodes by name: those that are Windows or carry winpool's marks.
    pub nodes: BTreeMap<String, Node>,
    /// All RuntimeClasses.
    pub classes: Vec<Arc<RuntimeClass>>,
    /// The labels of the other nodes.
    pub other_nodes: Vec<Labels>,
    /// What makes pods from a template.
    pub workloads: Vec<(WorkloadKind, Workload)>,
    /// Kinds of those that cannot be listed, with the API server's words.
    pub unlisted: BTreeMap<String, String>,
    /// The unfinished pods, or why they cannot be read.
    pub pods: Result<Vec<Pod>, String>,
    /// What the control plane tells of itself.
    pub control_plane: ControlPlaneInfo,
    /// The moment.
    pub now: Now,
}

/// What the operator would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// What it adds up to.
    pub summary: ForecastSummary,
    /// The nodes that it would write.
    pub nodes: Vec<NodeForecast>,
    /// The RuntimeClasses that it would write.
    pub runtime_classes: Vec<ClassForecast>,
}

impl Forecast {
    /// Whether nothing would be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.runtime_classes.is_empty()
    }
}

/// What a forecast adds up to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForecastSummary {
    /// Nodes that were looked at.
    pub nodes: usize,
    /// Nodes that would be written.
    pub nodes_to_change: usize,
    /// RuntimeClasses that would be written.
    pub runtime_classes_to_change: usize,
    /// The pools.
    pub pools: Vec<PoolForecast>,
    /// Workloads that run on Windows nodes and say nowhere that they are for Windows, each with the number of its pods.
    pub silent_workloads: BTreeMap<String, usize>,
    /// Which of the pools' RuntimeClasses can start from zero nodes; empty if nothing is known of any autoscaler.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<ScaleStory>,
    /// What cannot be told, and why.
    pub notes: Vec<String>,
}

/// What would become of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolForecast {
    /// Its name.
    pub name: String,
    /// `Enforce` or `DryRun`; `Invalid` for a pool that is left alone until it is corrected; `Deleting` for one that goes.
    pub mode: String,
    /// Nodes that belong to it in the end.
    pub nodes: usize,
    /// Nodes that would be written, or in dry run: that would be if it were enforced.
    pub would_change: usize,
    /// Taints that are not put on, because workloads do not tolerate them.
    pub held_taints: Vec<String>,
    /// The workloads that would become unschedulable, each with the number of its pods that count.
    pub unschedulable: BTreeMap<String, usize>,
    /// What needs attention.
    pub problems: Vec<Problem>,
}

/// What would be written to a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct NodeForecast {
    /// Its name.
    pub name: String,
    /// The pool for which it is written.
    pub pool: String,
    /// What differs afterwards.
    pub changes: Vec<Change>,
}

/// What would be written to a RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ClassForecast {
    /// Its name.
    pub name: String,
    /// The pool for which it is written.
    pub pool: String,
    /// `Create`, `Change`, `Adopt`, `Replace`, `Release` or `Delete`.
    pub action: &'static str,
    /// What differs afterwards.
    pub changes: Vec<Change>,
}

/// A field before and after; `null` stands for absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// Where it is.
    pub field: String,
    /// What it is.
    pub from: Value,
    /// What it would be.
    pub to: Value,
    /// Why.
    pub reason: String,
}

/// The cluster after the operator came to rest, and what it wrote on the way.
#[derive(Clone, Debug)]
pub struct ForecastOutcome {
    /// The nodes.
    pub nodes: BTreeMap<String, Node>,
    /// The RuntimeClasses.
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    /// What differs.
    pub forecast: Forecast,
}

/// What the operator would do to this cluster.
#[must_use]
pub fn forecast(snapshot: Snapshot) -> ForecastOutcome {
    let names: Vec<String> = snapshot.pools.iter().map(ResourceExt::name_any).collect();
    let with_always = pools::unschedulable_with_always(&snapshot);
    let mut simulation = Simulation::new(snapshot);
    let (nodes_before, classes_before) = (simulation.nodes.clone(), simulation.classes.clone());
    simulation.run();
    let nodes = changes::nodes(&nodes_before, &simulation);
    let runtime_classes = changes::classes(&classes_before, &mut simulation);
    let on_windows =
        |name: &str| simulation.nodes.get(name).is_some_and(|node| node.labels.get(names::OS) == Some(names::WINDOWS));
    let summary = ForecastSummary {
        nodes: simulation.nodes.len(),
        nodes_to_change: nodes.len(),
        runtime_classes_to_change: runtime_classes.len(),
        silent_workloads: silent(simulation.pods.iter().flatten(), on_windows),
        scaling: Vec::new(),
        notes: Vec::new(),
        pools: simulation.pool_forecasts(&names, &with_always, &nodes),
    };
    ForecastOutcome {
        forecast: Forecast { summary, nodes, runtime_classes },
        nodes: simulation.nodes,
        classes: simulation.classes,
    }
}
