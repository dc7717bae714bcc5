//! The state of workload checks between steps.

use std::time::Instant;

use crate::plan::{
    guarded::GuardedPool,
    pool_consent::CHECK_GOOD_FOR,
    reconcile::{POLL_INTERVAL, step::CachedCluster},
    trial::{WorkloadName, workload_name},
    workload_check::CheckAnswer,
};

use super::basis::Basis;

/// The limit of workloads that are read by name.
const ASKED: usize = 10;
/// The state of workload checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct CheckMemory {
    /// The start of the check that is in progress.
    pub(in super::super) running: Option<Instant>,
    pub(in super::super) not_before: Option<Instant>,
}

/// The newest check and its results for one pool.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct PoolCheck {
    /// The pool and classes that it was about.
    pub(in super::super) basis: Basis,
    pub(in super::super) result: Result<CheckAnswer, String>,
    pub(in super::super) started: Instant,
    pub(in super::super) ended: Instant,
    /// The time at which workloads that hold a taint are read by name.
    pub(in super::super) ask_at: Option<Instant>,
    /// True if a named workload no longer holds the taint.
    pub(in super::super) is_outdated: bool,
}

impl PoolCheck {
    pub(in super::super) fn answer(&self) -> Option<&CheckAnswer> {
        self.result.as_ref().ok()
    }

    /// The time from its start to the end of its validity, if it is still valid.
    pub(in super::super) fn validity(&self, cluster: &CachedCluster<'_>, now: Instant) -> Option<(Instant, Instant)> {
        let until = self.ended + CHECK_GOOD_FOR;
        (now < until && self.basis.stands(cluster)).then_some((self.started, until))
    }

    pub(in super::super) fn is_about(&self, pool: &GuardedPool) -> bool {
        self.basis.generation == pool.metadata.generation
    }

    pub(in super::super) fn is_due(&self, cluster: &CachedCluster<'_>, pool: &GuardedPool, now: Instant) -> bool {
        let holds = self.answer().is_some_and(|answer| !answer.held.is_empty());
        // A clean check does not cover nodes that still wait, and a failed check is repeated.
        let is_new = || !self.is_about(pool) || !self.basis.is_current(cluster);
        !holds || self.is_outdated || now >= self.ended + POLL_INTERVAL || is_new()
    }

    /// The workloads that hold a taint and are due to be read by name.
    pub(in super::super) fn to_ask(&self, now: Instant) -> Vec<WorkloadName> {
        let is_time = !self.is_outdated && self.ask_at.is_some_and(|at| now >= at);
        let holding = self.answer().into_iter().filter(|_| is_time).flat_map(|answer| answer.unschedulable.keys());
        holding.filter_map(|workload| workload_name(workload)).take(ASKED).collect()
    }
}
