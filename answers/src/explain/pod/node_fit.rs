//! What happens to the pods of a template on each node, without the search for a change that helps.

use std::collections::BTreeMap;

use winpool_core::pod::{Class, Pod, PodProgress, PodSpec, WorkloadKind};

use crate::{
    image::Images,
    placement::{Obstacle, obstacles},
    view::assume::without_version,
};

use super::{Admitted, Node, PlacedBy};

/// Returns the pods that kubelets end when they start on these nodes, each with its node and the reasons.
pub(in crate::explain) fn ending<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    nodes: &'a [Node],
) -> impl Iterator<Item = (&'a Pod, &'a Node, Vec<Obstacle>)> {
    let nodes: BTreeMap<&str, &Node> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let bound = |pod: &&Pod| pod.is_bound && pod.progress != PodProgress::Finished && !pod.is_mirror;
    pods.filter(bound).filter(|pod| !pod.is_terminating()).filter_map(move |pod| {
        let node = nodes.get(pod.spec.node.as_deref()?)?;
        let obstacles = kubelet_refuses(&pod.spec, node);
        (!obstacles.is_empty()).then_some((pod, *node, obstacles))
    })
}

/// The obstacles of a pod on a node, and whether it starts there.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::explain) struct NodeFit {
    /// The reasons why the scheduler does not place it there; empty if it may.
    pub obstacles: Vec<Obstacle>,
    /// True if it starts there; `None` if that is unknown.
    pub starts: Option<bool>,
}

/// The result for the pods of a template.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::explain) struct TemplateFit {
    pub is_windows: bool,
    /// The reason why the API server refuses the pods.
    pub refused: Option<String>,
    /// The answer for each node.
    pub nodes: Vec<NodeFit>,
}

/// Returns what happens to the pods of a template on these nodes; `pods` are its current pods.
pub(in crate::explain) fn fits(
    kind: Option<WorkloadKind>,
    template: &Pod,
    pods: &[Pod],
    machines: &[Node],
    classes: &BTreeMap<String, Class>,
    images: &Images,
) -> TemplateFit {
    let Admitted { candidate, refused } = Admitted::of(template, pods, PlacedBy::of(kind), machines, classes, images);
    let on = |machine: &Node| NodeFit { obstacles: candidate.obstacles(machine), starts: candidate.starts(machine).0 };
    TemplateFit { is_windows: candidate.is_windows, refused, nodes: machines.iter().map(on).collect() }
}

/// Returns what the pod selects of its node that an in-place upgrade of Windows changes; `None` if it outlives one.
pub(super) fn ends_with_upgrade(pod: &Pod, machines: &[Node]) -> Option<String> {
    let name = pod.spec.node.as_deref()?;
    let now = machines.iter().find(|machine| machine.name == name && machine.is_windows())?;
    let upgraded = Node { labels: without_version(&now.labels), ..now.clone() };
    let ends = |node: &Node| {
        let (_, _, obstacles) = ending([pod].into_iter(), std::slice::from_ref(node)).next()?;
        obstacles.first().map(Obstacle::wanted)
    };
    ends(&upgraded).filter(|_| ends(now).is_none())
}

/// Returns the reasons why a kubelet refuses the pod when it admits it again, as it does when it starts
/// (kubernetes/kubernetes `pkg/kubelet/lifecycle/predicate.go`).
pub(in crate::explain) fn kubelet_refuses(spec: &PodSpec, machine: &Node) -> Vec<Obstacle> {
    let spec = PodSpec { node: None, ..spec.clone() };
    let refuses = |obstacle: &Obstacle| match obstacle {
        Obstacle::Selector { .. } | Obstacle::Affinity(_) => true,
        Obstacle::Taint(taint) => taint.effect == "NoExecute",
        _ => false,
    };
    obstacles(&spec, machine).into_iter().filter(refuses).collect()
}
