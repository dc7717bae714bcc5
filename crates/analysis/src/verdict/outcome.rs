//! The nodes on which new pods run, in a word.

use schemars::JsonSchema;
use serde::Serialize;

use super::Verdict;

/// The nodes on which new pods of a workload run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum PodOutcome {
    /// They start on every node on which they can be scheduled.
    Runs,
    /// They can be scheduled only on nodes with the version of today.
    OldNodesOnly,
    /// They can be scheduled only on nodes with the new version.
    NewNodesOnly,
    /// They can be scheduled on no node.
    NoNode,
    /// They can be scheduled on a node on which they do not start.
    MayNotStart,
    /// It is not known whether they can be scheduled, or whether they start.
    Unknown,
}

impl PodOutcome {
    /// True if pods run, perhaps only on the new nodes.
    pub fn runs(self) -> bool {
        matches!(self, Self::Runs | Self::NewNodesOnly)
    }
}

impl Verdict<'_> {
    /// Returns where the pods run, whatever the versions of nodes.
    pub fn outcome(&self) -> PodOutcome {
        let possible = || self.nodes.iter().filter(|on| on.is_possible() && self.refused.is_none());
        if possible().next().is_none() {
            PodOutcome::NoNode
        } else if possible().any(|on| on.starts == Some(false)) {
            PodOutcome::MayNotStart
        } else if possible().any(|on| on.starts.is_none()) {
            PodOutcome::Unknown
        } else {
            PodOutcome::Runs
        }
    }
}
