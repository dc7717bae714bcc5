//! Requests that failed, and the pauses before winpool sends them again.

use std::time::{Duration, Instant};

use crate::api::{ObjectReference, Problem, names::reason};

use super::step::{Refusal, Step};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// A kind of request for a pool that is retried after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RequestKind {
    Read,
    Finalizer,
    Nodes,
    Status,
}

impl RequestKind {
    pub(super) fn of(step: &Step) -> Option<Self> {
        match step {
            Step::ReadPool { .. } => Some(Self::Read),
            Step::SetFinalizer(_) => Some(Self::Finalizer),
            Step::ListLabelledNodes => Some(Self::Nodes),
            Step::WriteStatus { .. } => Some(Self::Status),
            Step::Class(_) | Step::Publish(_) | Step::Wait(_) => None,
        }
    }

    /// True if it writes the pool.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Finalizer | Self::Status)
    }
}

/// A request that failed, with the time of the next attempt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Retry {
    /// The number of failures in a row.
    pub(super) failures: u32,
    pub(super) until: Instant,
    pub(super) refusal: Refusal,
}

impl Refusal {
    /// The reason, as a message.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Denied(message) | Self::Failed(message) => message,
            Self::Conflict | Self::Gone => "the object keeps changing",
        }
    }

    /// The pause after this many failures in a row: half a second after the first, then twice as long each time, up to
    /// a minute.
    pub(super) fn pause(&self, failures: u32, patience: Duration) -> Duration {
        let doublings = failures.saturating_sub(1).min(10);
        if matches!(self, Self::Denied(_)) { patience } else { LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(doublings)) }
    }
}

/// The problem for a write that failed and is retried.
pub(super) fn write_failed(object: ObjectReference, message: &str) -> Problem {
    let message = format!("the API server did not accept the change, winpool tries again: {message}");
    Problem::new(reason::WRITE_FAILED, object, message)
}
