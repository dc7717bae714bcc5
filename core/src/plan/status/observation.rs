//! The observed state of a pool, from which its status follows.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::{NodeCounts, Problem, RuntimeClassStatus, Taint, TaintStatus},
    windows::{Build, KubernetesSupport, KubernetesVersion, Vendor},
};

use super::super::{pods::PodHealth, tally::Overlap};

/// The observed state of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// `metadata.generation` of the pool.
    pub generation: Option<i64>,
    pub nodes: NodeCounts,
    /// Nodes without the right label, including blocked ones.
    pub unlabeled: usize,
    /// Nodes without the right taints, including blocked ones.
    pub untainted: usize,
    /// The Kubernetes version of the cluster, if it could be read.
    pub kubernetes: Option<KubernetesVersion>,
    /// Nodes that this pool selects and an older one owns, with one example.
    pub overlap: Option<Overlap>,
    /// The number of nodes by build and revision; `None` for nodes that report no revision.
    pub builds: BTreeMap<Build, BTreeMap<Option<u32>, usize>>,
    /// The builds that each vendor's nodes run.
    pub vendors: BTreeSet<(Build, Vendor)>,
    /// Windows nodes in the cluster, selected or not.
    pub windows_nodes: usize,
    /// The kinds that winpool cannot read, with the reasons. The rest may be old.
    pub unreadable: BTreeMap<&'static str, String>,
    /// What is seen of each taint. The name, and the time, come with the status.
    pub taints: BTreeMap<Taint, TaintStatus>,
    /// The reason why taints are held, if it is known.
    pub held: Option<HeldTaints>,
    /// The classes after the writes.
    pub classes: Vec<RuntimeClassStatus>,
    /// The names of those that select a capability label.
    pub labelled: Vec<String>,
    /// Problems, the most important first.
    pub problems: Vec<Problem>,
    /// The pods that fail because of Windows.
    pub health: PodHealth,
}

impl Observation {
    /// The support of a build by the Kubernetes version of the cluster.
    pub(super) fn support_of(&self, build: Build) -> KubernetesSupport {
        self.kubernetes.map_or(KubernetesSupport::Unknown, |version| version.support_of(build))
    }
}

/// Taints that wait, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTaints {
    pub taints: BTreeSet<Taint>,
    pub because: HeldBecause,
}

/// The reason why taints wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBecause {
    /// These `DaemonSets` would make no pods for nodes with the taint, each with the number of these nodes.
    DaemonSets(BTreeMap<String, usize>),
    /// winpool cannot read pods or `DaemonSets`; with the reason.
    PodsUnreadable(String),
    /// It is not known that a policy confines winpool's permission to patch pods; with the reason.
    Unconfined(String),
    /// These RuntimeClasses do not tolerate them yet.
    Classes(BTreeSet<String>),
}
