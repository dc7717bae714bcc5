//! The state of the pool loop between steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{Taint, WindowsPoolStatus},
    plan::{
        guarded::{GuardedPool, read_all},
        pods::Objector,
        pool_consent::PoolConsent,
        pools::{Policy, Pool, PoolEntry, managed_taints},
        status::ever_applied,
    },
};

use super::{
    classes::memory::ClassMemory,
    deletion::memory::DeletionMemory,
    pauses::Pauses,
    retry::{RequestKind, Retry},
    step::{CachedCluster, Note, Refusal, Step},
};

/// The number of attempts to write a pool that changes between reading and writing, before the write has to wait.
const ATTEMPTS: u32 = 4;

/// The state between steps. It begins with the term of leadership.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The pause after a refused request, and the time that a deletion waits without progress.
    pub patience: Duration,
    pub(super) pauses: Pauses,
    pub(super) pools: BTreeMap<String, PoolMemory>,
    /// The last published policy.
    policy: Option<Arc<Policy>>,
    pub(super) notes: Vec<(String, Note)>,
}

/// The state of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PoolMemory {
    /// The uid of the pool, to distinguish it from a later pool with the same name.
    pub(super) uid: Option<String>,
    pub(super) generation: Option<i64>,
    /// True if the cache was seen to be up to date with the pool, in this term.
    pub(super) fresh: bool,
    /// The cached version when winpool last wrote the pool, or saw that the cache is behind.
    pub(super) old_version: Option<String>,
    /// The changes that the pool may make to nodes; `None` until its classes were planned in this term.
    pub(super) intent: Option<Intent>,
    /// The pool by which its nodes are written, if there is one.
    pub(super) published: Option<Arc<Pool>>,
    /// Taints that nodes may still get by an earlier policy, each with the earliest end of that.
    pub(super) former: BTreeMap<Taint, Instant>,
    pub(super) classes: BTreeMap<String, ClassMemory>,
    /// The uids of classes that winpool created, as status has them or will have them.
    pub(super) created: BTreeSet<String>,
    /// The requests that failed last.
    pub(super) retries: BTreeMap<RequestKind, Retry>,
    /// The last computed status.
    pub(super) reported: Option<WindowsPoolStatus>,
    /// The last written status.
    pub(super) written: Option<WindowsPoolStatus>,
    /// True if the cache has shown it. From then on the cache shows the status, and what others make of it.
    pub(super) is_shown: bool,
    pub(super) next_status: Option<Instant>,
    pub(super) deletion: DeletionMemory,
}

/// The changes that a pool may make to nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Intent {
    pub(super) consent: Arc<PoolConsent>,
    /// winpool's taints on nodes, which have to be recorded.
    pub(super) carried: Vec<Taint>,
}

impl Memory {
    pub fn new(patience: Duration, pauses: Pauses) -> Self {
        Self { patience, pauses, ..Self::default() }
    }

    /// Returns the notes since the last call, each with its pool.
    pub fn take_notes(&mut self) -> Vec<(String, Note)> {
        std::mem::take(&mut self.notes)
    }

    /// The last computed status of the pool, written or not.
    pub fn status_of(&self, pool: &str) -> Option<&WindowsPoolStatus> {
        self.pools.get(pool)?.reported.as_ref()
    }

    /// Counts nodes without deleted pools, and publishes the policy without them, if the present one has any.
    pub fn drop_gone(&mut self, cluster: &mut CachedCluster<'_>, now: Instant) -> Option<Step> {
        self.forget(cluster, now);
        cluster.nodes.count_by(self.policy(cluster.pools), now);
        self.publish(cluster, None)
    }

    pub(super) fn note(&mut self, pool: &str, note: Note) {
        self.notes.push((pool.to_owned(), note));
    }

    pub(super) fn of(&mut self, pool: &str) -> &mut PoolMemory {
        self.pools.entry(pool.to_owned()).or_default()
    }

    /// The pool with this name in the last published policy.
    pub(super) fn published(&self, pool: &str) -> Option<&Arc<Pool>> {
        self.pools.get(pool)?.published.as_ref()
    }

