//! The state of the pool loop between steps.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{api::node::v1::RuntimeClass, jiff::Timestamp};
use kube::ResourceExt;

use crate::{
    api::{ObjectReference, Problem, Taint, WindowsPoolStatus, names::reason},
    plan::{
        classes::steps::ClassMemory,
        pods::table::PodPauses,
        pools::{
            deletion::DeletionMemory,
            pool::{GuardedPool, Policy, Pool, PoolEntry, managed_taints, read_all},
            status::ever_applied,
        },
        reconcile::step::{CachedCluster, Note, Step},
        refusal::Refusal,
        taints::{PoolConsent, daemon_sets::Objector},
    },
};

/// The number of attempts to write a pool that changes between reading and writing, before the write has to wait.
const ATTEMPTS: u32 = 4;

/// The state between steps. It begins with the term of leadership.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The pause after a refused request, and the time that a deletion waits without progress.
    pub patience: Duration,
    /// True while winpool is being uninstalled: what the API server refuses stays, because nobody can wait for it.
    pub is_uninstalled: bool,
    pub(crate) pauses: Pauses,
    pub(crate) pools: BTreeMap<String, PoolMemory>,
    /// The last published policy.
    policy: Option<Arc<Policy>>,
    pub(crate) notes: Vec<(String, Note)>,
}

/// The state of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PoolMemory {
    /// The uid of the pool, to distinguish it from a later pool with the same name.
    pub(crate) uid: Option<String>,
    pub(crate) generation: Option<i64>,
    /// True if the cache was seen to be up to date with the pool, in this term.
    pub(crate) fresh: bool,
    /// The cached version when winpool last wrote the pool, or saw that the cache is behind.
    pub(crate) old_version: Option<String>,
    /// The changes that the pool may make to nodes; `None` until its classes were planned in this term.
    pub(crate) intent: Option<Intent>,
    /// The pool by which its nodes are written, if there is one.
    pub(crate) published: Option<Arc<Pool>>,
    /// Taints that nodes may still get by an earlier policy, each with the earliest end of that.
    pub(crate) former: BTreeMap<Taint, Instant>,
    pub(crate) classes: BTreeMap<String, ClassMemory>,
    /// The uids of classes that winpool created, as status has them or will have them.
    pub(crate) created: BTreeSet<String>,
    /// The requests that failed last.
    pub(crate) retries: BTreeMap<RequestKind, Retry>,
    /// The last computed status.
    pub(crate) reported: Option<WindowsPoolStatus>,
    /// The last written status.
    pub(crate) written: Option<WindowsPoolStatus>,
    /// True if the cache has shown it. From then on the cache shows the status, and what others make of it.
    pub(crate) is_shown: bool,
    /// The cached version when the status was last written, or when the cache last showed another one instead.
    pub(crate) written_over: Option<String>,
    /// The version that winpool's last write of the status made.
    pub(crate) written_version: Option<String>,
    pub(crate) next_status: Option<Instant>,
    pub(crate) deletion: DeletionMemory,
}

