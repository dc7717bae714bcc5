//! The requests in flight for nodes.

use std::{fmt, sync::Arc, time::Instant};

use crate::plan::{node::NodePlan, pools::Policy};

use super::step::Attempt;

/// A request in flight for a node, and why it was sent.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) uid: Box<str>,
    pub(super) purpose: Purpose,
}

#[derive(Clone, Debug)]
pub(super) enum Purpose {
    Attempt(Box<Running>),
    /// The plan that another writer reverts, and the end of the back-off.
    FindOtherWriter(Box<NodePlan>, Instant),
}

/// An attempt in progress.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) attempt: Attempt,
    /// The policy that its plan was made by.
    pub(super) by: Arc<Policy>,
    pub(super) pool: Option<String>,
    /// True if a patch of it was accepted.
    pub(super) has_written: bool,
    /// The version that the watch showed when it began.
    pub(super) seen: Box<str>,
}

impl Running {
    pub(super) fn new(attempt: Attempt, by: Arc<Policy>, pool: Option<String>, seen: Box<str>) -> Self {
        Self { attempt, by, pool, has_written: false, seen }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let demands = self.by.demands(self.pool.as_deref());
        write!(f, "{:?} {demands:x} {} {}", self.attempt, self.has_written, self.seen)
    }
}
