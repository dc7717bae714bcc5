//! Errors of Windows pods, and what they mean.

use serde::Serialize;

/// A known error of Windows pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KnownError {
    /// Words by which it is recognised in a message.
    pub error: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

const NO_VARIANT: &str = "the image has no variant for this node: it is a Linux image, or one for other Windows builds";
const OTHER_BUILD: &str =
    "the image is for another Windows build than the node's, and process isolation needs the same one";

const ERRORS: &[KnownError] = &[
    KnownError { error: "no match for platform in manifest", meaning: NO_VARIANT },
    KnownError { error: "no matching manifest for windows", meaning: NO_VARIANT },
    KnownError { error: "0xc0370101", meaning: OTHER_BUILD },
    KnownError { error: "container does not match the operating system of the host", meaning: OTHER_BUILD },
    KnownError {
        error: "PodOSNotSupported",
        meaning: "spec.os.name is not the operating system of the node: the kubelet refused the pod",
    },
    KnownError {
        error: "PodOSSelectorNodeLabelDoesNotMatch",
        meaning: "the pod's own label kubernetes.io/os is not that of the node: the kubelet refused the pod",
    },
];

/// Returns the known error that a message tells of.
#[must_use]
pub fn known_error(message: &str) -> Option<KnownError> {
    ERRORS.iter().find(|known| message.contains(known.error)).copied()
}
