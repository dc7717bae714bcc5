//! The loop of a pool, as a pure function of one step.
//!
//! [`next`] returns the next step for a pool. An interpreter executes it, passes the answer to [`Memory::answer`], and
//! calls [`next`] again. There are three interpreters: the operator, `winpool plan`, and the model in the tests. None
//! of them decides anything.
//!
//! The order is: the pool's classes, each independently; then the status that records what may be added to nodes; and
//! then the [`Policy`] that nodes are assessed by. A failed write does not end the round: everything that does not depend on it
//! continues.

pub(crate) mod classes;
pub mod conditions;
mod deletion;
mod status;
pub(crate) mod step;
pub mod taints;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::api::names::{self, reason};
use crate::api::{ObjectReference, Problem, Taint, WindowsPoolStatus};
use crate::plan::attempt::{Attempt, RequestError};
use crate::plan::nodes::numbers::Tally;
use crate::plan::pods::table::{PodPauses, UnknownPods};
use crate::plan::pools::consent::PoolConsent;
use crate::plan::pools::objector::Objector;
use crate::plan::pools::pool::{GuardedPool, Policy, Pool, PoolEntry, managed_taints, read_all};
use crate::plan::reconcile::classes::ClassMemory;
use crate::plan::reconcile::conditions::ever_applied;
use crate::plan::reconcile::deletion::DeletionMemory;
use crate::plan::{Now, SHOWN};

pub use self::step::{Answer, CachedCluster, ClassRequest, ClassStep, Note, Step};

/// The pause between looks at what cannot be watched.
pub const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// The pause between status writes, unless one records a taint.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// The pause before a request is repeated because the cache is behind, unless the cache shows a change before.
const CACHE_BEHIND: Duration = Duration::from_secs(1);
/// The number of writes in a row that may come too late because the cache is behind, before the next one has to wait.
const ATTEMPTS: u32 = 4;

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

/// A pool in one step of its loop, and the facts from which the step follows.
struct Round<'a> {
    cluster: &'a CachedCluster<'a>,
    guarded: &'a GuardedPool,
    /// The pool with all taints that are known to be recorded.
    pool: Pool,
    now: Now,
}

impl Round<'_> {
    fn name(&self) -> &str {
        &self.pool.spec.name
    }

    /// The sums over the nodes of the pool.
    fn tally(&self) -> &Tally {
        self.cluster.nodes.tally(self.name())
    }

    fn class(&self, name: &str) -> Option<&Arc<RuntimeClass>> {
        self.cluster.classes.iter().find(|class| class.metadata.name.as_deref() == Some(name))
    }
}

/// Returns the next step for the pool with this name.
pub fn next(cluster: &mut CachedCluster<'_>, memory: &mut Memory, name: &str, now: Now) -> Step {
    loop {
        cluster.nodes.count_by(memory.policy(cluster.pools), now.instant);
        if let Some(step) = decide(cluster, memory, name, now) {
            return step;
        }
    }
}

/// Returns the next step for the pool; `None` if the changes that the pool may make to nodes have changed, so that nodes
/// have to be counted again first.
fn decide(cluster: &CachedCluster<'_>, memory: &mut Memory, name: &str, now: Now) -> Option<Step> {
    memory.forget(cluster);
    let Some(guarded) = cluster.pools.iter().find(|pool| pool.name_any() == name) else {
        return Some(memory.publish(cluster, None).unwrap_or(Step::Wait(None)));
    };
    let known = memory.of(name);
    if known.uid != guarded.uid() {
        *known = PoolMemory { uid: guarded.uid(), ..PoolMemory::default() };
    }
    let recorded = guarded.status.iter().flat_map(|status| &status.runtime_classes);
    known.created.extend(recorded.filter_map(|class| class.uid.clone()));
    if let Some(step) = known.await_cache(guarded, now.instant) {
        return memory.hold_back(cluster, name, now.instant).or(Some(step));
    }
    if known.generation != guarded.metadata.generation {
        // A request that was refused for another spec is sent again.
        known.generation = guarded.metadata.generation;
        known.retries.clear();
        known.classes.values_mut().for_each(ClassMemory::end_back_off);
    }
    let pool = match guarded.read() {
        Ok(pool) => memory.with_recorded(&pool),
        Err(error) => return Some(memory.stop(cluster, guarded, reason::INVALID_SPEC, &error.to_string(), now)),
    };
    let round = Round { cluster, guarded, pool, now };
    memory.forget_classes(&round);
    if round.pool.spec.deleting { Some(memory.clean_up(&round)) } else { memory.bring_up_to_date(&round) }
}

