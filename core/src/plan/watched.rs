//! What this process knows of a node besides its object: the past of its builds, and if pods on it come first.

use std::time::{Duration, Instant};

use crate::{
    api::names,
    windows::{Build, KernelVersion},
};

use super::node::NodeFields;

/// The time for which winpool does not correct a build label that contradicts the node's report. After an in-place
/// upgrade the kubelet writes the label of the new build first, and reports that build 0.2 seconds later.
pub const LABEL_SETTLES: Duration = Duration::from_millis(1500);

/// The source of a node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// A watch event that shows that the node was created.
    Registered,
    /// A watch event; the watch shows all changes in order.
    Changed,
    /// A list, or a repeated assessment: earlier changes are unknown.
    Listed,
}

/// The build in a node's label, the build that it reports, the time until which a contradiction is tolerated, and its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Watched {
    label: Option<Build>,
    reported: Option<Build>,
    settle: Option<Instant>,
    /// True while pods that run on the node are to get tolerations before it gets taints.
    pub(super) awaits_pods: bool,
}

impl Watched {
    /// The past of `node` after it was seen; `before` is its past so far. Only a label that has just changed may contradict
    /// the report for a while. A label that the node registered with, or that stays while the report changes, is wrong.
    pub fn next(before: Option<&Self>, node: &NodeFields, sighting: Sighting, now: Instant) -> Self {
        let label = node.labels.get(names::WINDOWS_BUILD).and_then(|text| text.parse().ok());
        let version = node.kernel_version.as_deref().and_then(|text| text.parse::<KernelVersion>().ok());
        let reported = version.map(|version| version.build);
        let contradicts = label.is_some() && reported.is_some() && label != reported;
        let settle = match before {
            _ if !contradicts || sighting == Sighting::Registered => None,
            Some(before) if before.reported.is_some() && before.reported != reported => None,
            Some(before) if before.label == label || before.settle.is_some() => before.settle,
            _ => Some(now + LABEL_SETTLES),
        };
        Self { label, reported, settle, awaits_pods: before.is_some_and(|before| before.awaits_pods) }
    }

    /// The time until which winpool leaves the build label alone although the node reports another build.
    pub fn label_settles(&self) -> Option<Instant> {
        self.settle
    }
}
