//! The checks at pods that are not scheduled, while a taint of any pool is on trial.

pub(super) mod memory;

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use kube::ResourceExt;

use crate::{
    plan::{
        node::NodeFields,
        now::{Now, whole_seconds},
        pool_consent::PoolConsent,
        pools::{Policy, Pool},
        status::{HeldBecause, HeldTaints},
        trial::{TrialState, workload_name},
        trial_check::{Objection, OnTrial, Paused, TrialCheck, TrialCheckResult, TrialCheckScope},
    },
    pod::Class,
};

use super::{
    memory::Memory,
    step::{CachedCluster, Note},
};

use memory::TrialCheckMemory;

/// The pause after a check, as a multiple of its duration.
const PAUSE_TIMES: u32 = 20;

impl Memory {
    /// Returns the check that is due, if any. The caller carries it out and reports its end to [`Self::trial_checked`]. One check
    /// serves all pools.
    pub fn start_trial_check(&mut self, cluster: &CachedCluster<'_>, now: Now) -> Option<TrialCheck> {
        if self.trial_check.running.is_some() {
            return None;
        }
        let policy = self.policy(cluster.pools);
        let (trials, paused) = (on_trial(&policy), paused(&policy, now));
        self.trial_check.is_needed = !trials.is_empty() || !paused.is_empty();
        if !self.trial_check.is_needed {
            self.trial_check = TrialCheckMemory::default();
            return None;
        }
        if self.trial_check.not_before.is_some_and(|not_before| now.instant < not_before) {
            return None;
        }
        self.trial_check.running = Some(now);
        // Of a node that contradicts itself only the labels and taints are known.
        let can_help = |node: &NodeFields| node.serves() && !node.contradicts_itself();
        let nodes = cluster.nodes.objects().filter(|object| !trials.is_empty() && can_help(&object.node));
        let nodes = nodes.cloned().collect();
        let classes = cluster.classes.iter().map(|class| (class.name_any(), Class::from(class.as_ref()))).collect();
        let ripe = now.instant.checked_sub(self.pauses.trial_checks).unwrap_or(now.instant);
        let scope = TrialCheckScope { trials, paused, nodes, policy, classes, started: now.instant, ripe };
        Some(TrialCheck::start(scope, self.trial_check.suspects.clone()))
    }

    /// The time at which the next check is due.
    pub fn trial_check_due(&self) -> Option<Instant> {
        self.trial_check.not_before.filter(|_| self.trial_check.is_needed && self.trial_check.running.is_none())
    }

    /// Records the result of a check, or the error because of which it could not be completed.
    pub fn trial_checked(&mut self, cluster: &CachedCluster<'_>, result: Result<TrialCheckResult, String>, now: Now) {
        let started = self.trial_check.running.take().unwrap_or(now);
        // A check that failed mostly waited for an answer.
        let times = if result.is_ok() { PAUSE_TIMES } else { 1 };
        let pause = now.instant.duration_since(started.instant) * times;
        self.trial_check.not_before = Some(now.instant + self.pauses.trial_checks.max(pause));
        let TrialCheckResult { suspects, objections, quiet, settled } = match result {
            Ok(result) => result,
            Err(error) => return self.trial_check.failed(&error, now.instant),
        };
        self.trial_check.failure = None;
        self.trial_check.suspects = suspects;
        let is_blind = !cluster.unreadable(now.instant).is_empty();
        // Two checks end a trial, because one may have seen nodes as they were before they got the taint.
        let is_over = |trial: &OnTrial| !is_blind && trial.until <= started.time;
        let quiet: Vec<OnTrial> = quiet.into_iter().filter(is_over).collect();
        let before = std::mem::replace(&mut self.trial_check.quiet, quiet.clone());
        for trial in quiet.iter().filter(|trial| before.contains(trial)) {
            self.change(trial, |consent| consent.trials.retain(|known| known.taint != trial.taint));
        }
        for objection in objections {
            self.object(objection, now);
        }
        for Paused { pool, taint, .. } in settled {
            let Some(intent) = self.pools.get_mut(&pool).and_then(|memory| memory.intent.as_mut()) else { continue };
            let trials = Arc::make_mut(&mut intent.consent).trials.iter_mut();
            trials.filter(|trial| trial.taint == taint).for_each(|trial| trial.end_pause(whole_seconds(now.time)));
        }
    }

