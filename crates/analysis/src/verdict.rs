//! Where new pods run: whether the API server admits them and, for each node, whether they are scheduled there and start.
//!
//! All commands ask here.

mod admitted;
mod cluster;
mod daemon_set;
mod groups;
mod images;
mod kubelet;
mod outcome;
mod remedy;

use crate::kinds::WorkloadKind;
use crate::placement::Obstacle;
use crate::pod::Pod;

pub use admitted::{AdmittedPod, Refused};
pub(crate) use cluster::settled;
pub use cluster::{Cluster, History};
pub use groups::{Asked, Group, one_of_each};
pub use kubelet::{ending, ends_with_upgrade};
pub use outcome::PodOutcome;
pub use remedy::RECREATE;

/// The pods that a question is about.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The pod, or a template as a pod.
    pub pod: &'a Pod,
    pub placed_by: PlacedBy,
    /// Where containers of its workload have started.
    pub history: History,
}

/// The component that decides on which nodes pods run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum PlacedBy {
    /// The scheduler, or the author by `nodeName`.
    Anyone,
    /// The DaemonSet controller, from a template.
    DaemonSet,
    /// The DaemonSet controller, which has already created this pod for its node.
    DaemonSetBefore,
}

impl PlacedBy {
    /// Returns what places the pods of a template of this kind.
    pub fn of(kind: Option<&'static WorkloadKind>) -> Self {
        if kind.is_some_and(WorkloadKind::is_daemon_set) { Self::DaemonSet } else { Self::Anyone }
    }
}

/// Where new pods run.
pub struct Verdict<'a> {
    pub pod: AdmittedPod<'a>,
    /// Why the API server or Kueue lets none through. The other fields assume that it does.
    pub refused: Option<Refused>,
    /// What happens on each node of the cluster.
    pub nodes: Vec<OnNode>,
}

impl<'a> Verdict<'a> {
    pub fn of(subject: Subject<'a>, cluster: &'a Cluster) -> Self {
        let (pod, refused) = AdmittedPod::of(subject, cluster);
        let nodes = cluster.nodes.iter().map(|node| pod.on(node)).collect();
        Self { pod, refused, nodes }
    }
}

/// What happens to a pod on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct OnNode {
    /// Why it is not placed there; empty if it may be.
    pub obstacles: Vec<Obstacle>,
    /// True if it starts there, false if it would not; `None` if that is not known.
    pub starts: Option<bool>,
    /// Why it does not start, and what is known.
    pub why: Vec<String>,
}

impl OnNode {
    pub fn is_possible(&self) -> bool {
        self.obstacles.is_empty()
    }
}
