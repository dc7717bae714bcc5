//! What the status of a pod, and Events about it, report against it.

use k8s_openapi::jiff::Timestamp;
use winpool_core::pod::errors::{ERRORS, KUBELET, REFUSED, SANDBOX_EVENT, START};
use winpool_core::pod::{ContainerStatus, KnownError, PodProgress, PodStatus, StateReason};

use super::Pod;

/// The reasons of containers that wait for their turn.
const IN_ORDER: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The reasons of Events with which a kubelet reports that a pod has its sandbox and volumes.
const PROGRESS: [&str; 4] = ["Pulling", "Pulled", "Created", "Started"];

/// What a container has done that ends without an error again and again.
const ENDED: &str = "the program ended with exit code 0";

/// The known errors that the operator does not count.
const UNCOUNTED: &[KnownError] = &[
    KnownError {
        error: ENDED,
        beside: &[],
        meaning: "the program of the container ends without an error, and the kubelet starts it again",
        remedy: "run a program that does not end: base images such as servercore and nanoserver start cmd, which ends at once. For \
                 a task that ends, use a Job",
        source: "microsoft/Windows-Containers#403",
        seen_in: "container status",
        counted: None,
    },
    KnownError {
        error: "vpc.amazonaws.com/PrivateIPv4Address",
        beside: &["does not have label"],
        meaning: "EKS has given the pod no address: its webhook requests one only for pods that select Windows by nodeSelector",
        remedy: "set nodeSelector kubernetes.io/os: windows, or linux for a Linux pod, in the workload, and recreate the pod",
        source: "aws/amazon-vpc-resource-controller-k8s, webhooks/core/pod_webhook.go",
        seen_in: SANDBOX_EVENT,
        counted: None,
    },
    KnownError {
        error: "no runtime for",
        beside: &["is configured"],
        meaning: "the node's container runtime does not have the handler of the pod's RuntimeClass",
        remedy: "configure the handler in containerd on the node, or use a RuntimeClass with another handler",
        source: "containerd, internal/cri/server/sandbox_run.go",
        seen_in: SANDBOX_EVENT,
        counted: None,
    },
    KnownError {
        error: "0xc0370106",
        beside: &[],
        meaning: "the container could not be started; a frequent cause is that the node has an older update of its Windows \
                  build than the image",
        remedy: "update the node, or use an older image of the same build",
        source: "actions/runner-images#11582, microsoft/Windows-Containers#591, Azure/AKS#1465",
        seen_in: START,
        counted: None,
    },
    KnownError {
        error: "0xc0370112",
        beside: &[],
        meaning: "Windows on the node cannot read a layer of the image, which is often for another build, or for a newer update",
        remedy: "update the node, or use an image for the node's build",
        source: "microsoft/hcsshim#2566",
        seen_in: START,
        counted: None,
    },
    KnownError {
        error: "PodOSSelectorNodeLabelDoesNotMatch",
        beside: &[],
        meaning: "the pod's own label kubernetes.io/os is not that of the node: the kubelet refused the pod",
        remedy: "remove the pod's label kubernetes.io/os",
        source: KUBELET,
        seen_in: REFUSED,
        counted: None,
    },
];

/// All known errors. If a message contains several, the first one explains it.
pub fn all_errors() -> impl Iterator<Item = &'static KnownError> {
    UNCOUNTED.iter().chain(ERRORS)
}

pub fn known_error(message: &str) -> Option<&'static KnownError> {
    all_errors().find(|error| error.is_in(message))
}

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
    let has_ended = before.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0);
    let waiting = now.waiting.map(|waiting| match waiting.reason.unwrap_or_default() {
        reason if reason == "CrashLoopBackOff" && has_ended => (reason, ENDED.to_owned()),
        reason => (reason, waiting.message.unwrap_or_default()),
    });
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
fn ended(ended: &StateReason) -> (String, String) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_the_operator_does_not_count_is_known_too() {
        for (message, error) in [
            ("Failed to create pod sandbox: no runtime for \"x\" is configured", "no runtime for"),
            ("hcs::CreateComputeSystem web: The container ... (0xc0370106)", "0xc0370106"),
            ("hcs::CreateComputeSystem web: The container ... (0xc0370101)", "0xc0370101"),
        ] {
            assert_eq!(known_error(message).map(|known| known.error), Some(error), "{message}");
        }
    }

    #[test]
    fn every_error_explains_itself() {
        for known in all_errors() {
            let message = format!("{} {}", known.error, known.beside.first().unwrap_or(&""));
            assert_eq!(known_error(&message), Some(known), "an error above explains it");
            for text in [known.meaning, known.remedy, known.source, known.seen_in] {
                assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('|'), "{text}");
            }
        }
    }
}
