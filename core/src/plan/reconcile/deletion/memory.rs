//! The state of a deletion between steps.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::plan::reconcile::step::Refusal;

/// The state of a deletion.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct DeletionMemory {
    pub(in super::super) started: Option<Instant>,
    /// The time without progress while the API server answered.
    pub(in super::super) idle: Duration,
    pub(in super::super) answered: Option<Instant>,
    /// The amount that was left at the last progress.
    pub(in super::super) left: Option<usize>,
    /// Nodes with the pool's label, and the time at which they were listed.
    pub(in super::super) labelled: Option<(BTreeSet<String>, Instant)>,
}

impl DeletionMemory {
    pub(in super::super) fn answered(&mut self, now: Instant) {
        if self.started.is_none() {
            return;
        }
        self.idle += self.answered.map_or(Duration::ZERO, |last| now.duration_since(last));
        self.answered = Some(now);
    }

    /// Records that the probe was not accepted. A refusal is an answer too.
    pub(in super::super) fn refused(&mut self, refusal: &Refusal, now: Instant) {
        match refusal {
            Refusal::Denied(_) => self.answered(now),
            _ => self.answered = None,
        }
    }

    pub(in super::super) fn listed(&mut self, nodes: BTreeSet<String>, now: Instant) {
        self.answered(now);
        self.labelled = Some((nodes, now));
    }

    /// True if it has taken too long: from then on it waits for nothing.
    pub(in super::super) fn is_overdue(&self, patience: Duration) -> bool {
        self.idle >= patience
    }

    /// Counts as progress if less is `left` than before. Winpool's own release of an overdue deletion is no progress.
    pub(in super::super) fn progress(&mut self, left: usize, patience: Duration) {
        if !self.is_overdue(patience) && self.left.is_none_or(|before| left < before) {
            self.left = Some(left);
            self.idle = Duration::ZERO;
        }
    }
}
