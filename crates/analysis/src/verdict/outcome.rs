//! The nodes on which new pods run, in a word.

use schemars::JsonSchema;
use serde::Serialize;

use super::Verdict;

/// The nodes on which new pods of a workload run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
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
    #[default]
    Unknown,
}

impl PodOutcome {
    /// True if pods run, perhaps only on the new nodes.
    pub fn runs(self) -> bool {
        matches!(self, Self::Runs | Self::NewNodesOnly)
    }

    /// Returns the outcome of pods that can be scheduled on these nodes. Each value says whether they start there.
    pub(crate) fn on(nodes: impl Iterator<Item = Option<bool>>) -> Self {
        nodes.fold(Self::NoNode, |found, starts| match (found, starts) {
            (Self::MayNotStart, _) | (_, Some(false)) => Self::MayNotStart,
            (Self::Unknown, _) | (_, None) => Self::Unknown,
            _ => Self::Runs,
        })
    }
}

impl Verdict<'_> {
    /// Returns where the pods run, whatever the versions of nodes.
    pub fn outcome(&self) -> PodOutcome {
        let possible = self.nodes.iter().filter(|on| on.is_possible() && self.refused.is_none());
        PodOutcome::on(possible.map(|on| on.starts))
    }
}
