//! Known errors of Windows pods, with their meaning.

use serde::Serialize;

/// A known error of Windows pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KnownError {
    /// The words that identify it in a message.
    pub error: &'static str,
    pub meaning: &'static str,
}

const fn known(error: &'static str, meaning: &'static str) -> KnownError {
    KnownError { error, meaning }
}

const NO_VARIANT: &str = "the image has no variant for this node: it is a Linux image, or one for other Windows builds";
const OTHER_BUILD: &str =
    "the image is for another Windows build than the node's, and process isolation needs the same one";
const OLDER_REVISION: &str =
    "the node has an older update of its Windows build than the image: update the node, or use an older image";

const ERRORS: &[KnownError] = &[
    // containerd, on pull.
    known("no match for platform in manifest", NO_VARIANT),
    known("no matching manifest for windows", NO_VARIANT),
    // The Host Compute Service, at container start: MicrosoftDocs/Virtualization-Documentation,
    // version-compatibility.md.
    known("0xc0370101", OTHER_BUILD),
    known("HCS_E_IMAGE_MISMATCH", OTHER_BUILD),
    known("container does not match the operating system of the host", OTHER_BUILD),
    // actions/runner-images#11582, microsoft/Windows-Containers#591, Azure/AKS#1465.
    known("0xc0370106", OLDER_REVISION),
    known("0xc0370112", OLDER_REVISION),
    // The kubelet: kubernetes/kubernetes pkg/kubelet/lifecycle/predicate.go.
    known("PodOSNotSupported", "spec.os.name is not the operating system of the node: the kubelet refused the pod"),
    known(
        "PodOSSelectorNodeLabelDoesNotMatch",
        "the pod's own label kubernetes.io/os is not that of the node: the kubelet refused the pod",
    ),
];

/// Returns the known error in a message.
#[must_use]
pub fn known_error(message: &str) -> Option<KnownError> {
    ERRORS.iter().find(|known| message.contains(known.error)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_recognised_in_longer_messages() {
        let start = |code: &str| format!("hcs::CreateComputeSystem web: The container ... ({code})");
        for (message, meaning) in [
            (start("0xc0370101"), Some(OTHER_BUILD)),
            (start("0xc0370106"), Some(OLDER_REVISION)),
            (start("0xc0370112"), Some(OLDER_REVISION)),
            (start("HCS_E_IMAGE_MISMATCH"), Some(OTHER_BUILD)),
            ("failed to pull: no match for platform in manifest: not found".to_owned(), Some(NO_VARIANT)),
            ("back-off pulling image".to_owned(), None),
        ] {
            assert_eq!(known_error(&message).map(|known| known.meaning), meaning, "{message}");
        }
    }
}