    /// All valid pools, with the changes that they may make to nodes. Nodes are counted by this policy.
    pub fn policy(&self, pools: &[Arc<GuardedPool>]) -> Policy {
        let (valid, invalid) = read_all(pools);
        Policy::new(valid.iter().map(|pool| PoolEntry { pool: self.intended(pool), ready: true }), invalid)
    }

    /// The pool as it will be published once its status records it.
    pub(super) fn intended(&self, pool: &Pool) -> Arc<Pool> {
        let intent = self.pools.get(&pool.spec.name).and_then(|memory| memory.intent.clone());
        let Intent { consent, carried } = intent.unwrap_or_default();
        let mut intended = Pool { consent, ..self.with_written(pool) };
        if pool.spec.enforces() {
            intended.managed_taints = ever_applied(&intended, &carried);
        } else {
            // A dry run records no taints.
            intended.managed_taints.extend(pool.spec.wanted_taints());
        }
        Arc::new(intended)
    }

    /// The pool with the taints in the last written status. The cache may not show it yet, or others may have removed them.
    pub(super) fn with_written(&self, pool: &Pool) -> Pool {
        let written = self.pools.get(&pool.spec.name).and_then(|memory| memory.written.as_ref());
        let mut pool = pool.clone();
        for taint in managed_taints(written) {
            if !pool.managed_taints.contains(&taint) {
                pool.managed_taints.push(taint);
            }
        }
        pool
    }

    /// Forgets deleted pools, the state of an earlier pool with the same name, and the API server's answers about
    /// classes that are newer in the cache.
    pub(super) fn forget(&mut self, cluster: &CachedCluster<'_>, now: Instant) {
        self.pools.retain(|name, memory| {
            cluster.pools.iter().any(|pool| pool.name_any() == *name && pool.uid() == memory.uid)
        });
        for (name, class) in self.pools.values_mut().flat_map(|memory| &mut memory.classes) {
            class.forget_answer(cluster.cached_version(name).as_deref(), now);
        }
    }

    /// Remembers the taints of every published policy until no node patch by it is in flight, and a moment longer,
    /// because the cache shows the node later. Until then the pool's classes keep their tolerations.
    pub(super) fn keep_former_taints(&mut self, cluster: &CachedCluster<'_>, pool: &str, now: Instant) {
        let until = now + self.pauses.classes;
        let memory = self.of(pool);
        memory.former.extend(memory.published_taints().into_iter().map(|taint| (taint, until)));
        memory.former.retain(|_, until| !cluster.nodes.is_settled() || now < *until);
    }

    /// The time at which the tolerations of a taint that is no longer published may be removed.
    pub(super) fn former_taints_due(&self, pool: &str) -> Option<Instant> {
        let memory = self.pools.get(pool)?;
        let published = memory.published_taints();
        memory.former.iter().filter(|(taint, _)| !published.contains(taint)).map(|(_, until)| *until).min()
    }

    /// Publishes at once what keeps the pool from adding taints: a kind that cannot be read, and `DaemonSets` that came or are
    /// not known any more. What lets it add more waits for its classes and its status.
    pub(super) fn hold_back(&mut self, cluster: &CachedCluster<'_>, pool: &str, now: Instant) -> Option<Step> {
        let published = self.published(pool)?;
        let before = &published.consent;
        let is_blind = before.is_blind || !cluster.unreadable(now).is_empty();
        let may_add = before.may_add && cluster.may_add_taints();
        // At rest both are the same list.
        let known = cluster.objectors().ok().filter(|known| !Arc::ptr_eq(known, &before.objectors));
        let came = known.into_iter().flat_map(|known| known.iter()).filter(|set| !before.objectors.contains(set));
        let came: Vec<Objector> = came.cloned().collect();
        if (is_blind, may_add) == (before.is_blind, before.may_add) && came.is_empty() {
            return None;
        }
        let mut consent = PoolConsent { may_add, is_blind, ..PoolConsent::clone(before) };
        if !came.is_empty() {
            Arc::make_mut(&mut consent.objectors).extend(came);
        }
        let held = Pool { consent: consent.into(), ..Pool::clone(published) };
        self.publish(cluster, Some(Arc::new(held)))
    }

