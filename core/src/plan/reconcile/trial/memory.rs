//! The state of trial checks between steps.

use std::time::{Duration, Instant};

use crate::words::plain;

use super::super::super::{
    now::Now,
    trial_check::{OnTrial, Suspects},
};

/// The time for which checks have to fail before status says so.
const PATIENCE: Duration = Duration::from_mins(1);
/// The longest error in a message.
const ERROR: usize = 200;

/// The state of checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct TrialCheckMemory {
    /// The start of the check that is in progress.
    pub(super) running: Option<Now>,
    pub(super) not_before: Option<Instant>,
    /// The pods that the last complete check found.
    pub(super) suspects: Suspects,
    /// The trials whose time is over and against which the last complete check found no pod.
    pub(super) quiet: Vec<OnTrial>,
    /// True if there is a taint to check.
    pub(super) is_needed: bool,
    /// The first of the last checks in a row that failed, and the last error.
    pub(super) failure: Option<(Instant, String)>,
}

impl TrialCheckMemory {
    pub(super) fn failed(&mut self, error: &str, now: Instant) {
        let since = self.failure.as_ref().map_or(now, |(since, _)| *since);
        self.failure = Some((since, plain(error, ERROR)));
    }

    /// The error, if checks have failed for a while.
    pub(super) fn unseen(&self, now: Instant) -> Option<&str> {
        let (since, error) = self.failure.as_ref()?;
        (now.duration_since(*since) >= PATIENCE).then_some(error)
    }
}
