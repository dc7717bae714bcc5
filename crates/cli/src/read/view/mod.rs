//! Reads a live cluster or manifests into one view.

mod assembled;
mod autoscalers;
mod cluster;
mod event;
mod everything;
mod manifests;
mod needs;
mod seen;

use std::io::{self, Read};
use std::path::PathBuf;

use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::wellformed::FIELD_TYPE;
use winpool_analysis::workload::DEFAULT_NAMESPACE;

use crate::manifests::InputError;
use crate::print::progress;

pub use autoscalers::read as autoscalers;
pub use cluster::{
    RulesScope, add_namespace, add_related, api_of, decisions, placement, pools, resource, resource_of, rules, state,
    surroundings, typed,
};
pub use event::pod_event;
pub use everything::everything;
pub use needs::{Decisions, Everything, Fixes, Needs, Placement, Rules};
pub use seen::Seen;

/// The note about manifests without nodes.
pub const WITHOUT_NODES: &str =
    "The manifests have no nodes that winpool can read, so it does not know which nodes the cluster has.";

/// The note about manifests without pools.
pub const WITHOUT_POOLS: &str =
    "The manifests have no WindowsPool that winpool can read, so it does not know which pools the cluster has.";

impl Seen {
    /// Reads manifests. `namespace` is that of objects that name none.
    pub fn in_manifests<N: Needs>(paths: &[PathBuf], namespace: &str) -> Result<Self, InputError> {
        manifests::read::<N>(paths, io::stdin().lock(), namespace)
    }

    /// Reads manifests for a cluster of this version. `stdin` is read in place of `-`.
    pub fn of_version<N: Needs>(
        paths: &[PathBuf],
        stdin: impl Read,
        version: Option<KubernetesVersion>,
    ) -> Result<Self, InputError> {
        let mut seen = manifests::read::<N>(paths, stdin, DEFAULT_NAMESPACE)?;
        seen.view.kubernetes = version;
        Ok(seen)
    }

    /// Reads manifests in this text.
    pub fn in_text<N: Needs>(text: &str) -> Result<Self, InputError> {
        manifests::read::<N>(&["-".into()], text.as_bytes(), DEFAULT_NAMESPACE)
    }

    /// Reads manifests for the operator's decisions.
    pub fn decisions_in(paths: &[PathBuf]) -> Result<Self, InputError> {
        Self::in_manifests::<Decisions>(paths, DEFAULT_NAMESPACE)
    }

    /// Tells the user which pools are not valid, for commands that leave them out.
    pub fn note_invalid_pools(&mut self) {
        for error in self.view.guarded().into_iter().flatten().filter_map(|pool| pool.read().err()) {
            progress::note(&error.to_string());
            self.gaps.in_cluster = true;
        }
    }

    /// Tells the user which workloads cannot be read, for commands without findings.
    pub fn note_unread(&mut self) {
        // Patches of kustomize have no pod spec.
        for (source, finding) in self.view.refused.iter().filter(|(_, finding)| finding.rule == FIELD_TYPE) {
            progress::note(&format!("{source}: {}, {}: {}", finding.object, finding.field, finding.message));
            self.gaps.in_manifests = true;
        }
    }
}
