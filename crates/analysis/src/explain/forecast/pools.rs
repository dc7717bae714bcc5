//! The state of the pools when the operator has finished.

use std::collections::BTreeMap;

use kube::ResourceExt;
use winpool_core::api::names::{self, reason};
use winpool_core::api::{Mode, ObjectReference, Problem, WindowsPoolStatus};
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_core::plan::reconcile::taints::HeldTaints;

use crate::explain::pod_count::pod_counts;

use super::result::{NodeForecast, PoolForecast};
use super::simulation::Simulation;
use super::snapshot::Snapshot;

impl Simulation<'_> {
    /// Returns the forecasts for the pools that existed before.
    pub(super) fn pool_forecasts(&mut self, names: &[String], written: &[NodeForecast]) -> Vec<PoolForecast> {
        let (mut helped, of_classes) = (self.helped(), self.class_problems());
        let pools = self.cluster.pools.clone();
        let live: Vec<_> = pools
            .iter()
            .map(|guarded| {
                let (name, status) = (guarded.name_any(), guarded.status.clone().unwrap_or_default());
                let pool = guarded.read().ok();
                let held = pool.as_ref().and_then(|pool| self.held(pool));
                let without_pods = held.as_ref().map(|held| &held.daemon_sets);
                let mut helped = helped.remove(&name).unwrap_or_default();
                helped.retain(|workload, _| without_pods.is_none_or(|found| !found.contains_key(workload)));
                let is_dry_run = pool.as_ref().is_some_and(|pool| pool.spec.mode == Mode::DryRun);
                let writes = written.iter().filter(|node| node.pool == name).count();
                PoolForecast {
                    mode: mode_of(guarded).to_owned(),
                    node_count: usize::try_from(status.nodes.selected).unwrap_or_default(),
                    would_change: if is_dry_run {
                        usize::try_from(status.nodes.pending).unwrap_or_default()
                    } else {
                        writes
                    },
                    held_taints: held.iter().flat_map(|held| &held.taints).map(ToString::to_string).collect(),
                    without_pods: without_pods.map(pod_counts).unwrap_or_default(),
                    helped: pod_counts(&helped),
                    problems: unexplained(&name, held.as_ref(), &status)
                        .chain(status.problems)
                        .chain(of_classes.iter().filter(|(pool, _)| *pool == name).map(|(_, problem)| problem.clone()))
                        .collect(),
                    name,
                }
            })
            .collect();
        let is_gone = |name: &&String| !self.cluster.pools.iter().any(|pool| pool.name_any() == **name);
        let gone = names.iter().filter(is_gone).map(|name| PoolForecast {
            name: name.clone(),
            mode: "Deleting".to_owned(),
            would_change: written.iter().filter(|node| node.pool == *name).count(),
            ..PoolForecast::default()
        });
        live.into_iter().chain(gone).collect()
    }
}

/// Returns what conditions report and problems do not: taints held for reasons other than `DaemonSets`.
fn unexplained(
    pool: &str,
    held: Option<&HeldTaints>,
    status: &WindowsPoolStatus,
) -> impl Iterator<Item = Problem> + use<> {
    let says_why = held.is_some_and(|held| held.daemon_sets.is_empty());
    let condition = status.conditions.iter().find(|condition| condition.type_ == names::condition::TAINTS_APPLIED);
    let problem = condition.filter(|_| says_why).map(|condition| Problem {
        reason: condition.reason.clone(),
        object: ObjectReference::windows_pool(pool),
        message: condition.message.clone(),
    });
    problem.into_iter()
}

/// Returns `Invalid`, `Deleting`, `DryRun` or `Enforce`.
pub(in crate::explain) fn mode_of(guarded: &GuardedPool) -> &'static str {
    match guarded.read() {
        Err(_) => "Invalid",
        Ok(pool) if pool.spec.deleting => "Deleting",
        Ok(pool) if pool.spec.mode == Mode::DryRun => "DryRun",
        Ok(_) => "Enforce",
    }
}

/// The problems of classes that a forecast finds too, if it knows the pods.
pub(in crate::explain) const OF_CLASSES: [&str; 2] = [reason::CLASS_WITHOUT_NODES, reason::PODS_CREATED_TOO_EARLY];

/// Returns, by pool, the problems of pods that the operator reports and a forecast does not find.
pub(super) fn reported(snapshot: &Snapshot) -> BTreeMap<String, Vec<Problem>> {
    let knows_pods = snapshot.pods.known().is_some();
    let is_of_pods = |problem: &&Problem| {
        problem.reason == reason::PODS_FAILING || !knows_pods && OF_CLASSES.contains(&problem.reason.as_str())
    };
    let of_pool = |guarded: &GuardedPool| {
        let problems = guarded.status.iter().flat_map(|status| &status.problems).filter(is_of_pods);
        (guarded.name_any(), problems.cloned().collect())
    };
    snapshot.pools.iter().map(of_pool).collect()
}

/// Adds the problems that the operator reports.
pub(super) fn with_reported(
    mut forecasts: Vec<PoolForecast>,
    mut reported: BTreeMap<String, Vec<Problem>>,
) -> Vec<PoolForecast> {
    for forecast in &mut forecasts {
        let known = reported.remove(&forecast.name).unwrap_or_default();
        let new = known.into_iter().filter(|problem| !forecast.problems.contains(problem)).collect::<Vec<_>>();
        forecast.problems.extend(new);
    }
    forecasts
}
