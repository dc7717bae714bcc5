//! The changes that the operator would make to a cluster. winpool runs the operator's own decisions on a copy until
//! nothing is left to do.

mod changes;
mod pools;
mod result;
mod silent;
mod simulation;
mod snapshot;
mod workloads;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use winpool_core::api::ObjectReference;
use winpool_core::node::NodeFields;
use winpool_core::plan::Now;
use winpool_core::plan::pools::pool::{GuardedPool, Policy};
use winpool_core::pod::Class;
use winpool_simulation::Unfinished;

use super::pod_count::pod_counts;
use super::subject::subjects;
use crate::image::Images;
use crate::verdict::Cluster;
use crate::view::View;
use silent::silent;

pub(super) use pools::{OF_CLASSES, mode_of};
pub use result::{Change, ClassForecast, Forecast, ForecastSummary, NodeForecast, PoolForecast};
pub use simulation::{Simulation, new_pod};
pub use snapshot::Snapshot;
pub use workloads::{Effect, WorkloadForecast};

/// The cluster after the operator has finished, and the changes that it made.
#[derive(Clone, Debug)]
pub struct ForecastOutcome {
    pub nodes: BTreeMap<String, NodeFields>,
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub pools: Vec<Arc<GuardedPool>>,
    pub forecast: Forecast,
    /// The policy by which the operator counts nodes.
    pub policy: Policy,
}

impl ForecastOutcome {
    /// Returns what new pods find then, if this is what they find before.
    pub fn cluster(&self, before: &Cluster) -> Cluster {
        let nodes = before.nodes.iter().cloned().map(|host| match self.nodes.get(&host.name) {
            Some(node) => host.as_read(node),
            None => host,
        });
        let classes = self.classes.iter().map(|(name, class)| (name.clone(), Class::from(&**class))).collect();
        let admission = before.admission.with(&self.pools, &classes);
        Cluster { nodes: nodes.collect(), classes, images: before.images.clone(), admission }
    }
}

/// Returns the changes that the operator would make to the cluster of this view, and what they change for new pods once no taint is
/// held any more.
///
/// # Errors
/// Fails if the operator does not finish.
pub fn forecast_of(view: View, images: &Images, now: Now) -> Result<ForecastOutcome, Unfinished> {
    let there = view.nodes.known().map(|_| view.cluster(images));
    let started = view.started();
    let snapshot = Snapshot::of(view, now);
    let mut outcome = forecast(&snapshot)?;
    if let Some(there) = there {
        let subjects = subjects(&snapshot, &started, &there);
        let with_held = outcome.cluster(&there);
        let is_held = outcome.forecast.summary.pools.iter().any(|pool| !pool.held_taints.is_empty());
        let given = is_held.then(|| forecast(&snapshot.without_daemon_sets())).transpose()?;
        let given = given.map(|given| given.cluster(&there));
        outcome.forecast.workloads =
            workloads::changed(&subjects, &there, given.as_ref().unwrap_or(&with_held), &with_held);
        // The pools name these.
        let pools = outcome.forecast.summary.pools.iter();
        let holding: BTreeSet<&ObjectReference> =
            pools.flat_map(|pool| &pool.without_pods).map(|set| &set.object).collect();
        outcome.forecast.workloads.retain(|workload| !holding.contains(&workload.object));
    }
    Ok(outcome)
}

/// Returns the changes that the operator would make to this cluster.
///
/// # Errors
/// Fails if the operator does not finish.
pub fn forecast(snapshot: &Snapshot) -> Result<ForecastOutcome, Unfinished> {
    let names: Vec<String> = snapshot.pools.iter().map(ResourceExt::name_any).collect();
    let reported = pools::reported(snapshot);
    let mut simulation = Simulation::new(snapshot);
    simulation.watch_pods();
    let cluster = &mut simulation.cluster;
    let classes_before = cluster.classes.clone();
    cluster.run()?;
    let nodes = changes::nodes(&snapshot.nodes, cluster);
    let runtime_classes = changes::classes(&classes_before, cluster);
    let on_windows = |name: &str| simulation.cluster.nodes.get(name).is_some_and(NodeFields::is_windows);
    let summary = ForecastSummary {
        node_count: simulation.cluster.nodes.len(),
        nodes_to_change: nodes.len(),
        runtime_classes_to_change: runtime_classes.len(),
        silent_workloads: pod_counts(&silent(snapshot.pods.known().into_iter().flatten(), on_windows)),
        scaling: Vec::new(),
        notes: Vec::new(),
        pools: pools::with_reported(simulation.pool_forecasts(&names, &nodes), reported),
    };
    let cluster = simulation.cluster;
    Ok(ForecastOutcome {
        forecast: Forecast { summary, nodes, runtime_classes, workloads: Vec::new() },
        policy: cluster.operator.memory.policy(&cluster.pools),
        nodes: cluster.nodes,
        classes: cluster.classes,
        pools: cluster.pools,
    })
}
