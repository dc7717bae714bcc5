//! The known errors of Windows pods, for `why pod` and the page `docs/reference/errors.md`.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use crate::api::reference::prose;

/// A known error of Windows pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KnownError {
    /// The text that identifies it in a message.
    pub error: &'static str,
    /// More text in such a message, if the first text alone is ambiguous.
    #[serde(skip)]
    pub beside: Option<&'static str>,
    pub meaning: &'static str,
    /// The remedy.
    pub remedy: &'static str,
    /// The source of the explanation.
    #[serde(skip)]
    pub source: &'static str,
}

impl KnownError {
    /// Returns the texts that identify it, as Markdown.
    fn texts(&self) -> String {
        let beside = self.beside.map(|words| format!(" with `{words}`")).unwrap_or_default();
        format!("`{}`{beside}", self.error)
    }
}

const fn known(error: &'static str, meaning: &'static str, remedy: &'static str, source: &'static str) -> KnownError {
    KnownError { error, beside: None, meaning, remedy, source }
}

const fn in_sandbox(error: &'static str, meaning: &'static str, source: &'static str) -> KnownError {
    KnownError { error, beside: Some("sandbox"), meaning, remedy: OTHER_PAUSE_IMAGE, source }
}

const NO_VARIANT: &str = "the image has no variant for this node: it is a Linux image, or one for other Windows builds";
const OTHER_NODE: &str =
    "send the pod to a node of the image's build, with runtimeClassName, or use an image for the node's build";
const OTHER_BUILD: &str =
    "the image is for another Windows build than the node's, and process isolation requires the same build";
const OLDER_REVISION: &str = "often the node has an older update of its Windows build than the image";
const UPDATE: &str = "update the node, or use an older image of the same build";
const PAUSE_NO_VARIANT: &str =
    "the pause image, which every pod starts with, has no variant for the node's Windows build";
const PAUSE_OTHER_BUILD: &str =
    "the pause image, which every pod starts with, is for another Windows build than the node's";
/// Only 3.10.2 and later have a variant for Windows Server 2025: containerd/containerd#13156.
const OTHER_PAUSE_IMAGE: &str = "configure another pause image in containerd on the node: sandbox_image, in containerd 2 pinned_images.sandbox; Windows \
     Server 2025 needs registry.k8s.io/pause:3.10.2 or later";

const CONTAINERD: &str = "containerd, module github.com/containerd/platforms";
const DISTRIBUTION: &str = "moby/moby, distribution/pull_v2.go";
const HCS: &str = "learn.microsoft.com/virtualization/api/hcs/reference/hcshresult";
const KUBELET: &str = "kubernetes/kubernetes, pkg/kubelet/lifecycle/predicate.go";
const PAUSE: &str = "kubernetes/kubernetes#99157";

/// The known errors. If a message contains several, the first one explains it.
pub const ERRORS: &[KnownError] = &[
    in_sandbox("no match for platform", PAUSE_NO_VARIANT, CONTAINERD),
    in_sandbox("no matching manifest", PAUSE_NO_VARIANT, "rancher/rancher#23161"),
    in_sandbox("0xc0370101", PAUSE_OTHER_BUILD, PAUSE),
    in_sandbox("operating system does not match", PAUSE_OTHER_BUILD, PAUSE),
    KnownError {
        error: "no runtime for",
        beside: Some("is configured"),
        meaning: "the node's container runtime does not have the handler of the pod's RuntimeClass",
        remedy: "configure the handler in containerd on the node, or use a RuntimeClass with another handler",
        source: "containerd, internal/cri/server/sandbox_run.go",
    },
    known("no match for platform", NO_VARIANT, OTHER_NODE, CONTAINERD),
    known("no matching manifest", NO_VARIANT, OTHER_NODE, DISTRIBUTION),
    known("0xc0370101", OTHER_BUILD, OTHER_NODE, HCS),
    known("HCS_E_IMAGE_MISMATCH", OTHER_BUILD, OTHER_NODE, HCS),
    known("container does not match the operating system of the host", OTHER_BUILD, OTHER_NODE, HCS),
    known("container operating system does not match the host operating system", OTHER_BUILD, OTHER_NODE, HCS),
    known(
        "0xc0370106",
        OLDER_REVISION,
        UPDATE,
        "actions/runner-images#11582, microsoft/Windows-Containers#591, Azure/AKS#1465",
    ),
    known(
        "0xc0370112",
        "Windows on the node cannot read a layer of the image, which is often for another build, or for a newer update",
        "update the node, or use an image for the node's build",
        "microsoft/hcsshim#2566",
    ),
    known(
        "PodOSNotSupported",
        "the node runs another operating system than spec.os.name: the kubelet refused the pod",
        "select the operating system, with nodeSelector kubernetes.io/os or a RuntimeClass: the scheduler does not read os.name",
        KUBELET,
    ),
    known(
        "PodOSSelectorNodeLabelDoesNotMatch",
        "the pod's own label kubernetes.io/os is not that of the node: the kubelet refused the pod",
        "remove the pod's label kubernetes.io/os",
        KUBELET,
    ),
];