/// The state between steps. It begins with the term of leadership.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The pause after a refused request, and the time that a deletion waits without progress.
    pub patience: Duration,
    /// True while winpool is being uninstalled: what the API server refuses stays, because nobody can wait for it.
    pub is_uninstalled: bool,
    pauses: Pauses,
    pools: BTreeMap<String, PoolMemory>,
    /// The last published policy.
    policy: Option<Arc<Policy>>,
    notes: Vec<(String, Note)>,
}

/// The state of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
struct PoolMemory {
    /// The uid of the pool, to distinguish it from a later pool with the same name.
    uid: Option<String>,
    generation: Option<i64>,
    /// True if the cache was seen to be up to date with the pool, in this term.
    fresh: bool,
    /// The version that the cache showed when winpool sent its last write of the pool.
    sent: Option<String>,
    behind: Option<Behind>,
    /// The changes that the pool may make to nodes; `None` until its classes were planned in this term.
    intent: Option<Intent>,
    /// The pool by which its nodes are written, if there is one.
    published: Option<Arc<Pool>>,
    /// Taints that nodes may still get by an earlier policy, each with the earliest end of that.
    former: BTreeMap<Taint, Instant>,
    classes: BTreeMap<String, ClassMemory>,
    /// The uids of classes that winpool created, as status has them or will have them.
    created: BTreeSet<String>,
    /// The requests that failed last.
    retries: BTreeMap<RequestKind, Attempt<RequestError>>,
    /// The last computed status.
    reported: Option<WindowsPoolStatus>,
    /// The last written status, and the version of the pool with it. A watch from before an update of the
    /// CustomResourceDefinition shows that version without new fields.
    written: Option<(Option<String>, WindowsPoolStatus)>,
    next_status: Option<Instant>,
    deletion: DeletionMemory,
}

/// The version of an object that the cache is to replace by a newer one, and the time until which winpool waits for that.
#[derive(Clone, Debug, PartialEq)]
struct Behind {
    version: Option<String>,
    until: Instant,
}

impl Behind {
    /// True if the cache shows the object in another version now, or has had the time for it.
    fn is_over(&self, cached: Option<&str>, now: Instant) -> bool {
        self.version.as_deref() != cached || self.until <= now
    }
}

