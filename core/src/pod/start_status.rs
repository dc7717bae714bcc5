//! The part of the status of a pod that shows if it starts.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use super::{KnownError, known_error};

/// The reasons of containers that ended because they could not be started. Others wrote their last message themselves.
const NOT_STARTED: [&str; 2] = ["StartError", "ContainerCannotRun"];
/// The reasons of containers that wait while their pod may still have no sandbox.
const BEFORE_SANDBOX: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The part of the status of a pod that shows if it starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartStatus {
    /// The containers that do not run because of known errors.
    pub failures: Vec<ContainerFailure>,
    /// The error for which the kubelet refused the pod.
    pub refusal: Option<&'static KnownError>,
    /// True if the scheduler finds no node.
    pub is_unschedulable: bool,
    /// True if its sandbox was created.
    pub has_sandbox: bool,
}

/// A container that does not run because of a known error.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerFailure {
    pub image: String,
    pub error: &'static KnownError,
}

impl StartStatus {
    pub(super) fn of(status: &PodStatus) -> Self {
        let has = |kind: &str, is: &str| {
            status.conditions.iter().flatten().any(|condition| condition.type_ == kind && condition.status == is)
        };
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let has_failed = status.phase.as_deref() == Some("Failed");
        Self {
            failures: containers().filter_map(failure).collect(),
            refusal: status.reason.as_deref().filter(|_| has_failed).and_then(known_error),
            is_unschedulable: has("PodScheduled", "False"),
            has_sandbox: has("PodReadyToStartContainers", "True") || containers().any(is_past_sandbox),
        }
    }
}

fn failure(status: &ContainerStatus) -> Option<ContainerFailure> {
    let now = status.state.as_ref()?;
    if now.running.is_some() {
        return None;
    }
    // A container that waits for its next attempt shows the last one.
    let before = status.last_state.as_ref().filter(|_| now.waiting.is_some());
    let ended = [Some(now), before].into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    let ended = ended.filter(|ended| ended.reason.as_deref().is_some_and(|reason| NOT_STARTED.contains(&reason)));
    let waiting = now.waiting.as_ref().and_then(|waiting| waiting.message.as_deref());
    let mut messages = waiting.into_iter().chain(ended.filter_map(|ended| ended.message.as_deref()));
    let error = messages.find_map(known_error)?;
    Some(ContainerFailure { image: status.image.clone(), error })
}

fn is_past_sandbox(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| match &state.waiting {
        None => state.running.is_some() || state.terminated.is_some(),
        Some(waiting) => waiting.reason.as_deref().is_some_and(|reason| !BEFORE_SANDBOX.contains(&reason)),
    })
}
