//! The state of looks between steps.

use std::time::Instant;

use super::super::{
    super::look::{OnTrial, Suspects},
    step::Now,
};

/// The state of looks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct LookMemory {
    /// The start of the look that is in progress.
    pub(super) running: Option<Now>,
    pub(super) not_before: Option<Instant>,
    /// The pods that the last complete look found.
    pub(super) suspects: Suspects,
    /// The trials whose time is over and against which the last complete look found no pod.
    pub(super) quiet: Vec<OnTrial>,
    /// True if there is a taint to look after.
    pub(super) is_needed: bool,
}
