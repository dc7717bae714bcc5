//! Events about pods: what their own status does not say.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use crate::{
    plan::now::Now,
    pod::{Cause, KnownError, known_error},
};

/// The reasons of the Events that winpool watches. The status of a pod does not say why it has no sandbox, or why a kubelet that
/// started has ended it.
pub const REASONS: [&str; 2] = ["FailedCreatePodSandBox", "NodeAffinity"];

/// A Warning about a pod with one of these reasons.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodEvent {
    pub namespace: String,
    pub pod: String,
    /// The node whose kubelet wrote it.
    pub node: String,
    pub reason: String,
    pub message: String,
    /// The times of the first and the last one like it.
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
}

impl PodEvent {
    /// The known error that it reports.
    pub(super) fn error(&self) -> Option<&'static KnownError> {
        let is_of_sandbox =
            |error: &&KnownError| matches!(error.counted, Some((Cause::PauseImage | Cause::Network, _)));
        if self.is_end() { known_error(&self.reason) } else { known_error(&self.message).filter(is_of_sandbox) }
    }

    /// True if the kubelet has ended the pod.
    pub(super) fn is_end(&self) -> bool {
        self.reason == "NodeAffinity"
    }

    /// The moment of the last one like it.
    pub(super) fn seen(&self, now: Now) -> Instant {
        moment(self.last.or(self.first), now)
    }

    /// The moment of the first one like it.
    pub(super) fn began(&self, now: Now) -> Instant {
        moment(self.first, now)
    }
}

/// The moment of this time; now if it is not known or in the future.
pub(super) fn moment(time: Option<Timestamp>, now: Now) -> Instant {
    let age = time.and_then(|time| now.time.duration_since(time).try_into().ok()).unwrap_or_default();
    now.instant.checked_sub(age).unwrap_or(now.instant)
}
