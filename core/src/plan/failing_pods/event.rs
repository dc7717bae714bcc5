//! Events about pods that fail.

use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::validation::{is_dns_label, is_dns_subdomain},
    plan::now::Now,
    pod::{Cause, KnownError, known_error},
};

/// The reasons of Events that winpool watches.
pub const REASONS: [&str; 4] = ["FailedCreatePodSandBox", "Failed", "PodOSNotSupported", "NodeAffinity"];

/// A Warning about a pod.
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
    /// The known error that it reports, if that counts. The API server does not validate what an Event is about.
    pub(super) fn error(&self) -> Option<&'static KnownError> {
        if !is_dns_label(&self.namespace) || !is_dns_subdomain(&self.pod) {
            return None;
        }
        let by_message = known_error(&self.message).filter(|_| !self.is_refusal());
        by_message.or_else(|| known_error(&self.reason)).filter(|error| error.counted.is_some())
    }

    fn is_refusal(&self) -> bool {
        self.reason != "Failed" && self.reason != "FailedCreatePodSandBox"
    }

    /// The moment of the last one like it.
    pub(super) fn seen(&self, now: Now) -> Instant {
        at(self.last.or(self.first), now)
    }

    /// The moment of the first one like it.
    pub(super) fn began(&self, now: Now) -> Instant {
        at(self.first.or(self.last), now)
    }
}

/// True if the kubelet refuses or ends pods with this error for good.
pub(super) fn is_refusal(error: &KnownError) -> bool {
    matches!(error.counted, Some((Cause::OsName | Cause::LabelsChanged, _)))
}

fn at(time: Option<Timestamp>, now: Now) -> Instant {
    let age = time.and_then(|time| now.time.duration_since(time).try_into().ok()).unwrap_or_default();
    now.instant.checked_sub(age).unwrap_or(now.instant)
}
