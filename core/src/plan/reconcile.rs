//! The loop of a pool: one pure step at a time.
//!
//! [`next`] says what to do next for a pool; an interpreter does that, hands the answer to [`Memory::answer`], and
//! asks again. The operator, `winpool plan` and the model in the tests are such interpreters, and none of them decides
//! anything.
//!
//! A pool's classes come first, each by itself; then the status that records what may be put on nodes; and then the
//! [`Policy`](super::Policy) that nodes are judged by. No failed write ends the round: what does not depend on it goes on.

mod check;
mod classes;
mod deletion;
mod memory;
mod report;
mod step;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use kube::ResourceExt;

use crate::api::{ObjectReference, Problem, WindowsPoolStatus, names::reason};

use super::{CleanCheck, GuardedPool, Pool, Tally};

use classes::ClassMemory;
use memory::{Intent, PoolMemory, Retry};
use report::Report;

pub use check::{CheckTask, WorkloadName};
pub use memory::Memory;
pub use step::{Answer, ClassRequest, Cluster, ControlPlaneInfo, Note, Now, Refusal, SeenNode, ShowNodes, Step};

/// How often what cannot be watched is looked at again: pods, and what the control plane tells of itself.
pub const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// The API server's admission reads RuntimeClasses from a cache, and tolerations are baked into a pod when it is created:
/// nodes wait this long after the tolerations of a class that exists were changed.
const CLASSES_SEEN: Duration = Duration::from_secs(5);
/// At most one status write in this time, unless one records a taint.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// How soon it is looked again whether the cache shows a pool as it is.
const CACHE_BEHIND: Duration = Duration::from_secs(1);
/// How often an object may change between reading and writing before the write has to wait.
const ATTEMPTS: u32 = 4;

/// What to do next for the pool of this name.
#[must_use]
pub fn next(cluster: &Cluster<'_>, memory: &mut Memory, name: &str, now: Now) -> Step {
    memory.forget(cluster);
    let Some(guarded) = cluster.pools.iter().find(|pool| pool.name_any() == name) else {
        return memory.drop_gone(cluster).unwrap_or(Step::Wait(None));
    };
    let known = memory.of(name);
    if known.uid != guarded.uid() {
        *known = PoolMemory::new(guarded);
    }
    if let Some(step) = memory.read_when_stale(guarded, now.instant) {
        return step;
    }
    let known = memory.of(name);
    if known.generation != guarded.metadata.generation {
        // What was refused of another spec is worth a try.
        (known.generation, known.status) = (guarded.metadata.generation, Retry::default());
    }
    memory.forget_old_answers(cluster, name);
    match guarded.read() {
        Err(error) if guarded.is_being_deleted() => memory.abandon(cluster, guarded, &error, now),
        Err(error) => memory.invalid(cluster, guarded, &error, now),
        Ok(pool) if pool.deleting => memory.clean_up(cluster, guarded, &memory.with_written(&pool), now),
        Ok(pool) => memory.bring_up_to_date(cluster, guarded, &memory.with_written(&pool), now),
    }
}

impl Memory {
    /// Takes in what came of a step of this pool.
    pub fn answer(&mut self, pool: &str, step: &Step, answer: Answer, now: Instant) {
        let patience = self.patience;
        let memory = self.of(pool);
        match (step, answer) {
            (Step::ReadPool { uid, version }, Answer::Pool(found)) => {
                let fresh = found.is_some_and(|found| found.uid == *uid && found.resource_version == *version);
                memory.was_read(fresh, version.as_ref(), now);
            }
            (Step::ReadPool { .. }, Answer::Refused(refusal)) => {
                memory.deletion.refused(&refusal, now);
                memory.old_version = None;
                memory.read.failed(&refusal, patience, now);
            }
            (Step::SetFinalizer(wanted), Answer::Done | Answer::Refused(Refusal::Gone)) => {
                memory.finalizer = Retry::default();
                self.note(pool, Note::FinalizerWritten(*wanted));
            }
            // The cache is behind: the pool's own event follows.
            (Step::SetFinalizer(_), Answer::Refused(Refusal::Conflict)) => {}
            (Step::SetFinalizer(_), Answer::Refused(refusal)) => {
                memory.old_version = None;
                memory.finalizer.failed(&refusal, patience, now);
            }
            (Step::FindUsers { classes, .. }, Answer::Users(users)) => {
                memory.found_users(classes, &users, now);
            }
            (Step::FindUsers { .. }, Answer::Refused(refusal)) => {
                memory.users.failed(&refusal, patience, now);
            }
            (Step::Class(name, request), answer) => self.class_answered(pool, name, request, answer, now),
            (Step::ListMarkedNodes, Answer::Nodes(nodes)) => memory.deletion.listed(nodes, now),
            (Step::ListMarkedNodes, Answer::Refused(refusal)) => {
                memory.deletion.unlisted(&refusal, patience, now);
            }
            (Step::WriteStatus { status, .. }, Answer::Done) => {
                memory.status = Retry::default();
                memory.next_status = Some(now + STATUS_INTERVAL);
                memory.written = Some(status.as_ref().clone());
                let known = memory.announce(status);
                self.notes.extend(known.into_iter().map(|problem| (pool.to_owned(), Note::Problem(problem))));
            }
            // The pool is not what the status was computed from: its own event follows.
            (Step::WriteStatus { .. }, Answer::Refused(Refusal::Conflict | Refusal::Gone)) => {
                memory.fresh = false;
                memory.written = None;
            }
            (Step::WriteStatus { .. }, Answer::Refused(refusal)) => {
                memory.status.failed(&refusal, patience, now);
                self.status_refused(pool, &refusal);
            }
            _ => {}
        }
    }

