//! The loop of a pool, as a pure function of one step.
//!
//! [`next`] returns the next step for a pool. An interpreter executes it, passes the answer to [`Memory::answer`], and
//! calls [`next`] again. There are three interpreters: the operator, `winpool plan`, and the model in the tests. None
//! of them decides anything.
//!
//! The order is: the pool's classes, each independently; then the status that records what may be added to nodes; and
//! then the [`Policy`](super::pools::pool::Policy) that nodes are assessed by. A failed write does not end the round: everything
//! that does not depend on it continues.

pub(crate) mod memory;
pub(crate) mod step;

use std::{sync::Arc, time::Instant};

use kube::ResourceExt;

use crate::{
    api::names::reason,
    plan::{
        classes::steps::ClassMemory,
        nodes::numbers::Tally,
        pods::table::UnknownPods,
        pools::pool::{GuardedPool, Pool, managed_taints},
        reconcile::memory::{CACHE_BEHIND, PoolMemory, RequestKind, Retry, STATUS_INTERVAL},
        refusal::Refusal,
    },
};

pub use self::{
    memory::{Memory, Now, Outage, POLL_INTERVAL, Pauses},
    step::{Answer, CachedCluster, ClassRequest, ClassStep, ControlPlaneInfo, Note, Step},
};

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
    memory.forget(cluster, now.instant);
    let Some(guarded) = cluster.pools.iter().find(|pool| pool.name_any() == name) else {
        return Some(memory.publish(cluster, None).unwrap_or(Step::Wait(None)));
    };
    let known = memory.of(name);
    if known.uid != guarded.uid() {
        *known = PoolMemory { uid: guarded.uid(), ..PoolMemory::default() };
    }
    let recorded = guarded.status.iter().flat_map(|status| &status.runtime_classes);
    known.created.extend(recorded.filter_map(|class| class.uid.clone()));
    known.compare_written(guarded);
    if let Some(step) = known.read_when_stale(guarded, now.instant) {
        return Some(step);
    }
    if known.generation != guarded.metadata.generation {
        // A request that was refused for another spec is sent again.
        known.generation = guarded.metadata.generation;
        known.retries.clear();
        known.classes.values_mut().for_each(ClassMemory::end_back_off);
    }
    let step = match guarded.read() {
        Err(error) => memory.stop(cluster, guarded, reason::INVALID_SPEC, &error.to_string(), now),
        Ok(pool) if pool.spec.deleting => memory.clean_up(cluster, guarded, &memory.with_written(&pool), now),
        Ok(pool) => return memory.bring_up_to_date(cluster, guarded, &memory.with_written(&pool), now),
    };
    Some(step)
}

