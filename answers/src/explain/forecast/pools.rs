//! The state of the pools when the operator has finished.

use std::collections::BTreeMap;

use kube::ResourceExt;
use winpool_core::{
    api::{
        Mode, ObjectReference, Problem, TaintPolicy, WindowsPoolSpec, WindowsPoolStatus,
        names::{self, reason},
    },
    plan::{GuardedPool, HeldBecause, HeldTaints},
    pod::{Class, PodSpec, Target, Workload, WorkloadKind},
};

use crate::{explain::pod_count::pod_counts, system};

use super::{
    result::{NodeForecast, PoolForecast},
    simulation::Simulation,
    snapshot::Snapshot,
};

impl Simulation {
    /// Returns the forecasts for the pools that existed before.
    pub(super) fn pool_forecasts(
        &self,
        names: &[String],
        with_always: &BTreeMap<String, BTreeMap<String, usize>>,
        written: &[NodeForecast],
    ) -> Vec<PoolForecast> {
        let live = self.pools.iter().map(|guarded| {
            let (name, status) = (guarded.name_any(), guarded.status.clone().unwrap_or_default());
            let pool = guarded.read().ok();
            let held = pool.as_ref().and_then(|pool| self.held(pool));
            let unschedulable = match held.as_ref().map(|held| &held.because) {
                Some(HeldBecause::Unschedulable(found)) => pod_counts(found),
                _ => with_always.get(&name).map(pod_counts).unwrap_or_default(),
            };
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
                may_be_for_linux: unschedulable.iter().any(|found| !self.is_for_windows(&found.object)),
                unschedulable,
                problems: self.unexplained(&name, held.as_ref(), &status).chain(status.problems).collect(),
                name,
            }
        });
        let is_gone = |name: &&String| !self.pools.iter().any(|pool| pool.name_any() == **name);
        let gone = names.iter().filter(is_gone).map(|name| PoolForecast {
            name: name.clone(),
            mode: "Deleting".to_owned(),
            would_change: written.iter().filter(|node| node.pool == *name).count(),
            ..PoolForecast::default()
        });
        live.chain(gone).collect()
    }

    /// True if the workload or pod is certainly for Windows.
    fn is_for_windows(&self, object: &ObjectReference) -> bool {
        let name = object.to_string();
        let class_of = |spec: &PodSpec| {
            let class = self.classes.get(spec.runtime_class.as_ref()?)?;
            Some(Class::from(&**class))
        };
        let nodes = || {
            let own = self.nodes.values().map(|node| (node.is_windows(), &node.labels));
            own.chain(self.other_nodes.iter().map(|labels| (false, labels)))
        };
        let is_windows =
            |spec: &PodSpec| Target::of(system::guess(spec, class_of(spec).as_ref(), nodes())) == Target::Windows;
        let is_it =
            |(kind, of): &&(WorkloadKind, Workload)| format!("{} {}/{}", kind.as_str(), of.namespace, of.name) == name;
        if let Some((_, workload)) = self.workloads.iter().find(is_it) {
            return is_windows(&workload.template);
        }
        let mut pods = self.pods.iter().flatten().filter(|pod| pod.workload() == name).peekable();
        pods.peek().is_some() && pods.all(|pod| is_windows(&pod.spec))
    }

    /// Returns what conditions report and problems do not: taints held for reasons other than workloads, and workloads
    /// that the check could not list.
    fn unexplained(
        &self,
        pool: &str,
        held: Option<&HeldTaints>,
        status: &WindowsPoolStatus,
    ) -> impl Iterator<Item = Problem> + use<> {
        let by_workloads = |held: &HeldTaints| matches!(held.because, HeldBecause::Unschedulable(_));
        let says_why = !self.memory.unlisted(pool).is_empty() || held.is_some_and(|held| !by_workloads(held));
        let condition = status.conditions.iter().find(|condition| condition.type_ == names::condition::TAINTS_APPLIED);
        let problem = condition.filter(|_| says_why).map(|condition| Problem {
            reason: condition.reason.clone(),
            object: ObjectReference::windows_pool(pool),
            message: condition.message.clone(),
        });
        problem.into_iter()
    }
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

/// Returns, by pool, the problems of pods that the operator reports. A forecast does not find them, because it does not watch pods.
pub(super) fn reported(snapshot: &Snapshot) -> BTreeMap<String, Vec<Problem>> {
    let is_of_pods =
        |problem: &&Problem| [reason::PODS_FAILING, reason::CLASS_WITHOUT_NODES].contains(&problem.reason.as_str());
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

/// Returns, by pool, the workloads that become unschedulable because the taint policy `Always` does not wait for them.
/// These are the workloads that would hold the taints with `WhenTolerated`.
pub(super) fn unschedulable_with_always(snapshot: &Snapshot) -> BTreeMap<String, BTreeMap<String, usize>> {
    let mut asking = snapshot.clone();
    let is_always = |spec: &WindowsPoolSpec| spec.taint_policy == TaintPolicy::Always && spec.mode == Mode::Enforce;
    let mut any = false;
    for guarded in &mut asking.pools {
        if guarded.pool().is_ok_and(|pool| is_always(&pool.spec)) {
            guarded.change_spec(|spec| spec.taint_policy = TaintPolicy::WhenTolerated);
            any = true;
        }
    }
    if !any {
        return BTreeMap::new();
    }
    let mut simulation = Simulation::new(asking);
    simulation.run();
    let pools = simulation.pools.iter().filter_map(|guarded| guarded.read().ok());
    let found = pools.filter_map(|pool| match simulation.held(&pool)?.because {
        HeldBecause::Unschedulable(found) => Some((pool.spec.name.clone(), found)),
        _ => None,
    });
    found.collect()
}