    /// Replaces the approval of the taint by a hold.
    fn object(&mut self, Objection { against, workload, nodes }: Objection, now: Now) {
        let first_pause = self.pauses.retry;
        let mut pause = None;
        self.change(&against, |consent| {
            consent.approved.retain(|approval| approval.taint != against.taint);
            consent.clean_check.nodes.remove(&against.taint);
            let trial = consent.trials.iter_mut().find(|trial| trial.taint == against.taint);
            pause = trial.map(|trial| trial.fail(workload.clone(), nodes, whole_seconds(now.time), first_pause));
        });
        if let Some(pause) = pause {
            // The next attempt needs another check. One that is in progress began too early.
            let memory = self.of(&against.pool);
            (memory.check, memory.check_basis) = (None, None);
            self.note(&against.pool, Note::TaintObjected { taint: against.taint, workload, pause });
        }
    }

    /// Changes what the pool may do to nodes, if the taint is still on this trial.
    fn change(&mut self, trial: &OnTrial, change: impl FnOnce(&mut PoolConsent)) {
        let Some(intent) = self.pools.get_mut(&trial.pool).and_then(|memory| memory.intent.as_mut()) else { return };
        let known = intent.consent.trial(&trial.taint);
        if known.is_some_and(|known| known.since == trial.since && !known.is_held()) {
            change(Arc::make_mut(&mut intent.consent));
        }
    }

    /// The reason why winpool has not seen for a while which pods wait because of a taint of the pool on trial.
    pub(super) fn unseen_trial(&self, pool: &Pool, now: Instant) -> Option<String> {
        let consent = &self.pools.get(&pool.spec.name)?.intent.as_ref()?.consent;
        let is_tried = pool.spec.enforces() && consent.trials.iter().any(|trial| !trial.is_held());
        self.trial_check.unseen(now).filter(|_| is_tried).map(str::to_owned)
    }

    /// The taints that a trial which failed keeps off nodes.
    pub(super) fn held_by_a_trial(&self, pool: &Pool, now: Now) -> Option<HeldTaints> {
        let consent = &self.pools.get(&pool.spec.name)?.intent.as_ref()?.consent;
        let held: Vec<_> = consent.trials.iter().filter(|trial| trial.is_held()).collect();
        let taints: BTreeSet<_> = held.iter().map(|trial| trial.taint.clone()).collect();
        let workloads = held.iter().filter_map(|trial| trial.workload.clone()).collect();
        let retry_at = held.iter().filter_map(|trial| trial.pause(now.time)).min();
        (!taints.is_empty()).then_some(HeldTaints { taints, because: HeldBecause::Objected(workloads, retry_at) })
    }
}

/// The taints on trial, of pools that enforce.
fn on_trial(policy: &Policy) -> Vec<OnTrial> {
    let pools = policy.pools().filter(|pool| pool.spec.enforces());
    let trials = pools.flat_map(|pool| {
        pool.consent.trials.iter().filter_map(|trial| match trial.state {
            TrialState::Held { .. } => None,
            TrialState::Until(until) => {
                Some(OnTrial { pool: pool.spec.name.clone(), taint: trial.taint.clone(), since: trial.since, until })
            }
        })
    });
    trials.collect()
}

/// The taints whose pause ends when their workload is right.
fn paused(policy: &Policy, now: Now) -> Vec<Paused> {
    let pools = policy.pools().filter(|pool| pool.spec.enforces());
    let paused = pools.flat_map(|pool| {
        pool.consent.trials.iter().filter_map(|trial| {
            trial.pause(now.time)?;
            let workload = workload_name(trial.workload.as_deref()?)?;
            Some(Paused { pool: pool.spec.name.clone(), taint: trial.taint.clone(), workload })
        })
    });
    paused.collect()
}
