//! The taints that keep pods off a node.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Toleration;

use crate::{
    api::Taint,
    plan::{node::NodeFields, taint_list::Applied, taints::owned},
    pod::tolerate,
};

use super::scope::{OnTrial, TrialCheckScope};

/// The taints of nodes that are equal to a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Barrier {
    /// The taints, each with the trial that it is on, if winpool can take it back.
    taints: Vec<(Taint, Option<usize>)>,
    /// The taints that come back when one on trial goes.
    replaced: Vec<Taint>,
}

impl Barrier {
    /// Reads a node. Only taints that winpool put there can be taken back, from nodes that it writes.
    pub(super) fn of(node: &NodeFields, scope: &TrialCheckScope) -> Self {
        let owner = scope.policy.owner(&node.labels).filter(|_| !node.is_ignored());
        let applied = owner.and(node.applied.as_deref()).and_then(Applied::parse);
        let own = owned(applied.as_ref(), &scope.policy);
        let trial = |taint: &Taint| {
            let is_about = |trial: &OnTrial| {
                trial.taint == *taint && owner.is_some_and(|owner| owner.pool.spec.name == trial.pool)
            };
            scope.trials.iter().position(is_about).filter(|_| own.contains(taint))
        };
        let keeps_off = |taint: &&Taint| taint.effect != "PreferNoSchedule";
        let taints = node.taints.taints().iter().filter(keeps_off).map(|taint| (taint.clone(), trial(taint)));
        let replaced = applied.iter().flat_map(|applied| &applied.replaced).filter_map(|text| text.parse().ok());
        let replaced = replaced.filter(|taint| scope.policy.may_remove(taint) && keeps_off(&taint));
        Self { taints: taints.collect(), replaced: replaced.collect() }
    }

    /// The trials of the taints that the pod does not tolerate; `None` if something else keeps it off too.
    pub(super) fn trials(&self, tolerations: &[Toleration]) -> Option<BTreeSet<usize>> {
        let untolerated = self.taints.iter().filter(|(taint, _)| !tolerate(tolerations, taint));
        let trials: BTreeSet<usize> = untolerated.map(|(_, trial)| *trial).collect::<Option<_>>()?;
        let stays = || self.replaced.iter().all(|taint| tolerate(tolerations, taint));
        (trials.is_empty() || stays()).then_some(trials)
    }
}
