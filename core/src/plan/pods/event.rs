//! Events about pods without a sandbox. Everything else that counts is in the status of the pod.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use crate::{
    plan::now::Now,
    pod::{Cause, KnownError, known_error},
};

/// The reason of the Events that winpool watches. While a pod has no sandbox, its own status does not say why.
pub const SANDBOX_FAILED: &str = "FailedCreatePodSandBox";

/// A Warning that the sandbox of a pod cannot be created.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodEvent {
    pub namespace: String,
    pub pod: String,
    /// The node whose kubelet wrote it.
    pub node: String,
    pub message: String,
    /// The time of the first one like it.
    pub first: Option<Timestamp>,
}

impl PodEvent {
    /// The known error of a sandbox that it reports.
    pub(super) fn error(&self) -> Option<&'static KnownError> {
        let is_of_sandbox =
            |error: &&KnownError| matches!(error.counted, Some((Cause::PauseImage | Cause::Network, _)));
        known_error(&self.message).filter(is_of_sandbox)
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
