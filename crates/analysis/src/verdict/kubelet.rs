//! The pods that a kubelet refuses or ends because of their node's labels and taints.

use std::collections::BTreeMap;

use winpool_core::api::Effect;
use winpool_core::pod::PodProgress;

use crate::placement::{Obstacle, obstacles};
use crate::pod::{Pod, PodSpec};
use crate::view::Node;
use crate::view::assume::without_version;

/// Returns the pods that kubelets end when they start on these nodes, each with its node and the reasons.
pub fn ending<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    nodes: &'a [Node],
) -> impl Iterator<Item = (&'a Pod, &'a Node, Vec<Obstacle>)> {
    let nodes: BTreeMap<&str, &Node> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
    let bound = |pod: &&Pod| pod.is_bound && pod.progress != PodProgress::Finished && !pod.is_mirror;
    pods.filter(bound).filter(|pod| !pod.is_terminating).filter_map(move |pod| {
        let node = nodes.get(pod.spec.node.as_deref()?)?;
        let obstacles = kubelet_refuses(&pod.spec, node);
        (!obstacles.is_empty()).then_some((pod, *node, obstacles))
    })
}

/// Returns what the pod selects of its node that an in-place upgrade of Windows changes; `None` if it outlives one.
pub fn ends_with_upgrade(pod: &Pod, machines: &[Node]) -> Option<String> {
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
pub(super) fn kubelet_refuses(spec: &PodSpec, machine: &Node) -> Vec<Obstacle> {
    let mut spec = spec.clone();
    spec.node = None;
    let refuses = |obstacle: &Obstacle| match obstacle {
        Obstacle::Selector { .. } | Obstacle::Affinity(_) => true,
        Obstacle::Taint(taint) => taint.effect == Effect::NoExecute,
        _ => false,
    };
    obstacles(&spec, machine).into_iter().filter(refuses).collect()
}
