//! The status of a pool: what it is computed from, and when it is written.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::{Resource, ResourceExt, runtime::events::EventType};
use winpool_core::{
    api::{Problem, RuntimeClassStatus, WindowsPoolStatus, names::reason},
    plan::{Admission, Held, InvalidPool, Observation, Pool, invalid_status, number},
    windows::Build,
};

use crate::{apply::WriteError, controllers::GuardedPool, index::Totals, telemetry::words};

use super::{Error, Progress, STATUS_INTERVAL, State};

/// What the pool's status is computed from.
pub(super) fn observe(
    pool: &Pool,
    metadata: &ObjectMeta,
    totals: &Totals,
    held: Option<Held>,
    classes: Vec<RuntimeClassStatus>,
    mut problems: Vec<Problem>,
) -> Observation {
    problems.extend(totals.problems());
    let seen = totals.seen();
    let lingering = seen.tolerate.iter().filter(|taint| pool.ever_applied.contains(taint));
    Observation {
        generation: metadata.generation,
        nodes: totals.counts(),
        unlabeled: totals.unlabeled(),
        untainted: totals.untainted(),
        held,
        kubernetes: None,
        overlap: totals.overlap(),
        builds: totals.revisions().clone(),
        carried: totals.owned().chain(lingering).cloned().collect(),
        classes: classes
            .into_iter()
            .map(|class| RuntimeClassStatus { nodes: nodes_of(&class, &seen.builds), ..class })
            .collect(),
        admission: Admission::default(),
        problems,
    }
}

fn nodes_of(class: &RuntimeClassStatus, builds: &BTreeMap<Build, usize>) -> i64 {
    let build: Option<Build> = class.build.parse().ok();
    number(build.and_then(|build| builds.get(&build)).copied().unwrap_or_default())
}

/// What became of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// It stands.
    Done,
    /// It is written later, and records no taint that the present one does not.
    Later(Duration),
    /// The pool is not what it was computed from, or gone. Its own event follows.
    Outdated,
}

impl State {
    /// Writes the status that `compute` makes of the previous one, if it differs: at once when it records a taint that
    /// nodes will get, otherwise at most once in [`STATUS_INTERVAL`].
    pub(super) async fn report(
        &self,
        pool: &GuardedPool,
        compute: impl Fn(Option<&WindowsPoolStatus>, Timestamp) -> WindowsPoolStatus,
    ) -> Result<Report, Error> {
        let name = pool.name_any();
        let Progress { next_status, written, .. } = self.progress(&name, |progress| progress.clone());
        let recent = next_status.is_some_and(|next| Instant::now() < next + STATUS_INTERVAL);
        let cached = pool.status.clone();
        let previous = written.filter(|_| recent).or(cached);
        let status = compute(previous.as_ref(), whole_seconds(Timestamp::now()));
        self.shared.metrics.conditions(&name, &status.conditions);
        if previous.as_ref() == Some(&status) {
            return Ok(Report::Done);
        }
        let recorded = |taint| previous.as_ref().is_some_and(|previous| previous.taints.contains(taint));
        let wait = next_status.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()));
        if !wait.is_zero() && status.taints.iter().all(recorded) {
            return Ok(Report::Later(wait));
        }
        match self.shared.applier.write_status(pool.meta(), pool.recorded.as_ref(), &status).await {
            Ok(()) => {}
            Err(WriteError::Gone | WriteError::Stale) => return Ok(Report::Outdated),
            Err(error) => return Err(Error { pool: name, object: "status".to_owned(), source: error }),
        }
        self.announce(pool, previous.as_ref(), &status).await;
        self.progress(&name, |progress| {
            progress.next_status = Some(Instant::now() + STATUS_INTERVAL);
            progress.written = Some(status);
        });
        Ok(Report::Done)
    }

    /// Reports that a pool is not valid. The API server may refuse that, because it judges the whole object by rules that
    /// this one breaks: then an Event says it, and the status is not sent again for a while unless the spec
    /// changes.
    pub(super) async fn report_invalid(
        &self,
        pool: &GuardedPool,
        error: &InvalidPool,
    ) -> Result<Option<Duration>, Error> {
        let (name, generation) = (pool.name_any(), pool.meta().generation);
        if let Some((refused, until)) = self.progress(&name, |progress| progress.status_refused) {
            let wait = until.saturating_duration_since(Instant::now());
            if refused == generation && !wait.is_zero() {
                return Ok(Some(wait));
            }
        }
        let report = |previous: Option<&_>, now| invalid_status(error, generation, previous, now);
        match self.report(pool, report).await {
            Err(Error { source: WriteError::Denied(refusal), .. }) => {
                let (patience, detail) = (self.shared.patience, words(error));
                tracing::warn!(
                    pool = name,
                    detail,
                    error = words(&refusal),
                    wait_ms = patience.as_millis(),
                    "the API server refuses the status of a pool that is not valid"
                );
                self.progress(&name, |progress| {
                    progress.status_refused = Some((generation, Instant::now() + patience));
                });
                let (object, note) = (pool.object_ref(&()), error.to_string());
                self.shared.applier.event(&object, EventType::Warning, reason::INVALID_SPEC, "Validate", note).await;
                Ok(Some(patience))
            }
            Ok(Report::Later(wait)) => Ok(Some(wait)),
            Ok(Report::Done | Report::Outdated) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One Event for each problem that is new.
    async fn announce(&self, pool: &GuardedPool, previous: Option<&WindowsPoolStatus>, status: &WindowsPoolStatus) {
        let known = |problem: &Problem| {
            let mut problems = previous.iter().flat_map(|status| &status.problems);
            problems.any(|known| known.reason == problem.reason && known.object == problem.object)
        };
        let object = pool.object_ref(&());
        for problem in status.problems.iter().filter(|problem| !known(problem)) {
            let Problem { reason, object: subject, message } = problem;
            tracing::warn!(pool = pool.name_any(), object = subject, reason, detail = words(message), "problem");
            let note = format!("{subject}: {message}");
            self.shared.applier.event(&object, EventType::Warning, reason, subject, note).await;
        }
    }
}

/// The API keeps whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