/// The changes that a pool may make to nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Intent {
    pub(crate) consent: Arc<PoolConsent>,
    /// winpool's taints on nodes, which have to be recorded.
    pub(crate) carried: Vec<Taint>,
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

    pub(crate) fn note(&mut self, pool: &str, note: Note) {
        self.notes.push((pool.to_owned(), note));
    }

    pub(crate) fn of(&mut self, pool: &str) -> &mut PoolMemory {
        self.pools.entry(pool.to_owned()).or_default()
    }

    /// The pool with this name in the last published policy.
    pub(crate) fn published(&self, pool: &str) -> Option<&Arc<Pool>> {
        self.pools.get(pool)?.published.as_ref()
    }

    /// All valid pools, with the changes that they may make to nodes. Nodes are counted by this policy.
    pub fn policy(&self, pools: &[Arc<GuardedPool>]) -> Policy {
        let (valid, invalid) = read_all(pools);
        Policy::new(valid.iter().map(|pool| PoolEntry { pool: self.intended(pool), ready: true }), invalid)
    }

    /// The pool as it will be published once its status records it.
    pub(crate) fn intended(&self, pool: &Pool) -> Arc<Pool> {
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
    pub(crate) fn with_written(&self, pool: &Pool) -> Pool {
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
    pub(crate) fn forget(&mut self, cluster: &CachedCluster<'_>, now: Instant) {
        self.pools.retain(|name, memory| {
            cluster.pools.iter().any(|pool| pool.name_any() == *name && pool.uid() == memory.uid)
        });
        for (name, class) in self.pools.values_mut().flat_map(|memory| &mut memory.classes) {
            class.forget_answer(cluster.cached_version(name).as_deref(), now);
        }
    }

    /// Remembers the taints of every published policy until no node patch by it is in flight, and a moment longer,
    /// because the cache shows the node later. Until then the pool's classes keep their tolerations.
    pub(crate) fn keep_former_taints(&mut self, cluster: &CachedCluster<'_>, pool: &str, now: Instant) {
        let until = now + self.pauses.classes;
        let memory = self.of(pool);
        memory.former.extend(memory.published_taints().into_iter().map(|taint| (taint, until)));
        memory.former.retain(|_, until| !cluster.nodes.is_settled() || now < *until);
    }

    /// The time at which the tolerations of a taint that is no longer published may be removed.
    pub(crate) fn former_taints_due(&self, pool: &str) -> Option<Instant> {
        let memory = self.pools.get(pool)?;
        let published = memory.published_taints();
        memory.former.iter().filter(|(taint, _)| !published.contains(taint)).map(|(_, until)| *until).min()
    }

    /// Publishes at once what keeps the pool from adding taints: a kind that cannot be read, and `DaemonSets` that came or are
    /// not known any more. What lets it add more waits for its classes and its status.
    pub(crate) fn hold_back(&mut self, cluster: &CachedCluster<'_>, pool: &str, now: Instant) -> Option<Step> {
        let published = self.published(pool)?;
        let before = &published.consent;
        let cannot_read = before.cannot_read || !cluster.unreadable(now).is_empty();
        let may_add = before.may_add && cluster.may_add_taints();
        // At rest both are the same list.
        let known = cluster.objectors().ok().filter(|known| !Arc::ptr_eq(known, &before.objectors));
        let came = known.into_iter().flat_map(|known| known.iter()).filter(|set| !before.objectors.contains(set));
        let came: Vec<Objector> = came.cloned().collect();
        if (cannot_read, may_add) == (before.cannot_read, before.may_add) && came.is_empty() {
            return None;
        }
        let mut consent = PoolConsent { may_add, cannot_read, ..PoolConsent::clone(before) };
        if !came.is_empty() {
            Arc::make_mut(&mut consent.objectors).extend(came);
        }
        let held = Pool { consent: consent.into(), ..Pool::clone(published) };
        self.publish(cluster, Some(Arc::new(held)))
    }

    /// The classes in the cache, or in a newer answer of the API server.
    pub(crate) fn classes(&self, cluster: &CachedCluster<'_>, pool: &str) -> Vec<Arc<RuntimeClass>> {
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
    pub(crate) fn publish(&mut self, cluster: &CachedCluster<'_>, ready: Option<Arc<Pool>>) -> Option<Step> {
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
    pub(crate) fn unseen_status(&self) -> Option<&WindowsPoolStatus> {
        self.written.as_ref().filter(|_| !self.is_shown)
    }

    /// Notes what the cache shows of the last written status. Another version with another status is older or newer than the
    /// write: the API server has to say if the cache is up to date. A watch from before an update of the
    /// CustomResourceDefinition may show winpool's own write without new fields.
    pub(crate) fn compare_written(&mut self, cached: &GuardedPool) {
        self.is_shown |= self.written.is_some() && self.written == cached.status;
        let version = cached.resource_version();
        let is_other = version != self.written_over && version != self.written_version;
        if self.unseen_status().is_some() && is_other {
            (self.fresh, self.written_over) = (false, version);
        }
    }

    /// True while winpool cannot read a kind.
    pub(crate) fn cannot_read(&self) -> bool {
        self.intent.as_ref().is_some_and(|intent| intent.consent.cannot_read)
    }

    pub(crate) fn class(&mut self, name: &str) -> &mut ClassMemory {
        self.classes.entry(name.to_owned()).or_default()
    }

    /// Records a request that was not accepted.
    pub(crate) fn failed(&mut self, request: RequestKind, refusal: &Refusal, patience: Duration, now: Instant) {
        let failures = self.retries.get(&request).map_or(1, |retry| retry.failures + 1);
        // At first the cache is behind, and the pool's own event follows.
        let is_late = request.writes() && refusal.is_late();
        let counted = if is_late { failures.saturating_sub(ATTEMPTS) } else { failures };
        let until = if counted == 0 { now } else { now + refusal.pause(counted, patience) };
        self.retries.insert(request, Retry { failures, until, refusal: refusal.clone() });
    }

    /// The reason why a request may not be sent now.
    pub(crate) fn retry(&self, request: RequestKind, now: Instant) -> Option<&Retry> {
        self.retries.get(&request).filter(|retry| now < retry.until)
    }

    /// Reads the pool if the cache may be stale: a former leader may have just ended the pool or recorded taints.
    /// Later in a term no other process does.
    pub(crate) fn read_when_stale(&mut self, guarded: &GuardedPool, now: Instant) -> Option<Step> {
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

// Requests that failed.

/// A kind of request for a pool that is retried after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestKind {
    Read,
    Finalizer,
    Nodes,
    Status,
}

impl RequestKind {
    pub(crate) fn of(step: &Step) -> Option<Self> {
        match step {
            Step::ReadPool { .. } => Some(Self::Read),
            Step::SetFinalizer(_) => Some(Self::Finalizer),
            Step::ListLabelledNodes => Some(Self::Nodes),
            Step::WriteStatus { .. } => Some(Self::Status),
            Step::Class(_) | Step::Publish(_) | Step::Wait(_) => None,
        }
    }

    /// True if it writes the pool.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Finalizer | Self::Status)
    }
}

/// A request that failed, with the time of the next attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Retry {
    /// The number of failures in a row.
    pub(crate) failures: u32,
    pub(crate) until: Instant,
    pub(crate) refusal: Refusal,
}

/// The problem for a write that failed and is retried.
pub(crate) fn write_failed(object: ObjectReference, message: &str) -> Problem {
    let message = format!("the API server did not accept the change, winpool tries again: {message}");
    Problem::new(reason::WRITE_FAILED, object, message)
}

// Kinds that cannot be read at present. What the caches show of them may be old.

/// The time for which reads have to fail before they count. A restart of the API server is shorter.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same if no further attempt ends.
const PATIENCE_WITHOUT_ANSWER: Duration = Duration::from_mins(1);

/// Failures in a row of the lists and watches of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    since: Instant,
    last: Instant,
    /// The first of the last refusals in a row for lack of a permission.
    forbidden_since: Option<Instant>,
    /// The API server's message, or the error.
    message: String,
}

impl Outage {
    /// The outage after another failure; `before` is the outage so far.
    pub fn next(before: Option<&Self>, is_forbidden: bool, message: String, now: Instant) -> Self {
        let forbidden_since = before.and_then(|before| before.forbidden_since).unwrap_or(now);
        Self {
            since: before.map_or(now, |before| before.since),
            last: now,
            forbidden_since: is_forbidden.then_some(forbidden_since),
            message,
        }
    }

    /// True if the failures have lasted so long that status says so and no taint is added. An attempt that failed late
    /// proves it: after a short outage the next attempt may still be waiting for its turn.
    pub fn counts(&self, now: Instant) -> bool {
        self.last.duration_since(self.since) >= PATIENCE || now.duration_since(self.since) >= PATIENCE_WITHOUT_ANSWER
    }

    /// True if winpool has lacked a permission for so long. API servers that start refuse for a moment what they allow.
    pub fn is_forbidden(&self) -> bool {
        self.forbidden_since.is_some_and(|since| self.last.duration_since(since) >= PATIENCE)
    }

    pub fn message(&self) -> &str {
        &self.message
    }
}

/// The pause between reads of what cannot be watched: facts about the control plane.
pub const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// The pause between status writes, unless one records a taint.
pub(crate) const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before winpool reads a pool again that the cache shows in an old version.
pub(crate) const CACHE_BEHIND: Duration = Duration::from_secs(1);

/// Pauses that may be shorter where one API server serves everything, as in tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pauses {
    /// The time that nodes wait after the tolerations of an existing class were changed. Admission reads
    /// RuntimeClasses from a cache and writes their tolerations into each new pod.
    pub classes: Duration,
    /// Those of the table of pods.
    pub pods: PodPauses,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { classes: Duration::from_secs(5), pods: PodPauses::default() }
    }
}

