//! What the status of a pod, and Events about it, report against it.

use k8s_openapi::{
    api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus},
    jiff::Timestamp,
};
use winpool_core::pod::{KnownError, PodProgress, known_error};

use super::Pod;

/// The reasons of containers that wait for their turn.
const IN_ORDER: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The reasons of Events with which a kubelet reports that a pod has its sandbox and volumes.
const PROGRESS: [&str; 4] = ["Pulling", "Pulled", "Created", "Started"];

/// An error of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodError {
    /// The container that has it; `None` for the whole pod.
    pub container: Option<String>,
    /// Such as `ErrImagePull`.
    pub reason: String,
    pub message: String,
    /// The meaning, if winpool knows the error.
    pub known: Option<KnownError>,
    /// True if the pod still has it.
    pub is_present: bool,
    /// The time of the Event that reports it.
    pub reported: Option<Timestamp>,
}

/// An Event about a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodEvent {
    pub namespace: String,
    pub pod: String,
    /// The uid of the pod; empty if the Event does not name it.
    pub uid: String,
    /// The container, if the Event is about one.
    pub container: Option<String>,
    pub is_warning: bool,
    pub reason: String,
    pub message: String,
    /// The time of the last one like it.
    pub last: Option<Timestamp>,
}

/// Returns the errors in a status.
pub(super) fn errors_of(status: &PodStatus) -> Vec<PodError> {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut errors: Vec<PodError> = containers.flat_map(of_container).collect();
    let is_present = status.phase.as_deref() == Some("Failed");
    let (reason, message) = (status.reason.clone().unwrap_or_default(), status.message.clone().unwrap_or_default());
    let known = known_error(&reason).or_else(|| known_error(&message)).copied();
    if known.is_some() || is_present && !reason.is_empty() {
        errors.push(PodError { container: None, reason, message, known, is_present, reported: None });
    }
    errors
}

/// Returns the known errors in the states of a container, and the one that keeps it from running.
fn of_container(status: &ContainerStatus) -> Vec<PodError> {
    let state = |state: &Option<_>| state.clone().unwrap_or_default();
    let (now, before) = (state(&status.state), state(&status.last_state));
    let is_present = now.running.is_none();
    let waiting = now.waiting.map(|waiting| (waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default()));
    let ended = [now.terminated, before.terminated].into_iter().flatten().map(|state| ended(&state));
    let mut errors: Vec<PodError> = Vec::new();
    for (reason, message) in waiting.into_iter().chain(ended) {
        let known = known_error(&message).copied();
        let container = Some(status.name.clone());
        errors.push(PodError { container, reason, message, known, is_present, reported: None });
    }
    let is_in_order = |error: &PodError| IN_ORDER.contains(&error.reason.as_str()) || error.reason == COMPLETED;
    errors.retain(|error| error.known.is_some() || error.is_present && !is_in_order(error));
    errors
}

/// The reason of a container that has ended without an error.
const COMPLETED: &str = "Completed";

/// Returns reason and message of a container that has ended.
fn ended(ended: &ContainerStateTerminated) -> (String, String) {
    if ended.exit_code == 0 {
        return (COMPLETED.to_owned(), String::new());
    }
    let code = format!("exit code {}", ended.exit_code);
    let message = ended.message.as_deref().filter(|message| !message.trim().is_empty());
    let reason = ended.reason.clone().unwrap_or_else(|| "Error".to_owned());
    (reason, message.map_or_else(|| code.clone(), |message| format!("{code}: {message}")))
}

impl Pod {
    /// Adds what an Event about this pod says: a known error, the scheduler's reason if the status does not have it, and any
    /// other warning while no container has started and the pod has made no progress since. Only an Event reports a sandbox that cannot
    /// be created. Has no effect if the Event is about another pod, or about an earlier one with the same name.
    pub fn note(&mut self, event: &PodEvent) {
        let is_earlier = if event.uid.is_empty() || self.uid.is_empty() {
            event.last.zip(self.created).is_some_and(|(last, created)| last < created)
        } else {
            event.uid != self.uid
        };
        if event.pod != self.name || event.namespace != self.namespace || is_earlier {
            return;
        }
        if PROGRESS.contains(&event.reason.as_str()) {
            self.progressed = self.progressed.max(event.last);
            for error in &mut self.errors {
                error.is_present &= error.reported.is_none() || error.reported >= self.progressed;
            }
            return;
        }
        // The scheduler's messages contain the names of its plugins, such as NodeAffinity.
        if event.reason == "FailedScheduling" {
            self.unschedulable.get_or_insert_with(|| event.message.clone());
            return;
        }
        let known = known_error(&event.message).or_else(|| known_error(&event.reason)).copied();
        let is_over = event.last.is_some() && event.last < self.progressed;
        let is_present = self.progress == PodProgress::Waiting && self.spec.node.is_some() && !is_over;
        let is_of_same = |error: &PodError| event.container.is_some() && error.container == event.container;
        let has_same = |error: &PodError| match known {
            Some(known) => error.known == Some(known),
            None => error.is_present && (is_of_same(error) || error.reason == event.reason),
        };
        if known.is_none() && !(event.is_warning && is_present) || self.errors.iter().any(has_same) {
            return;
        }
        let PodEvent { container, reason, message, last: reported, .. } = event.clone();
        self.errors.push(PodError { container, reason, message, known, is_present, reported });
    }
}
