//! The state of workload checks between steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use kube::ResourceExt;

use crate::{
    api::names,
    plan::{
        guarded::GuardedPool,
        pool_consent::CHECK_GOOD_FOR,
        pools::Pool,
        reconcile::{POLL_INTERVAL, step::CachedCluster},
        runtime_class::owner,
        workload_check::{CheckAnswer, WorkloadName, workload_name},
    },
    pod::Class,
};

/// The limit of workloads that are read by name.
const ASKED: usize = 10;
/// The state of workload checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct CheckMemory {
    /// The start of the check that is in progress.
    pub(in super::super) running: Option<Instant>,
    pub(in super::super) not_before: Option<Instant>,
}

/// The pool and the RuntimeClasses that a check has read: if they changed, its result is void.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Basis {
    pub(super) generation: Option<i64>,
    /// The labels of all nodes of the pool.
    selector: BTreeMap<String, String>,
    /// The classes that concern the pool, and the names of the others.
    concerning: BTreeMap<String, Class>,
    others: BTreeSet<String>,
    /// The names of the pool's own classes.
    own: BTreeSet<String>,
    /// The classes that the pods and templates use which the check has read; `None` while it is in progress.
    used: Option<Arc<BTreeSet<String>>>,
}

impl Basis {
    pub(super) fn new(generation: Option<i64>, pool: &Pool, cluster: &CachedCluster<'_>) -> Self {
        let mut selector = pool.spec.node_selector.clone();
        selector.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
        let mut basis = Self { generation, selector, ..Self::default() };
        basis.concerning = basis.concerning_in(cluster);
        let all = cluster.classes.iter().map(|class| class.name_any());
        basis.others = all.filter(|name| !basis.concerning.contains_key(name)).collect();
        let own = cluster.classes.iter().filter(|class| owner(class) == Some(&pool.spec.name));
        basis.own = own.map(|class| class.name_any()).collect();
        basis
    }

    /// Records the classes that the pods and templates use which the check has read.
    pub(super) fn depends_on(&mut self, used: &Arc<BTreeSet<String>>) {
        self.used = Some(Arc::clone(used));
    }

    /// True if a change of this class voids the result. A pod may have been created just before a class of the pool got its
    /// tolerations.
    fn matters(&self, class: &String) -> bool {
        self.own.contains(class) || self.used.as_ref().is_none_or(|used| used.contains(class))
    }

    /// The present classes whose pods may be scheduled to nodes of the pool. The API server adds the selector of a class to
    /// each of its pods, or refuses the pod, so no pod of another class can lose a node by a taint of the pool.
    fn concerning_in(&self, cluster: &CachedCluster<'_>) -> BTreeMap<String, Class> {
        let fits = |(key, value): (&String, &String)| self.selector.get(key).is_none_or(|of_pool| of_pool == value);
        let classes = cluster.classes.iter().map(|class| (class.name_any(), Class::from(class.as_ref())));
        classes.filter(|(_, class)| class.selector.iter().all(fits)).collect()
    }

    /// True if all classes that concern the pool and matter are unchanged. New ones may have come.
    pub(in super::super) fn stands(&self, cluster: &CachedCluster<'_>) -> bool {
        let present = self.concerning_in(cluster);
        let is_unchanged = |name: &String, class: &Class| present.get(name) == Some(class);
        self.concerning.iter().all(|(name, class)| is_unchanged(name, class) || !self.matters(name))
            && !present.keys().any(|name| self.others.contains(name) && self.matters(name))
    }

    /// True if all classes that concern the pool are unchanged, and none has come.
    pub(super) fn is_current(&self, cluster: &CachedCluster<'_>) -> bool {
        self.concerning == self.concerning_in(cluster)
    }
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