pub fn known_error(message: &str) -> Option<KnownError> {
    let contains = |words: &str| message.contains(words);
    ERRORS.iter().find(|known| contains(known.error) && known.beside.is_none_or(contains)).copied()
}

/// Returns the table as Markdown. Errors with the same meaning and remedy share a row.
pub fn reference() -> String {
    let mut text = "<!-- Written by `make generate` from core/src/pod/errors.rs. -->\n# Errors of Windows pods\n\n\
        If the status or the Events of a pod have one of these errors, `winpool why pod/NAME` shows what it means.\n\
        If two texts are joined by \"with\", the message has both.\n\n\
        | Error | Meaning | Remedy | Source |\n|---|---|---|---|\n"
        .to_owned();
    for group in ERRORS.chunk_by(|a, b| (a.meaning, a.remedy) == (b.meaning, b.remedy)) {
        let Some(KnownError { meaning, remedy, .. }) = group.first() else { continue };
        let errors: Vec<String> = group.iter().map(KnownError::texts).collect();
        let mut sources: Vec<&str> = group.iter().map(|known| known.source).collect();
        sources.dedup();
        let (errors, sources) = (errors.join("; "), sources.join(", "));
        // Writing to a String never fails.
        let _ = writeln!(text, "| {errors} | {} | {} | {sources} |", sentence(meaning), sentence(remedy));
    }
    text
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    prose(&format!("{}.", first.into_iter().chain(letters).collect::<String>()))
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
            (start("HCS_E_IMAGE_MISMATCH"), Some(OTHER_BUILD)),
            ("failed to pull: no match for platform in manifest: not found".to_owned(), Some(NO_VARIANT)),
            ("no matching manifest for windows/amd64 10.0.17763 in the manifest list entries".to_owned(), Some(NO_VARIANT)),
            (
                "Failed to create pod sandbox: failed to get sandbox image \"pause:3.8\": no match for platform in manifest".to_owned(),
                Some(PAUSE_NO_VARIANT),
            ),
            (format!("Failed to create pod sandbox: {}", start("0xc0370101")), Some(PAUSE_OTHER_BUILD)),
            ("back-off pulling image".to_owned(), None),
        ] {
            assert_eq!(known_error(&message).map(|known| known.meaning), meaning, "{message}");
        }
        let handler = known_error("Failed to create pod sandbox: no runtime for \"x\" is configured").unwrap();
        assert_eq!(handler.error, "no runtime for");
    }

    #[test]
    fn every_error_explains_itself() {
        for known in ERRORS {
            let message = format!("{} {}", known.error, known.beside.unwrap_or_default());
            assert_eq!(known_error(&message), Some(*known), "an error above explains it");
            for text in [known.meaning, known.remedy, known.source] {
                assert!(!text.is_empty() && !text.ends_with('.') && !text.contains('|'), "{text}");
            }
        }
    }
}
