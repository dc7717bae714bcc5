//! The known errors of Windows pods that the operator counts. `winpool why` knows others besides.

use schemars::JsonSchema;
use serde::Serialize;

/// A known error of Windows pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KnownError {
    /// The text that identifies it in a message.
    pub error: &'static str,
    /// More texts, one of which is in such a message too, if the first text alone is ambiguous.
    #[serde(skip)]
    pub beside: &'static [&'static str],
    pub meaning: &'static str,
    /// The change or command that fixes it.
    pub remedy: &'static str,
    /// The source of the explanation.
    #[serde(skip)]
    pub source: &'static str,
    /// The place in which the message is found.
    #[serde(skip)]
    pub seen_in: &'static str,
    /// The cause as which the operator counts it. All in [`ERRORS`] have one.
    #[serde(skip)]
    pub counted: Option<Cause>,
}

named! {
    /// A reason why pods fail because of Windows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Cause {
        /// A Linux image on a Windows node.
        LinuxImage = "linux_image",
        /// An image for another Windows build than the node's.
        OtherBuild = "other_build",
        /// One of these two; the text does not show which.
        NoVariant = "no_variant",
        /// The pause image is not for the node's Windows build.
        PauseImage = "pause_image",
        /// The node's network refuses the pod.
        Network = "network",
        /// No node has the labels that the pod selects.
        NoNode = "no_node",
        /// The kubelet refused the pod because of `os.name`.
        OsName = "os_name",
        /// The kubelet refused or ended the pod, because the node lacks labels that the pod selects.
        LabelsChanged = "labels_changed",
    }
}

type Text = &'static str;

const fn known(error: Text, meaning: Text, remedy: Text, source: Text, seen_in: Text, cause: Cause) -> KnownError {
    KnownError { error, beside: &[], meaning, remedy, source, seen_in, counted: Some(cause) }
}

impl KnownError {
    /// True if the message has the error.
    pub fn is_in(&self, message: &str) -> bool {
        let contains = |words: &&str| message.contains(*words);
        contains(&self.error) && (self.beside.is_empty() || self.beside.iter().any(contains))
    }
}

/// An image may be named like a sandbox, but no name contains a space.
const IN_SANDBOX: &[&str] = &["failed to get sandbox image", "create pod sandbox"];

const fn in_sandbox(error: Text, meaning: Text, source: Text) -> KnownError {
    let known = known(error, meaning, OTHER_PAUSE_IMAGE, source, SANDBOX_EVENT, Cause::PauseImage);
    KnownError { beside: IN_SANDBOX, ..known }
}

const fn no_variant(error: Text, source: Text) -> KnownError {
    known(error, NO_VARIANT, OTHER_NODE, source, PULL, Cause::NoVariant)
}

const fn other_build(error: Text) -> KnownError {
    known(error, OTHER_BUILD, OTHER_NODE, HCS, START, Cause::OtherBuild)
}

pub const SANDBOX_EVENT: &str = "Event FailedCreatePodSandBox";
const PULL: &str = "Event Failed, and state.waiting.message of the container";
pub const START: &str = "Event Failed, and lastState.terminated.message of the container";
pub const REFUSED: &str = "Event of that reason, and status.reason of the pod";

const NO_VARIANT: &str = "the image has no variant for this node: it is a Linux image, or one for other Windows builds";
const OTHER_NODE: &str =
    "send the pod to a node of the image's build, with runtimeClassName, or use an image for the node's build";
const OTHER_BUILD: &str =
    "the image is for another Windows build than the node's, and the node does not run images of that build";
const PAUSE_NO_VARIANT: &str =
    "the pause image, which every pod starts with, has no variant for the node's Windows build";
const PAUSE_OTHER_BUILD: &str =
    "the pause image, which every pod starts with, is for another Windows build than the node's";
/// Only 3.10.2 and later have a variant for Windows Server 2025: containerd/containerd#13156.
const OTHER_PAUSE_IMAGE: &str = "configure another pause image in containerd on the node: sandbox_image, in containerd 2 pinned_images.sandbox; Windows \
     Server 2025 needs registry.k8s.io/pause:3.10.2 or later";

const LINUX_IMAGE: &str = "the image is for Linux, and the node runs Windows";
const TO_LINUX: &str = "send the pod to Linux nodes, with nodeSelector kubernetes.io/os, or use an image for Windows";
const NO_NETWORK: &str = "the Host Networking Service of the node refuses to connect the pod to the network";
const REPAIR_NETWORK: &str = "check the network plugin on the node: other pods there fail too if its network is broken";
const OTHER_SYSTEM: &str = "the node runs another operating system than spec.os.name: the kubelet refused the pod";
const SELECT_SYSTEM: &str = "select the operating system, with nodeSelector kubernetes.io/os or a RuntimeClass: the scheduler does not read os.name";
const LABELS_CHANGED: &str =
    "the node lacks labels that the pod selects: the kubelet refused it, or ended it when the node started again";
const SELECT_LABELS: &str = "let the workload select labels that the node has, or use a RuntimeClass";

const CONTAINERD: &str = "containerd, module github.com/containerd/platforms";
const DISTRIBUTION: &str = "moby/moby, distribution/pull_v2.go";
const HCN: &str = "microsoft/hcsshim, hcn/hcnerrors.go";
const HCS: &str = "learn.microsoft.com/virtualization/api/hcs/reference/hcshresult";
pub const KUBELET: &str = "kubernetes/kubernetes, pkg/kubelet/lifecycle/predicate.go";
const PAUSE: &str = "kubernetes/kubernetes#99157";

/// The counted errors. If a message contains several, the first one explains it.
pub const ERRORS: &[KnownError] = &[
    in_sandbox("no match for platform", PAUSE_NO_VARIANT, CONTAINERD),
    in_sandbox("no matching manifest", PAUSE_NO_VARIANT, "rancher/rancher#23161"),
    in_sandbox("0xc0370101", PAUSE_OTHER_BUILD, PAUSE),
    in_sandbox("operating system does not match", PAUSE_OTHER_BUILD, PAUSE),
    KnownError {
        beside: &["hcn", "HNS"],
        ..known("failed to setup network for sandbox", NO_NETWORK, REPAIR_NETWORK, HCN, SANDBOX_EVENT, Cause::Network)
    },
    KnownError {
        beside: &["cannot find the path"],
        ..known("hcsshim::ProcessBaseLayer", LINUX_IMAGE, TO_LINUX, "microsoft/hcsshim#2226", PULL, Cause::LinuxImage)
    },
    no_variant("no match for platform", CONTAINERD),
    no_variant("no matching manifest", DISTRIBUTION),
    other_build("0xc0370101"),
    other_build("HCS_E_IMAGE_MISMATCH"),
    other_build("container does not match the operating system of the host"),
    other_build("container operating system does not match the host operating system"),
    known("PodOSNotSupported", OTHER_SYSTEM, SELECT_SYSTEM, KUBELET, REFUSED, Cause::OsName),
    known("NodeAffinity", LABELS_CHANGED, SELECT_LABELS, "kubernetes/kubernetes#124586", REFUSED, Cause::LabelsChanged),
];

pub fn known_error(message: &str) -> Option<&'static KnownError> {
    ERRORS.iter().find(|known| known.is_in(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_recognised_in_longer_messages() {
        let start = |code: &str| format!("hcs::CreateComputeSystem web: The container ... ({code})");
        for (message, meaning) in [
            (start("0xc0370101"), Some(OTHER_BUILD)),
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
    }

    #[test]
    fn every_error_has_a_cause() {
        assert!(ERRORS.iter().all(|known| known.counted.is_some()));
    }
}