// Write conflicts: distinguishes a repair from another writer that keeps reverting winpool's changes.

/// This many writes of the same change within [`WINDOW`] are a conflict.
const WRITES: usize = 3;
const WINDOW: Duration = Duration::from_mins(10);
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
const LONGEST_BACK_OFF: Duration = Duration::from_mins(10);

/// The accepted writes of one change to one object, with their times.
#[derive(Clone, Default, PartialEq)]
pub struct WriteConflict<T> {
    what: Option<T>,
    writes: VecDeque<Instant>,
    pause: Duration,
}

/// Shows only what decides: the end of a pause, and not the times of the writes before.
impl<T: fmt::Debug> fmt::Debug for WriteConflict<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let until = self.writes.back().filter(|_| self.writes.len() >= WRITES).map(|last| *last + self.pause);
        let mut conflict = f.debug_struct("WriteConflict");
        conflict.field("what", &self.what).field("writes", &self.writes.len()).field("until", &until).finish()
    }
}

impl<T: Default + PartialEq> WriteConflict<T> {
    /// Records that `what` was written, again or instead of another change.
    pub fn written(&mut self, what: T, now: Instant) {
        if self.what.as_ref() != Some(&what) {
            *self = Self { what: Some(what), ..Self::default() };
        }
        let was_conflict = self.is_conflict();
        self.writes.push_back(now);
        while self.writes.front().is_some_and(|write| now.duration_since(*write) > WINDOW + self.pause) {
            self.writes.pop_front();
        }
        self.pause = match (self.is_conflict(), was_conflict) {
            (false, _) => Duration::ZERO,
            (true, false) => FIRST_BACK_OFF,
            (true, true) => LONGEST_BACK_OFF.min(self.pause * 2),
        };
    }

