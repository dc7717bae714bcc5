//! The groups of `winpool blockers`: pinned, not known to run elsewhere, and able to move.

use winpool_core::windows::Build;

use crate::lint::facts::Facts;
use crate::view::Started;
use crate::workload::WorkloadManifest;

use super::{Blocker, Evidence, blockers, departure, unknown_class};

/// The group of a workload in the answer: pinned to a Windows version, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Group {
    Pinned(Blocker),
    /// winpool cannot tell if it runs on other nodes; with the reason, and how to find out.
    Unknown(String),
    CanMove(Evidence),
}

/// Returns the group of a workload; `None` if it does not need the nodes of `retired`. `started` has the nodes on which
/// containers have started.
pub fn group(
    workload: &WorkloadManifest<'_>,
    facts: &Facts,
    started: &Started,
    retired: Build,
    target: Option<Build>,
) -> Option<Group> {
    if let Some(blocker) = blockers(workload, facts, retired, target) {
        return Some(Group::Pinned(blocker));
    }
    if let Some(name) = unknown_class(workload, facts) {
        return Some(Group::Unknown(format!(
            "RuntimeClass {name} is not known: add it or the WindowsPools to the manifests, or ask the cluster"
        )));
    }
    departure(workload, facts, retired, target, &started.builds(&workload.object().to_string()))
}
