//! The state of trial checks between steps.

use std::time::Instant;

use super::super::{
    super::trial_check::{OnTrial, Suspects},
    step::Now,
};

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
}