    /// True if the last write may still count.
    pub fn is_recent(&self, now: Instant) -> bool {
        self.writes.back().is_some_and(|last| now.duration_since(*last) <= WINDOW + self.pause)
    }

    fn is_conflict(&self) -> bool {
        self.writes.len() >= WRITES
    }

    /// The pause before `what` is written again, if another writer keeps reverting it.
    pub fn pause(&self, what: &T, now: Instant) -> Option<Duration> {
        let last = self.writes.back()?;
        let wait = (*last + self.pause).saturating_duration_since(now);
        (self.what.as_ref() == Some(what) && self.is_conflict() && !wait.is_zero()).then_some(wait)
    }
}

/// The present moment, for pauses and for timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// On the monotonic clock.
    pub instant: Instant,
    /// On the wall clock.
    pub time: Timestamp,
}

/// The API stores whole seconds.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_a_version_that_is_neither_old_nor_of_the_write_itself_is_a_reason_to_ask() {
        let written = json!({"summary": {"builds": "10.0.20348"}});
        for (version, status, is_unseen, is_fresh) in [
            ("1", json!({}), true, true),
            ("3", written.clone(), false, true),
            // The watch is older than the field.
            ("3", json!({}), true, true),
            ("2", json!({}), true, false),
            ("4", json!({}), true, false),
        ] {
            let object = json!({"metadata": {"name": "a", "resourceVersion": version}, "spec": {}, "status": status});
            let mut memory = PoolMemory {
                fresh: true,
                written: serde_json::from_value(written.clone()).unwrap(),
                written_over: Some("1".to_owned()),
                written_version: Some("3".to_owned()),
                ..PoolMemory::default()
            };
            memory.compare_written(&serde_json::from_value(object).unwrap());
            assert_eq!((memory.unseen_status().is_some(), memory.fresh), (is_unseen, is_fresh), "{version} {status}");
        }
    }

    #[test]
    fn three_writes_within_ten_minutes_are_a_conflict_and_pauses_grow() {
        let start = Instant::now();
        let mut conflict = WriteConflict::default();
        conflict.written("taint", start);
        assert_eq!(conflict.pause(&"taint", start), None);
        conflict.written("taint", start + SECOND);
        assert_eq!(conflict.pause(&"taint", start + SECOND), None);
        let mut now = start + 2 * SECOND;
        conflict.written("taint", now);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            let pause = conflict.pause(&"taint", now).unwrap();
            pauses.push(pause.as_secs());
            assert_eq!(conflict.pause(&"label", now), None, "another change does not count");
            now += pause;
            assert_eq!(conflict.pause(&"taint", now), None);
            conflict.written("taint", now);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
    }

    #[test]
    fn repairs_that_are_far_apart_or_of_different_things_are_no_conflict() {
        let start = Instant::now();
        let mut conflict = WriteConflict::default();
        for number in 0..20 {
            let now = start + number * Duration::from_mins(6);
            conflict.written(0, now);
            assert_eq!(conflict.pause(&0, now), None, "{number}");
        }
        let mut conflict = WriteConflict::default();
        for number in 1..20 {
            conflict.written(number, start);
            assert_eq!(conflict.pause(&number, start), None, "{number}");
        }
    }
}