impl Memory {
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
                memory.is_shown |= memory.fresh;
                memory.old_version = version.clone().filter(|_| !memory.fresh);
                memory.deletion.answered(now);
                if !memory.fresh {
                    let retry = Retry { failures: 0, until: now + CACHE_BEHIND, refusal: Refusal::Conflict };
                    memory.retries.insert(RequestKind::Read, retry);
                }
            }
            (Step::ReadPool { .. }, Answer::Refused(refusal)) => {
                memory.deletion.refused(&refusal, now);
                memory.old_version = None;
            }
            (Step::SetFinalizer(wanted), Answer::Written(_) | Answer::Refused(Refusal::Gone)) => {
                self.note(pool, Note::FinalizerWritten(*wanted));
            }
            (Step::SetFinalizer(_), Answer::Refused(_)) => {
                memory.old_version = None;
            }
            (Step::ListLabelledNodes, Answer::Nodes(nodes)) => memory.deletion.listed(nodes, now),
            (Step::WriteStatus { status, news, .. }, Answer::Written(after)) => {
                memory.next_status = Some(now + STATUS_INTERVAL);
                memory.written_version = after.resource_version();
                (memory.written, memory.is_shown) = (Some(status.as_ref().clone()), false);
                self.notes.extend(news.iter().map(|note| (pool.to_owned(), note.clone())));
            }
            // The pool has changed since the status was computed: its own event follows.
            (Step::WriteStatus { .. }, Answer::Refused(refusal)) if refusal.is_late() => {
                (memory.fresh, memory.written) = (false, None);
            }
            // The API server validates the whole object, so an invalid spec is a possible reason.
            (Step::WriteStatus { status, .. }, Answer::Refused(Refusal::Denied(message))) => {
                let invalid = status.problems.iter().find(|problem| problem.reason == reason::INVALID_SPEC);
                // Another status than the one that was sent may be stored.
                (memory.fresh, memory.written) = (false, None);
                let why = invalid.map_or(message, |problem| problem.message.clone());
                self.note(pool, Note::StatusRefused(why));
            }
            _ => {}
        }
    }

    /// Adds or removes the finalizer, unless that was done and the cache does not show it yet.
    pub(crate) fn set_finalizer(&mut self, guarded: &GuardedPool, wanted: bool, now: Instant) -> Step {
        let memory = self.of(&guarded.name_any());
        if memory.old_version.is_some() && memory.old_version == guarded.resource_version() {
            return Step::Wait(Some(now + POLL_INTERVAL));
        }
        memory.old_version = guarded.resource_version();
        Step::SetFinalizer(wanted)
    }

    /// Reconciles a pool that is not being deleted: its classes, its status, and then its nodes. `None` if nodes have to
    /// be counted again.
    fn bring_up_to_date(
        &mut self,
        cluster: &CachedCluster<'_>,
        guarded: &GuardedPool,
        pool: &Pool,
        now: Now,
    ) -> Option<Step> {
        let name = &pool.spec.name;
        let retry = self.of(name).retry(RequestKind::Finalizer, now.instant).cloned();
        if pool.spec.needs_cleanup() && !guarded.has_finalizer() {
            let Some(Retry { until, refusal, .. }) = retry else {
                return Some(self.set_finalizer(guarded, true, now.instant));
            };
            let is_denied = matches!(refusal, Refusal::Denied(_));
            let reason = if is_denied { reason::ADMISSION_DENIED } else { reason::WRITE_FAILED };
            let (finalizer, message) = (crate::api::names::CLEANUP, refusal.message());
            let message = format!("the API server refuses the finalizer {finalizer}, so nothing is done: {message}");
            return Some(self.stop(cluster, guarded, reason, &message, now).at_latest(until));
        }
        if let Some(publish) = self.hold_back(cluster, name, now.instant) {
            return Some(publish);
        }
        self.keep_former_taints(cluster, name, now.instant);
        let tally = cluster.nodes.tally(name);
        let plan = self.plan_classes(cluster, pool, tally);
        self.forget_classes(cluster, name, &plan, now.instant);
        if let Some(step) = self.class_step(cluster, pool, &plan, now.instant) {
            return Some(step);
        }
        let intent = Some(self.intend(cluster, pool, &plan, tally, now));
        let memory = self.of(name);
        if memory.intent != intent {
            memory.intent = intent;
            return None;
        }
        // Nodes get a taint only after status records it, so the policy is published later.
        let status_due = match self.report(cluster, guarded, pool, plan, tally, now) {
            Step::Wait(until) => until,
            step => return Some(step),
        };
        let ready = (!self.awaits_pods(cluster, pool, tally)).then(|| self.publishable(guarded, pool));
        if let Some(publish) = self.publish(cluster, ready) {
            return Some(publish);
        }
        // The published policy no longer makes changes that need a cleanup.
        let is_needless = guarded.has_finalizer() && !pool.spec.needs_cleanup() && retry.is_none();
        let step = if is_needless { self.set_finalizer(guarded, false, now.instant) } else { Step::Wait(None) };
        Some(step.at_latest(self.wake(name, status_due, now)))
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
    fn awaits_pods(&self, cluster: &CachedCluster<'_>, pool: &Pool, tally: &Tally) -> bool {
        let Some(memory) = self.pools.get(&pool.spec.name) else { return true };
        let is_first = pool.spec.enforces() && !memory.published.as_ref().is_some_and(|pool| pool.spec.enforces());
        let are_pods_unseen = cluster.objectors() == Err(&UnknownPods::NotListed) || cluster.has_yet_to_look_for(pool);
        is_first && tally.waits() && are_pods_unseen && !memory.cannot_read()
    }

    /// The pool as nodes may be assessed by it now: with the taints that its status records, and no others.
    fn publishable(&self, guarded: &GuardedPool, pool: &Pool) -> Arc<Pool> {
        let recorded = managed_taints(self.recorded_status(guarded));
        let mut ready = Pool::clone(&self.intended(pool));
        ready.managed_taints.retain(|taint| recorded.contains(taint));
        Arc::new(ready)
    }

    /// The time at which the pool is due again, if nothing happens before.
    fn wake(&self, pool: &str, status: Option<Instant>, now: Now) -> Option<Instant> {
        let Some(memory) = self.pools.get(pool) else { return status };
        let retries = memory.retries.values().map(|retry| retry.until);
        let classes = memory.classes.values().flat_map(ClassMemory::dues);
        let now = now.instant;
        let former = self.former_taints_due(pool).map(|until| until.max(now + CACHE_BEHIND));
        let dues = retries.chain(former).chain(classes).chain(status).chain([now + POLL_INTERVAL]);
        dues.filter(|due| *due > now).min()
    }
}
