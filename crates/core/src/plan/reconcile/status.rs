//! The status of a pool: its inputs, and when it is written.

use kube::ResourceExt;

use super::step::{NOT_STORED, Note, Step};
use super::{Memory, POLL_INTERVAL, RequestKind, Round, write_failed};
use crate::api::names::{condition, reason};
use crate::api::{ObjectReference, Problem, TaintStatus, WindowsPoolStatus};
use crate::plan::classes::ClassesPlan;
use crate::plan::pods::failures::{PodHealth, WorkloadFailure};
use crate::plan::pods::tolerations::PoolHelp;
use crate::plan::pools::pool::{GuardedPool, recorded};
use crate::plan::reconcile::conditions::{Observation, status, suspended_status};
use crate::plan::{Now, whole_seconds};

impl Memory {
    /// Writes the status of a pool that is not being deleted, or waits.
    pub(super) fn report(&mut self, round: &Round<'_>, plan: ClassesPlan) -> Step {
        let (cluster, guarded, pool, tally) = (round.cluster, round.guarded, &round.pool, round.tally());
        let by_label = plan.classes.iter().filter(|planned| planned.desired.hosts.is_by_label());
        let labelled = by_label.map(|planned| planned.desired.name.clone()).collect();
        let (classes, mut problems) = self.class_report(round, plan);
        let memory = self.of(round.name());
        let is_needless = guarded.has_finalizer() && !pool.spec.needs_cleanup();
        let failure = |request| Some(memory.retries.get(&request)?.last.as_ref()?.0.message());
        let failed = failure(RequestKind::Finalizer).filter(|_| is_needless);
        let object = || ObjectReference::windows_pool(round.name());
        problems.extend(failed.map(|message| write_failed(object(), message)));
        problems.extend(failure(RequestKind::Status).filter(|message| *message == NOT_STORED).map(|message| {
            Problem::new(reason::STATUS_NOT_STORED, ObjectReference::custom_resource_definition(), message)
        }));
        problems.extend(tally.problems());
        if let PodHealth::Seen { summary, .. } = &cluster.health {
            let failing = summary.pools.get(round.name()).into_iter().flat_map(|failures| &failures.workloads);
            problems.extend(failing.filter_map(WorkloadFailure::problem));
            problems.extend(summary.help.get(round.name()).into_iter().flat_map(PoolHelp::problems));
        }
        let objections = self.objections(cluster, pool);
        problems.extend(objections.problems());
        let observation = Observation {
            generation: guarded.metadata.generation,
            windows_nodes: if tally.counts().selected == 0 { cluster.nodes.nodes().count() } else { 0 },
            unreadable: cluster.unreadable(round.now.instant),
            taints: self.taints(round, &objections),
            held: self.held(cluster, pool, &objections).map(|held| held.verdict),
            tally: tally.clone(),
            classes,
            labelled,
            problems,
            health: cluster.health.clone(),
        };
        // A dry run records no taints.
        let intended = if pool.spec.enforces() { self.intended(pool) } else { pool.clone().into() };
        let time = whole_seconds(round.now.time);
        let status = status(&intended, &observation, self.recorded_status(guarded), time);
        self.write_status(guarded, status, round.now)
    }

    /// Writes the status of a pool that is suspended, or waits.
    pub(super) fn suspend(&mut self, guarded: &GuardedPool, reason: &'static str, message: &str, now: Now) -> Step {
        let (generation, time) = (guarded.metadata.generation, whole_seconds(now.time));
        let previous = self.recorded_status(guarded);
        let status = suspended_status(&guarded.name_any(), reason, message, generation, previous, time);
        self.write_status(guarded, status, now)
    }

    /// Writes the status if it changed: at once if it records a taint that nodes are to get, otherwise after
    /// [`STATUS_INTERVAL`](super::STATUS_INTERVAL).
    fn write_status(&mut self, guarded: &GuardedPool, status: WindowsPoolStatus, now: Now) -> Step {
        let memory = self.of(&guarded.name_any());
        memory.reported = Some(status.clone());
        let previous = memory.own_status(guarded).or(guarded.status.as_ref());
        if previous == Some(&status) {
            // A pool that waits for nothing else says from time to time that winpool runs.
            return Step::Wait(Some(now.instant + POLL_INTERVAL));
        }
        if let Some((_, until)) = memory.retry(RequestKind::Status, now.instant) {
            return Step::Wait(Some(until));
        }
        let records = previous.is_none_or(|old| {
            let has = |new: &TaintStatus| {
                let mut known = old.taints.iter().filter(|known| known.taint == new.taint);
                known.any(|known| known.at_registration || !new.at_registration)
            };
            !status.taints.iter().all(has)
        });
        let next = memory.next_status.filter(|next| now.instant < *next && !records);
        if next.is_some() {
            return Step::Wait(next);
        }
        let is_news = |problem: &&Problem| {
            let mut known = previous.iter().flat_map(|old| &old.problems);
            !known.any(|known| (&known.reason, &known.object) == (&problem.reason, &problem.object))
        };
        let problems = status.problems.iter().filter(is_news).cloned().map(Note::Problem);
        let news = problems.chain(taints_note(&guarded.name_any(), previous, &status)).collect();
        let seen = memory.own_status(guarded).map(recorded).or_else(|| guarded.recorded.clone());
        memory.sent = guarded.resource_version();
        Step::WriteStatus { seen, status: Box::new(status), news }
    }

    /// The recorded status, as far as winpool knows.
    pub(super) fn recorded_status<'a>(&'a self, guarded: &'a GuardedPool) -> Option<&'a WindowsPoolStatus> {
        let known = self.pools.get(&guarded.name_any());
        known.and_then(|known| known.own_status(guarded)).or(guarded.status.as_ref())
    }
}

/// Returns a note if the taints of the pool are held or no longer held since the previous status.
fn taints_note(pool: &str, previous: Option<&WindowsPoolStatus>, status: &WindowsPoolStatus) -> Option<Note> {
    // With other reasons winpool is still working, or a problem has a note of its own.
    const NOTED: [&str; 2] = [reason::DONE, reason::DAEMON_SETS_NOT_TOLERATING];
    let find = |status: &WindowsPoolStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == condition::TAINTS_APPLIED)?;
        Some((found.status.clone(), found.reason.clone(), found.message.clone()))
    };
    let (is_applied, reason, message) = find(status)?;
    let (was_applied, before, _) = previous.and_then(find).unwrap_or_default();
    let is_new = (&was_applied, &before) != (&is_applied, &reason) && NOTED.contains(&reason.as_str());
    let held = |message| Note::Problem(Problem::new(&reason, ObjectReference::windows_pool(pool), message));
    is_new.then(|| if is_applied == "True" { Note::TaintsApplied(message) } else { held(message) })
}