/// The changes that a pool may make to nodes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Intent {
    consent: Arc<PoolConsent>,
    /// winpool's taints on nodes, which have to be recorded.
    carried: Vec<Taint>,
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
        self.forget(cluster);
        cluster.nodes.count_by(self.policy(cluster.pools), now);
        self.publish(cluster, None)
    }

    fn note(&mut self, pool: &str, note: Note) {
        self.notes.push((pool.to_owned(), note));
    }

    fn of(&mut self, pool: &str) -> &mut PoolMemory {
        self.pools.entry(pool.to_owned()).or_default()
    }

    /// The pool with this name in the last published policy.
    fn published(&self, pool: &str) -> Option<&Arc<Pool>> {
        self.pools.get(pool)?.published.as_ref()
    }

    /// All valid pools, with the changes that they may make to nodes. Nodes are counted by this policy.
    pub fn policy(&self, pools: &[Arc<GuardedPool>]) -> Policy {
        let (valid, invalid) = read_all(pools);
        Policy::new(valid.iter().map(|pool| PoolEntry { pool: self.intended(pool), ready: true }), invalid)
    }

    /// The pool as it will be published once its status records it.
    fn intended(&self, pool: &Pool) -> Arc<Pool> {
        let intent = self.pools.get(&pool.spec.name).and_then(|memory| memory.intent.clone());
        let Intent { consent, carried } = intent.unwrap_or_default();
        let mut intended = Pool { consent, ..self.with_recorded(pool) };
        if pool.spec.enforces() {
            intended.managed_taints = ever_applied(&intended, &carried);
        } else {
            // A dry run records no taints.
            intended.managed_taints.extend(pool.spec.wanted_taints());
        }
        Arc::new(intended)
    }

    /// The pool with the taints that were recorded when its nodes were last written: others may have removed them since.
    fn with_recorded(&self, pool: &Pool) -> Pool {
        let mut pool = pool.clone();
        for taint in self.published(&pool.spec.name).iter().flat_map(|published| &published.managed_taints) {
            if !pool.managed_taints.contains(taint) {
                pool.managed_taints.push(taint.clone());
            }
        }
        pool
    }

    /// Forgets deleted pools, and the state of an earlier pool with the same name.
    fn forget(&mut self, cluster: &CachedCluster<'_>) {
        self.pools.retain(|name, memory| {
            cluster.pools.iter().any(|pool| pool.name_any() == *name && pool.uid() == memory.uid)
        });
    }

    /// Remembers the taints of every published policy until no node patch by it is in flight, and a moment longer,
    /// because the cache shows the node later. Until then the pool's classes keep their tolerations.
    fn keep_former_taints(&mut self, round: &Round<'_>) {
        let now = round.now.instant;
        let until = now + self.pauses.classes;
        let memory = self.of(round.name());
        memory.former.extend(memory.published_taints().into_iter().map(|taint| (taint, until)));
        memory.former.retain(|_, until| !round.cluster.nodes.is_settled() || now < *until);
    }

    /// From this time on, the pool's classes may lose the toleration of a taint that the pool no longer publishes.
    fn former_taints_due(&self, pool: &str) -> Option<Instant> {
        let memory = self.pools.get(pool)?;
        let published = memory.published_taints();
        memory.former.iter().filter(|(taint, _)| !published.contains(taint)).map(|(_, until)| *until).min()
    }

    /// Publishes at once what keeps the pool from adding taints: a kind that cannot be read, and `DaemonSets` that came or are
    /// not known any more. What lets it add more waits for its classes and its status.
    fn hold_back(&mut self, cluster: &CachedCluster<'_>, pool: &str, now: Instant) -> Option<Step> {
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

    /// The policy after `ready`, if given, is published. Valid pools that were never ready keep the nodes that they
    /// select; those that are not valid keep what they have.
    fn publish(&mut self, cluster: &CachedCluster<'_>, ready: Option<Arc<Pool>>) -> Option<Step> {
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

    /// Records the result of a step of this pool.
    pub fn answer(&mut self, pool: &str, step: &Step, answer: Answer, now: Instant) {
        let (patience, answer) = (self.patience, answer.in_effect(step));
        if let Step::Class(class) = step {
            return self.class_answered(pool, class, answer, now);
        }
        let memory = self.of(pool);
        if let Some(request) = RequestKind::of(step) {
            match &answer {
                Answer::Refused(refusal) => memory.failed(request, refusal, patience, now),
                _ => drop(memory.retries.remove(&request)),
            }
        }
        match (step, answer) {
            (Step::ReadPool { uid, version }, Answer::Pool(found)) => {
                let found = found.map(|found| (found.uid, found.resource_version)).unwrap_or_default();
                memory.fresh = found == (uid.clone(), version.clone());
                memory.behind = (!memory.fresh).then(|| Behind { version: version.clone(), until: now + CACHE_BEHIND });
                memory.deletion.answered(now);
            }
            (Step::ReadPool { .. }, Answer::Refused(refusal)) => memory.deletion.refused(&refusal, now),
            (Step::SetFinalizer(wanted), Answer::Written(_) | Answer::Refused(RequestError::Gone)) => {
                memory.behind = Some(Behind { version: memory.sent.take(), until: now + SHOWN });
                let is_done = memory.deletion.is_done;
                self.notes.extend(is_done.then(|| (pool.to_owned(), Note::CleanedUp)));
                self.note(pool, Note::FinalizerWritten(*wanted));
            }
            (Step::ListLabelledNodes, Answer::Nodes(nodes)) => memory.deletion.listed(nodes, now),
            (Step::WriteStatus { status, news, .. }, Answer::Written(after)) => {
                memory.next_status = Some(now + STATUS_INTERVAL);
                memory.behind = Some(Behind { version: memory.sent.take(), until: now + SHOWN });
                memory.written = Some((after.resource_version(), status.as_ref().clone()));
                self.notes.extend(news.iter().map(|note| (pool.to_owned(), note.clone())));
            }
            // The pool has changed since the status was computed: its own event follows.
            (Step::WriteStatus { .. }, Answer::Refused(refusal)) if refusal.is_late() => memory.fresh = false,
            // The API server validates the whole object, so an invalid spec is a possible reason.
            (Step::WriteStatus { status, .. }, Answer::Refused(RequestError::Denied(message))) => {
                let invalid = status.problems.iter().find(|problem| problem.reason == reason::INVALID_SPEC);
                // Another status than the one that was sent may be stored.
                memory.fresh = false;
                let (why, object) =
                    (invalid.map(|problem| problem.message.clone()), ObjectReference::windows_pool(pool));
                let problem = Problem::new(reason::INVALID_SPEC, object, why.unwrap_or(message));
                self.note(pool, Note::Problem(problem));
            }
            _ => {}
        }
    }

    fn set_finalizer(&mut self, guarded: &GuardedPool, wanted: bool) -> Step {
        self.of(&guarded.name_any()).sent = guarded.resource_version();
        Step::SetFinalizer(wanted)
    }

    /// Reconciles a pool that is not being deleted: its classes, its status, and then its nodes. `None` if nodes have to
    /// be counted again.
    fn bring_up_to_date(&mut self, round: &Round<'_>) -> Option<Step> {
        let (cluster, guarded, now) = (round.cluster, round.guarded, round.now);
        let (name, needs_cleanup) = (round.name(), round.pool.spec.needs_cleanup());
        let retry = self.of(name).retry(RequestKind::Finalizer, now.instant);
        if needs_cleanup && !guarded.has_finalizer() {
            let Some((refusal, until)) = retry else {
                return Some(self.set_finalizer(guarded, true));
            };
            let is_denied = matches!(refusal, RequestError::Denied(_));
            let reason = if is_denied { reason::ADMISSION_DENIED } else { reason::WRITE_FAILED };
            let (finalizer, message) = (names::CLEANUP, refusal.message());
            let message = format!("the API server refuses the finalizer {finalizer}, so nothing is done: {message}");
            return Some(self.stop(cluster, guarded, reason, &message, now).at_latest(until));
        }
        if let Some(publish) = self.hold_back(cluster, name, now.instant) {
            return Some(publish);
        }
        self.keep_former_taints(round);
        let plan = self.plan_classes(round);
        if let Some(step) = self.class_step(round, &plan) {
            return Some(step);
        }
        let intent = Some(self.intend(round, &plan));
        let memory = self.of(name);
        if memory.intent != intent {
            memory.intent = intent;
            return None;
        }
        // Nodes get a taint only after status records it, so the policy is published later.
        let status_due = match self.report(round, plan) {
            Step::Wait(until) => until,
            step => return Some(step),
        };
        let ready = (!self.awaits_pods(round)).then(|| self.publishable(round));
        if let Some(publish) = self.publish(cluster, ready) {
            return Some(publish);
        }
        // The published policy no longer makes changes that need a cleanup.
        let is_needless = guarded.has_finalizer() && !needs_cleanup && retry.is_none();
        let step = if is_needless { self.set_finalizer(guarded, false) } else { Step::Wait(None) };
        Some(step.at_latest(self.wake(name, status_due, now.instant)))
    }

    /// Stops changing the nodes of the pool, and says why in its status.
    fn stop(
        &mut self,
        cluster: &CachedCluster<'_>,
        guarded: &GuardedPool,
        reason: &'static str,
        message: &str,
        now: Now,
    ) -> Step {
        self.of(&guarded.name_any()).published = None;
        let publish = self.publish(cluster, None);
        publish.unwrap_or_else(|| self.suspend(guarded, reason, message, now))
    }

    /// True if nodes are not written yet, so that they get their labels and taints in one request: the pods are about to be
    /// listed and looked at.
    fn awaits_pods(&self, round: &Round<'_>) -> bool {
        let (cluster, pool) = (round.cluster, &round.pool);
        let Some(memory) = self.pools.get(round.name()) else { return true };
        let is_first = pool.spec.enforces() && !memory.published.as_ref().is_some_and(|pool| pool.spec.enforces());
        let are_pods_unseen = cluster.objectors() == Err(&UnknownPods::NotListed) || cluster.has_yet_to_look_for(pool);
        let cannot_read = memory.intent.as_ref().is_some_and(|intent| intent.consent.cannot_read);
        is_first && !round.tally().held.is_empty() && are_pods_unseen && !cannot_read
    }

    /// The pool as nodes may be assessed by it now: with the taints that its status records, and no others.
    fn publishable(&self, round: &Round<'_>) -> Arc<Pool> {
        let recorded = managed_taints(self.recorded_status(round.guarded));
        let mut ready = Pool::clone(&self.intended(&round.pool));
        ready.managed_taints.retain(|taint| recorded.contains(taint));
        Arc::new(ready)
    }

    /// The time at which the pool is due again, if nothing happens before.
    fn wake(&self, pool: &str, status: Option<Instant>, now: Instant) -> Option<Instant> {
        let Some(memory) = self.pools.get(pool) else { return status };
        let retries = memory.retries.values().filter_map(|attempt| Some(attempt.pause(now)?.1));
        let classes = memory.classes.values().flat_map(ClassMemory::dues);
        let former = self.former_taints_due(pool).map(|until| until.max(now + CACHE_BEHIND));
        let dues = retries.chain(former).chain(classes).chain(status).chain([now + POLL_INTERVAL]);
        dues.filter(|due| *due > now).min()
    }
}

impl PoolMemory {
    /// The taints that nodes may get by the published policy.
    fn published_taints(&self) -> Vec<Taint> {
        let published = self.published.as_ref().filter(|published| published.spec.enforces());
        published.map(|published| published.applicable_taints()).unwrap_or_default()
    }

    /// The last written status, if the cache shows the version with it.
    fn own_status(&self, guarded: &GuardedPool) -> Option<&WindowsPoolStatus> {
        self.written.as_ref().filter(|(version, _)| *version == guarded.resource_version()).map(|(_, status)| status)
    }

    /// Waits for the cache after a write of the pool. Reads the pool if the cache may be stale: a former leader may have just
    /// ended the pool or recorded taints. Later in a term no other process does.
    fn await_cache(&mut self, guarded: &GuardedPool, now: Instant) -> Option<Step> {
        let (uid, version) = (guarded.uid(), guarded.resource_version());
        self.behind.take_if(|behind| behind.is_over(version.as_deref(), now));
        if let Some(behind) = &self.behind {
            return Some(Step::Wait(Some(behind.until)));
        }
        if self.fresh {
            return None;
        }
        let retry = self.retry(RequestKind::Read, now);
        Some(retry.map_or(Step::ReadPool { uid, version }, |(_, until)| Step::Wait(Some(until))))
    }

    fn class(&mut self, name: &str) -> &mut ClassMemory {
        self.classes.entry(name.to_owned()).or_default()
    }

    /// Records a request that was not accepted.
    fn failed(&mut self, request: RequestKind, refusal: &RequestError, patience: Duration, now: Instant) {
        // At first the cache is behind, and the pool's own event follows.
        let late = if request.writes() && refusal.is_late() { ATTEMPTS } else { 0 };
        let pause = |failures: u32| refusal.pause(failures.saturating_sub(late), patience);
        self.retries.entry(request).or_default().failed(refusal.clone(), pause, now);
    }

    /// The end of the pause of a request that was not accepted, and why it was not.
    fn retry(&self, request: RequestKind, now: Instant) -> Option<(RequestError, Instant)> {
        self.retries.get(&request)?.pause(now).cloned()
    }
}

// Requests that failed.

/// A kind of request for a pool that is retried after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RequestKind {
    Read,
    Finalizer,
    Nodes,
    Status,
}

impl RequestKind {
    fn of(step: &Step) -> Option<Self> {
        match step {
            Step::ReadPool { .. } => Some(Self::Read),
            Step::SetFinalizer(_) => Some(Self::Finalizer),
            Step::ListLabelledNodes => Some(Self::Nodes),
            Step::WriteStatus { .. } => Some(Self::Status),
            Step::Class(_) | Step::Publish(_) | Step::Wait(_) => None,
        }
    }

    /// True if it writes the pool.
    fn writes(self) -> bool {
        matches!(self, Self::Finalizer | Self::Status)
    }
}

/// The problem for a write that failed and is retried.
fn write_failed(object: ObjectReference, message: &str) -> Problem {
    let message = format!("the API server did not accept the change, winpool tries again: {message}");
    Problem::new(reason::WRITE_FAILED, object, message)
}
