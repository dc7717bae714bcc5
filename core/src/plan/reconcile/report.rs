//! The status of a pool: what it is computed from, and when it is written.

use std::{collections::BTreeMap, time::Instant};

use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    api::{ObjectReference, RuntimeClassStatus, WindowsPoolStatus, names, names::reason},
    windows::Build,
};

use super::{
    super::{
        ClassesPlan, GuardedPool, InvalidPool, Observation, Pool, Tally, invalid_status, number, status,
        suspended_status,
    },
    Cluster, Memory, Note, Now, Refusal, Retry, Step,
    check::whole_seconds,
};

/// What is to be done about a status.
pub(super) enum Report {
    /// It stands.
    Stands,
    /// It is written later, and records nothing that the present one does not.
    Later(Instant),
    /// It is written now.
    Write(Step),
}

impl Report {
    pub fn until(&self) -> Option<Instant> {
        match self {
            Self::Later(until) => Some(*until),
            Self::Stands | Self::Write(_) => None,
        }
    }
}

impl Memory {
    /// The status of a live pool.
    pub(super) fn report(
        &mut self,
        cluster: &Cluster<'_>,
        guarded: &GuardedPool,
        pool: &Pool,
        plan: ClassesPlan,
        tally: &Tally,
        now: Now,
    ) -> Report {
        let existing = self.classes(cluster, &pool.name);
        self.record_own(pool, &plan, &existing);
        let (classes, mut problems) = self.class_report(pool, plan, &existing, now.instant);
        let users = &self.of(&pool.name).users;
        if users.pause(now.instant).is_some() {
            problems.push(super::write_failed(ObjectReference::windows_pool(&pool.name), &users.words));
        }
        problems.extend(tally.problems());
        let admission = cluster.control_plane.admission.clone();
        problems.extend(admission.unlisted_taints(pool).filter(|_| pool.enforces()));
        problems.extend(guarded.pool.as_ref().ok().and_then(|pool| admission.unused_pod_defaults(pool)));
        let seen = tally.seen();
        let nodes_of = |class: &RuntimeClassStatus| nodes_of(class, &seen.builds);
        let held = self.held(pool, tally);
        self.of(&pool.name).held.clone_from(&held);
        let mut windows_nodes = 0;
        if tally.counts().selected == 0 {
            (cluster.nodes)(&mut |_| windows_nodes += 1);
        }
        let observation = Observation {
            generation: guarded.metadata.generation,
            nodes: tally.counts(),
            windows_nodes,
            unlabeled: tally.unlabeled(),
            untainted: tally.untainted(),
            held,
            unlisted: self.of(&pool.name).unlisted(),
            kubernetes: cluster.control_plane.kubernetes,
            overlap: tally.overlap(),
            builds: tally.revisions().clone(),
            carried: self.of(&pool.name).intent.carried.clone(),
            classes: classes.into_iter().map(|class| RuntimeClassStatus { nodes: nodes_of(&class), ..class }).collect(),
            admission,
            problems,
        };
        // A dry run records nothing that it would do.
        let intended = if pool.enforces() { self.intended(pool) } else { pool.clone().into() };
        self.report_as(guarded, now, |previous| status(&intended, &observation, previous, whole_seconds(now.time)))
    }

    /// Writes the status that `compute` makes of the previous one, if it differs: at once when it records a taint that
    /// nodes are to get, otherwise at most once in a while.
    pub(super) fn report_as(
        &mut self,
        guarded: &GuardedPool,
        now: Now,
        compute: impl FnOnce(Option<&WindowsPoolStatus>) -> WindowsPoolStatus,
    ) -> Report {
        let status = compute(self.recorded_status(guarded));
        self.of(&guarded.name_any()).reported = Some(status.clone());
        let previous = self.recorded_status(guarded);
        if previous == Some(&status) {
            return Report::Stands;
        }
        let news = |old: &WindowsPoolStatus| {
            let managed = status.managed_taints.iter().any(|taint| !old.managed_taints.contains(taint));
            let is_old = |taint: &String| old.approved_taints.iter().any(|approved| approved.taint == *taint);
            managed || status.approved_taints.iter().any(|approved| !is_old(&approved.taint))
        };
        let records = previous.is_none_or(news);
        let memory = self.pools.get(&guarded.name_any());
        let pauses = |retry: &Retry| retry.pause(now.instant);
        if let Some(until) = memory.and_then(|memory| pauses(&memory.status)) {
            return Report::Later(until);
        }
        match memory.and_then(|memory| memory.next_status).filter(|next| now.instant < *next) {
            Some(next) if !records => Report::Later(next),
            _ => Report::Write(Step::WriteStatus { seen: self.seen(guarded), status: Box::new(status) }),
        }
    }

    /// What the patch of the status tests: the taints that the one before records.
    fn seen(&self, guarded: &GuardedPool) -> Option<Value> {
        let written = self.pools.get(guarded.metadata.name.as_deref()?).and_then(|memory| memory.written.as_ref());
        match written {
            Some(written) => Some(json!({ "managedTaints": json!(written).get("managedTaints") })),
            None => guarded.recorded.clone(),
        }
    }

    /// A pool that is not valid: its nodes keep what they have.
    pub(super) fn invalid(
        &mut self,
        cluster: &Cluster<'_>,
        guarded: &GuardedPool,
        error: &InvalidPool,
        now: Now,
    ) -> Step {
        if let Some(step) = self.publish(cluster, None) {
            return step;
        }
        self.of(&error.name).invalid = Some(error.to_string());
        let report = self.report_as(guarded, now, |previous| {
            invalid_status(error, guarded.metadata.generation, previous, whole_seconds(now.time))
        });
        match report {
            Report::Write(step) => step,
            report => Step::Wait(report.until()),
        }
    }

    /// A pool on which the API server does not let winpool put its finalizer: nothing could be taken off again.
    pub(super) fn without_finalizer(&mut self, guarded: &GuardedPool, words: &str, until: Instant, now: Now) -> Step {
        let name = guarded.name_any();
        let message = format!("the API server refuses the finalizer {}, so nothing is done: {words}", names::CLEANUP);
        let report = self.report_as(guarded, now, |previous| {
            let generation = guarded.metadata.generation;
            let time = whole_seconds(now.time);
            suspended_status(&name, reason::ADMISSION_DENIED, &message, generation, previous, time)
        });
        match report {
            Report::Write(step) => step,
            report => Step::Wait(report.until().into_iter().chain([until]).min()),
        }
    }

    /// The API server refuses a status, as it does for a pool that is not valid, because it judges the whole object.
    pub(super) fn status_refused(&mut self, pool: &str, refusal: &Refusal) {
        let invalid = self.of(pool).invalid.clone();
        if let Refusal::Denied(words) = refusal {
            self.note(pool, Note::StatusRefused(invalid.unwrap_or_else(|| words.clone())));
        }
    }
}

fn nodes_of(class: &RuntimeClassStatus, builds: &BTreeMap<Build, usize>) -> i64 {
    let build: Option<Build> = class.build.parse().ok();
    number(build.and_then(|build| builds.get(&build)).copied().unwrap_or_default())
}
