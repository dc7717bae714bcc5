//! The result of a task that the pool loop started.

use winpool_core::plan::reconcile::{Answer, ControlPlaneInfo, Step};

/// The result of a task that was started.
pub(super) enum TaskResult {
    /// A step of a pool with its answer and, if it failed, one word for metrics.
    Step {
        pool: String,
        step: Step,
        answer: Answer,
        error: Option<&'static str>,
    },
    ControlPlane(ControlPlaneInfo),
    /// An Event was written, or the term of leadership ended before.
    Nothing,
}