    /// A former leader may have ended the pool, or recorded taints, a moment ago. In the further course of a term nobody
    /// else does.
    fn read_when_stale(&mut self, guarded: &GuardedPool, now: Instant) -> Option<Step> {
        let (uid, version) = (guarded.uid(), guarded.resource_version());
        let memory = self.of(&guarded.name_any());
        if memory.fresh {
            return None;
        }
        // A new version is worth a try at once.
        let is_new = memory.old_version.is_some() && memory.old_version != version;
        if let Some(until) = memory.read.pause(now).filter(|_| !is_new) {
            return Some(Step::Wait(Some(until)));
        }
        Some(Step::ReadPool { uid, version })
    }

    /// Puts the finalizer on, or takes it off, unless the cache has yet to show that this was done.
    fn set_finalizer(&mut self, guarded: &GuardedPool, wanted: bool, now: Instant) -> Step {
        let memory = self.of(&guarded.name_any());
        if memory.old_version.is_some() && memory.old_version == guarded.resource_version() {
            return Step::Wait(Some(now + LOOK_AGAIN));
        }
        memory.old_version = guarded.resource_version();
        Step::SetFinalizer(wanted)
    }

    /// A live pool: its classes, its status, and then its nodes.
    fn bring_up_to_date(&mut self, cluster: &Cluster<'_>, guarded: &GuardedPool, pool: &Pool, now: Now) -> Step {
        let name = &pool.name;
        if guarded.has_finalizer() != pool.needs_cleanup() {
            let Retry { denied, words, .. } = self.of(name).finalizer.clone();
            return match self.of(name).finalizer.pause(now.instant) {
                Some(until) if denied => self.without_finalizer(guarded, &words, until, now),
                Some(until) => Step::Wait(Some(until)),
                None => self.set_finalizer(guarded, pool.needs_cleanup(), now.instant),
            };
        }
        let memory = self.of(name);
        memory.former = memory.former.take().filter(|(_, until)| !cluster.settled || now.instant < *until);
        let tally = (cluster.tally)(name);
        let plan = self.plan_classes(cluster, pool, &tally);
        if let Some(step) = self.class_step(cluster, pool, &plan, now.instant) {
            return step;
        }
        let intent = self.intend(cluster, guarded, pool, &plan, &tally, now);
        if self.of(name).intent != intent {
            self.of(name).intent = intent;
            return Step::Judge;
        }
        let report = self.report(cluster, guarded, pool, plan, &tally, now);
        if let Report::Write(step) = report {
            return step;
        }
        let ready = (!self.awaits_first_check(guarded, pool, &tally)).then(|| self.publishable(guarded, pool));
        if let Some(ready) = &ready {
            self.remember_former(ready, now.instant);
        }
        if let Some(step) = self.publish(cluster, ready) {
            return step;
        }
        Step::Wait(self.wake(name, report.until(), now.instant))
    }

    /// Whether nodes are not touched yet, so that they get their labels and taints in one request: a check is about to tell
    /// whether they may have their taints.
    fn awaits_first_check(&self, guarded: &GuardedPool, pool: &Pool, tally: &Tally) -> bool {
        let Some(memory) = self.pools.get(&pool.name) else { return true };
        let is_first = pool.enforces() && !self.published.get(&pool.name).is_some_and(|pool| pool.enforces());
        is_first
            && tally.waiting() > 0
            && !pool.checked_taints().is_empty()
            && memory.check.as_ref().is_none_or(|check| !check.is_about(guarded))
            && !memory.classes.values().any(ClassMemory::has_to_wait)
    }

    /// The pool as nodes may be judged by it now: with what its status records, and no more.
    fn publishable(&self, guarded: &GuardedPool, pool: &Pool) -> Arc<Pool> {
        let intended = self.intended(pool);
        let recorded = self.recorded_status(guarded);
        let (managed, approved) = (super::pools::managed_taints(recorded), super::pools::approved_taints(recorded));
        let mut ready = Pool::clone(&intended);
        ready.ever_applied.retain(|taint| managed.contains(taint));
        ready.approved.retain(|ours| approved.iter().any(|recorded| recorded.taint == ours.taint));
        let mut clean = CleanCheck::clone(&ready.clean_check);
        clean.nodes.retain(|taint, _| managed.contains(taint));
        ready.clean_check = Arc::new(clean);
        Arc::new(ready)
    }

    fn recorded_status<'a>(&'a self, guarded: &'a GuardedPool) -> Option<&'a WindowsPoolStatus> {
        let written = self.pools.get(&guarded.name_any()).and_then(|memory| memory.written.as_ref());
        written.or(guarded.status.as_ref())
    }

    /// When the pool has to be looked at again, if nothing happens before.
    fn wake(&self, pool: &str, status: Option<Instant>, now: Instant) -> Option<Instant> {
        let Some(memory) = self.pools.get(pool) else { return status };
        let retries = [&memory.users, &memory.status].into_iter().filter_map(|retry| retry.until);
        let classes = memory.classes.values().flat_map(ClassMemory::dues);
        let clean = memory.intent.clean_check.valid.map(|(_, until)| until);
        let former = memory.former.as_ref().map(|(_, until)| (*until).max(now + CACHE_BEHIND));
        let dues = retries.chain(former).chain(classes).chain(clean).chain(status).chain([now + LOOK_AGAIN]);
        dues.filter(|due| *due > now).min()
    }
}

/// The problem of a write that failed and is sent again.
fn write_failed(object: ObjectReference, words: &str) -> Problem {
    Problem {
        reason: reason::WRITE_FAILED.to_owned(),
        object,
        message: format!("the API server did not accept the change, winpool tries again: {words}"),
    }
}
