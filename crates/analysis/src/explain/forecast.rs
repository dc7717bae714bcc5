//! The changes that the operator would make to a cluster. winpool runs the operator's own decisions on a copy until
//! nothing is left to do.

mod changes;
mod class_request;
mod pools;
mod result;
mod silent;
mod simulation;
mod snapshot;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use winpool_core::node::NodeFields;
use winpool_core::plan::pools::pool::Policy;
use winpool_core::pod::Class;

use super::pod_count::pod_counts;
use crate::verdict::Cluster;
use silent::silent;

pub use class_request::apply_request;
pub(super) use pools::mode_of;
pub use result::{Change, ClassForecast, Forecast, ForecastSummary, NodeForecast, PoolForecast};
pub use simulation::Simulation;
pub use snapshot::Snapshot;

/// The cluster after the operator has finished, and the changes that it made.
#[derive(Clone, Debug)]
pub struct ForecastOutcome {
    pub nodes: BTreeMap<String, NodeFields>,
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub forecast: Forecast,
    /// The policy by which the operator counts nodes.
    pub policy: Policy,
}

impl ForecastOutcome {
    /// Returns what new pods find then, if this is what they find before.
    pub fn cluster<'a>(&self, before: &Cluster<'a>) -> Cluster<'a> {
        let nodes = before.nodes.iter().cloned().map(|host| match self.nodes.get(&host.name) {
            Some(node) => host.as_read(node),
            None => host,
        });
        let classes = self.classes.iter().map(|(name, class)| (name.clone(), Class::from(&**class)));
        Cluster { nodes: nodes.collect(), classes: classes.collect(), images: before.images }
    }
}

/// Returns the changes that the operator would make to this cluster.
pub fn forecast(snapshot: Snapshot) -> ForecastOutcome {
    let names: Vec<String> = snapshot.pools.iter().map(ResourceExt::name_any).collect();
    let with_always = pools::lost_with_always(&snapshot);
    let reported = pools::reported(&snapshot);
    let mut simulation = Simulation::new(snapshot);
    let (nodes_before, classes_before) = (simulation.nodes.clone(), simulation.classes.clone());
    simulation.run();
    let nodes = changes::nodes(&nodes_before, &simulation);
    let runtime_classes = changes::classes(&classes_before, &mut simulation);
    let on_windows = |name: &str| simulation.nodes.get(name).is_some_and(NodeFields::is_windows);
    let summary = ForecastSummary {
        node_count: simulation.nodes.len(),
        nodes_to_change: nodes.len(),
        runtime_classes_to_change: runtime_classes.len(),
        silent_workloads: pod_counts(&silent(simulation.pods.iter().flatten(), on_windows)),
        scaling: Vec::new(),
        notes: Vec::new(),
        pools: pools::with_reported(simulation.pool_forecasts(&names, &with_always, &nodes), reported),
    };
    ForecastOutcome {
        forecast: Forecast { summary, nodes, runtime_classes },
        policy: simulation.memory.policy(&simulation.pools),
        nodes: simulation.nodes,
        classes: simulation.classes,
    }
}
