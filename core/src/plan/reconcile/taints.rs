//! Decides which taints pools may add to nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    api::{Taint, TaintPolicy},
    plan::{
        classes::ClassesPlan,
        guarded::GuardedPool,
        node::NodeFields,
        nodes::NodeObject,
        now::{Now, whole_seconds},
        pods::UnknownPods,
        pool_consent::{Approval, PoolConsent},
        pool_spec::WantedTaints,
        pools::{Pool, approved_taints},
        status::{HeldBecause, HeldTaints},
        taints::guards,
        tally::Tally,
    },
};

use super::{
    memory::{Intent, Memory},
    step::CachedCluster,
};

impl Memory {
    /// Returns the changes that the pool may make to nodes from now on.
    pub(super) fn intend(
        &self,
        cluster: &CachedCluster<'_>,
        guarded: &GuardedPool,
        pool: &Pool,
        plan: &ClassesPlan,
        tally: &Tally,
        now: Now,
    ) -> Intent {
        let existing = self.classes(cluster, &pool.spec.name);
        let lagging = if pool.spec.enforces() { self.lagging(pool, plan, &existing, now.instant) } else { Vec::new() };
        let seen = tally.seen();
        let objectors = cluster.objectors().ok().cloned();
        let mut consent = PoolConsent {
            approved: Vec::new(),
            may_add: objectors.is_some(),
            objectors: objectors.unwrap_or_default(),
            lagging,
            images: plan.images(&existing),
            planned_builds: seen.builds.into_keys().chain(plan.builds()).collect(),
            is_blind: !cluster.unreadable(now.instant).is_empty(),
        };
        let recorded = approved_taints(self.recorded_status(guarded));
        let known = |taint: &Taint| recorded.iter().find(|known| known.taint == *taint);
        let is_approved = |taint: &Taint| approves(pool, &consent, taint, known(taint).is_some());
        let approved = pool.spec.wanted_taints().into_iter().filter(is_approved).map(|taint| {
            let since = known(&taint).map_or(whole_seconds(now.time), |known| known.since);
            Approval { taint, since }
        });
        consent.approved = approved.collect();
        let lingering = seen.tolerate.into_iter().filter(|taint| pool.managed_taints.contains(taint));
        Intent { consent: consent.into(), carried: tally.owned().cloned().chain(lingering).collect() }
    }

    /// The reason why taints wait, if it is known.
    pub fn held(&self, cluster: &CachedCluster<'_>, pool: &Pool, tally: &Tally) -> Option<HeldTaints> {
        let memory = self.pools.get(&pool.spec.name).filter(|_| tally.waits())?;
        let consent = &memory.intent.as_ref()?.consent;
        let held: Vec<Taint> = pool.spec.deniable_taints().into_iter().filter(|taint| tally.is_held(taint)).collect();
        let (mut taints, mut sets) = (BTreeSet::new(), BTreeMap::new());
        let policy = self.policy(cluster.pools);
        let is_of = |object: &&Arc<NodeObject>| !object.node.is_ignored() && policy.is_of(pool, &object.node.labels);
        for object in cluster.nodes.objects().filter(is_of) {
            for objector in consent.objectors.iter() {
                let objects = |taint: &&Taint| {
                    !has_one(&object.node, pool, taint) && objector.objects(taint, &object.node.labels, &object.name)
                };
                let lost: Vec<&Taint> = held.iter().filter(objects).collect();
                if !lost.is_empty() {
                    *sets.entry(objector.name.to_string()).or_default() += 1;
                    taints.extend(lost.into_iter().cloned());
                }
            }
        }
        let (taints, because) = match cluster.objectors() {
            _ if !sets.is_empty() => (taints, HeldBecause::DaemonSets(sets)),
            _ if !consent.lagging.is_empty() => {
                let names = consent.lagging.iter().map(|class| class.name.clone()).collect();
                (consent.lagging.iter().flat_map(|class| class.taints.clone()).collect(), HeldBecause::Classes(names))
            }
            Err(UnknownPods::Denied(message) | UnknownPods::Unreadable(message)) => {
                (held.into_iter().collect(), HeldBecause::PodsUnreadable(message.clone()))
            }
            Err(UnknownPods::NotListed) | Ok(_) => return None,
        };
        Some(HeldTaints { taints, because })
    }
}

/// True if the node has the taint, or keeps another one in its place.
fn has_one(node: &NodeFields, pool: &Pool, taint: &Taint) -> bool {
    let stays = |present: &Taint| {
        let takes_its_place = pool.spec.taints == WantedTaints::Guard && guards(present);
        (present.same_identity(taint) || takes_its_place) && !pool.spec.retired_taints.contains(present)
    };
    node.taints.taints().iter().any(stays)
}

/// True if nodes may register with this taint. What is recorded stays while it cannot be known.
fn approves(pool: &Pool, consent: &PoolConsent, taint: &Taint, is_recorded: bool) -> bool {
    let spec = &pool.spec;
    if taint.effect == "PreferNoSchedule" || !spec.enforces() || spec.taint_policy == TaintPolicy::Never {
        return false;
    }
    if spec.waits_for_nobody(taint) {
        return true;
    }
    let lags = consent.lagging.iter().any(|class| class.lags(taint));
    let is_unknown = consent.is_blind || !consent.may_add;
    let objects = || consent.objectors.iter().any(|objector| objector.would_run_in(spec, taint));
    !lags && (if is_unknown { is_recorded } else { !objects() })
}
