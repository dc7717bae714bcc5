//! The result of a task that the pool loop started.

use std::collections::BTreeMap;

use winpool_core::plan::{
    CheckAnswer,
    reconcile::{Answer, ControlPlaneInfo, Step},
};

/// The result of a task that was started.
pub(super) enum TaskResult {
    /// A step of a pool with its answer and, if it failed, one word for metrics.
    Step {
        pool: String,
        step: Step,
        answer: Answer,
        error: Option<&'static str>,
    },
    Checked(Result<BTreeMap<String, CheckAnswer>, String>),
    Asked {
        pool: String,
        are_settled: bool,
    },
    ControlPlane(ControlPlaneInfo),
    /// An Event was written, or the term of leadership ended before.
    Nothing,
}
