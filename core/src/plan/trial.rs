//! The trial of a taint. No workload check finds everything, so winpool checks for a week what its taint does, and
//! takes it back if a pod waits only because of it.
//!
//! A trial begins when winpool may add the taint, and outlives the approval of the taint. It ends well by a complete
//! check after its time, and badly by a pod that objects. Then the taint leaves every node on which winpool put it, until
//! the next attempt.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};

use crate::{
    api::{Taint, TaintTrial, WindowsPoolStatus},
    pod::WorkloadKind,
};

/// The longest pause after trials that failed, as a multiple of the first one.
const LONGEST_PAUSE: u32 = 24;

/// A taint on trial, or one that is kept off nodes because of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    pub taint: Taint,
    /// Its start by the API server's clock. Workloads that were created later have to tolerate the taint.
    pub since: Timestamp,
    pub state: TrialState,
    /// The number of trials of the taint that failed.
    pub failures: u32,
    /// The workload because of whose pod the last one failed.
    pub workload: Option<String>,
    /// The last takeover of nodes with the taint that it covers. Status does not have it: under a new leader nodes that
    /// have yet to be taken over begin another trial.
    pub takeover: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialState {
    /// The taint is on trial until a complete check after this time.
    Until(Timestamp),
    /// The taint leaves every node on which winpool put it.
    Held {
        /// The time before which winpool does not try again.
        retry_at: Timestamp,
        /// Nodes that the pod would fit. They lose the taint first.
        first: BTreeSet<Arc<str>>,
    },
}

/// Kind, namespace and name of a workload.
pub type WorkloadName = (WorkloadKind, String, String);

/// Reads a name such as `Deployment shop/web`; `None` for a kind that winpool does not read.
pub(super) fn workload_name(text: &str) -> Option<WorkloadName> {
    let (kind, rest) = text.split_once(' ')?;
    let (namespace, name) = rest.split_once('/')?;
    Some((WorkloadKind::by_name(kind)?, namespace.to_owned(), name.to_owned()))
}

impl Trial {
    /// A trial that begins now. It replaces `before`, a trial or hold of the same taint, and covers nodes that were taken
    /// over until `takeover`.
    pub(super) fn begin(
        taint: Taint,
        before: Option<Self>,
        takeover: Option<Instant>,
        since: Timestamp,
        until: Timestamp,
    ) -> Self {
        let (failures, workload) = before.map(|before| (before.failures, before.workload)).unwrap_or_default();
        Self { taint, since, state: TrialState::Until(until), failures, workload, takeover }
    }

    /// True while winpool keeps the taint off nodes.
    pub fn is_held(&self) -> bool {
        matches!(self.state, TrialState::Held { .. })
    }

    /// The time before which winpool does not try again, if that is still to come.
    pub(super) fn pause(&self, now: Timestamp) -> Option<Timestamp> {
        match self.state {
            TrialState::Held { retry_at, .. } if now < retry_at => Some(retry_at),
            _ => None,
        }
    }

    /// Ends the trial because of a pod of this workload, which would fit the nodes `first`. Returns the pause.
    pub(super) fn fail(
        &mut self,
        workload: String,
        first: BTreeSet<Arc<str>>,
        now: Timestamp,
        first_pause: Duration,
    ) -> Duration {
        let pause = pause_after(self.failures, first_pause);
        self.failures = self.failures.saturating_add(1);
        self.workload = Some(workload);
        self.state = TrialState::Held { retry_at: after(now, pause), first };
        pause
    }

    /// Ends the trial or the pause no later than one that begins now would end. The clock may have been ahead when it
    /// began.
    pub(super) fn end_in_time(&mut self, now: Timestamp, lasts: Duration, first_pause: Duration) {
        let failures = self.failures.saturating_sub(1);
        match &mut self.state {
            TrialState::Until(until) => *until = after(now, lasts).min(*until),
            TrialState::Held { retry_at, .. } => {
                *retry_at = after(now, pause_after(failures, first_pause)).min(*retry_at);
            }
        }
    }

    /// Ends the pause, because what was wrong may be right now.
    pub(super) fn end_pause(&mut self, now: Timestamp) {
        if let TrialState::Held { retry_at, .. } = &mut self.state {
            *retry_at = now.min(*retry_at);
        }
    }

    /// The entry in status.
    pub(super) fn to_status(&self) -> TaintTrial {
        let (until, retry_at) = match self.state {
            TrialState::Until(until) => (Some(until), None),
            TrialState::Held { retry_at, .. } => (None, Some(retry_at)),
        };
        TaintTrial {
            taint: self.taint.to_string(),
            since: Time(self.since),
            until: until.map(Time),
            failures: self.failures.into(),
            workload: self.workload.clone(),
            retry_at: retry_at.map(Time),
        }
    }

    fn of_status(recorded: &TaintTrial) -> Option<Self> {
        let state = match (&recorded.retry_at, &recorded.until) {
            (Some(retry_at), _) => TrialState::Held { retry_at: retry_at.0, first: BTreeSet::new() },
            (None, until) => TrialState::Until(until.as_ref().map_or(recorded.since.0, |until| until.0)),
        };
        Some(Self {
            taint: recorded.taint.parse().ok()?,
            since: recorded.since.0,
            state,
            failures: u32::try_from(recorded.failures).unwrap_or_default(),
            workload: recorded.workload.clone(),
            takeover: None,
        })
    }
}

/// The pause after a trial that failed, if so many failed before.
fn pause_after(failures: u32, first_pause: Duration) -> Duration {
    first_pause * LONGEST_PAUSE.min(2_u32.pow(failures.min(10)))
}

/// `status.taintTrials`, without entries that cannot be parsed.
pub(super) fn recorded_trials(status: Option<&WindowsPoolStatus>) -> Vec<Trial> {
    status.iter().flat_map(|status| &status.taint_trials).filter_map(Trial::of_status).collect()
}

/// Converts a time into an instant; a time that is over is `now`.
pub(super) fn instant_of(time: Timestamp, now: Instant, now_is: Timestamp) -> Instant {
    now + time.duration_since(now_is).try_into().unwrap_or(Duration::ZERO)
}

pub(super) fn after(time: Timestamp, pause: Duration) -> Timestamp {
    let pause = SignedDuration::try_from(pause).unwrap_or(SignedDuration::MAX);
    time.checked_add(pause).unwrap_or(Timestamp::MAX)
}