    /// The classes in the cache, or in a newer answer of the API server.
    pub(super) fn classes(&self, cluster: &CachedCluster<'_>, pool: &str) -> Vec<Arc<RuntimeClass>> {
        let mut classes: BTreeMap<String, Arc<RuntimeClass>> =
            cluster.classes.iter().map(|class| (class.name_any(), Arc::clone(class))).collect();
        for (name, memory) in self.pools.get(pool).into_iter().flat_map(|memory| &memory.classes) {
            match memory.answer.as_ref().map(|answer| &answer.class) {
                Some(Some(class)) => drop(classes.insert(name.clone(), Arc::clone(class))),
                Some(None) => drop(classes.remove(name)),
                None => {}
            }
        }
        classes.into_values().collect()
    }

    /// The policy after `ready`, if given, is published. Valid pools that were never ready keep the nodes that they
    /// select; those that are not valid keep what they have.
    pub(super) fn publish(&mut self, cluster: &CachedCluster<'_>, ready: Option<Arc<Pool>>) -> Option<Step> {
        if let Some(pool) = ready {
            self.of(&pool.spec.name).published = Some(Arc::clone(&pool));
        }
        let (valid, invalid) = read_all(cluster.pools);
        let entries = valid.iter().map(|pool| match self.published(&pool.spec.name) {
            Some(published) => PoolEntry { pool: Arc::clone(published), ready: true },
            None => PoolEntry { pool: Arc::clone(pool), ready: false },
        });
        let policy = Policy::new(entries, invalid);
        if self.policy.as_deref() == Some(&policy) {
            return None;
        }
        let policy = Arc::new(policy);
        self.policy = Some(Arc::clone(&policy));
        Some(Step::Publish(policy))
    }
}

impl PoolMemory {
    /// The taints that nodes may get by the published policy.
    fn published_taints(&self) -> Vec<Taint> {
        let published = self.published.as_ref().filter(|published| published.spec.enforces());
        published.map(|published| published.applicable_taints()).unwrap_or_default()
    }

    /// The last written status, if the cache does not show it yet.
    pub(super) fn unseen_status(&self) -> Option<&WindowsPoolStatus> {
        self.written.as_ref().filter(|_| !self.is_shown)
    }

    /// True while a kind cannot be read.
    pub(super) fn is_blind(&self) -> bool {
        self.intent.as_ref().is_some_and(|intent| intent.consent.is_blind)
    }

    pub(super) fn class(&mut self, name: &str) -> &mut ClassMemory {
        self.classes.entry(name.to_owned()).or_default()
    }

    /// Records a request that was not accepted.
    pub(super) fn failed(&mut self, request: RequestKind, refusal: &Refusal, patience: Duration, now: Instant) {
        let failures = self.retries.get(&request).map_or(1, |retry| retry.failures + 1);
        // At first the cache is behind, and the pool's own event follows.
        let is_late = request.writes() && matches!(refusal, Refusal::Conflict | Refusal::Gone);
        let counted = if is_late { failures.saturating_sub(ATTEMPTS) } else { failures };
        let until = if counted == 0 { now } else { now + refusal.pause(counted, patience) };
        self.retries.insert(request, Retry { failures, until, refusal: refusal.clone() });
    }

    /// The reason why a request may not be sent now.
    pub(super) fn retry(&self, request: RequestKind, now: Instant) -> Option<&Retry> {
        self.retries.get(&request).filter(|retry| now < retry.until)
    }

    /// Reads the pool if the cache may be stale: a former leader may have just ended the pool or recorded taints.
    /// Later in a term no other process does.
    pub(super) fn read_when_stale(&mut self, guarded: &GuardedPool, now: Instant) -> Option<Step> {
        if self.fresh {
            return None;
        }
        let (uid, version) = (guarded.uid(), guarded.resource_version());
        // A new version is a reason to try at once.
        let is_new = self.old_version.is_some() && self.old_version != version;
        let retry = self.retry(RequestKind::Read, now).filter(|_| !is_new);
        Some(retry.map_or(Step::ReadPool { uid, version }, |retry| Step::Wait(Some(retry.until))))
    }
}
