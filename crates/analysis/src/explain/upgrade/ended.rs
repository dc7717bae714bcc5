//! The pods that a kubelet ends when its node starts as the new version: they select labels that the node no longer has.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::ObjectReference;

use crate::explain::subject::reference;
use crate::placement::Obstacle;
use crate::pod::Pod;
use crate::verdict::ending;
use crate::view::Node;
use crate::view::assume::Assumed;

use super::facts::is_unknown;

/// The pods that a kubelet ends when it starts on a node with the new version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndedPods {
    /// The number of these pods.
    pub total: usize,
    /// The pods without a controller: nothing creates them again.
    pub without_controller: Vec<ObjectReference>,
    /// The workloads that replace the others.
    pub replaced: Vec<Replaced>,
    /// The labels that these pods select and the nodes no longer have.
    pub selected: BTreeSet<String>,
    /// The pods of which it is not known, because they select labels whose values are not known.
    pub unknown: usize,
}

/// A workload that replaces its pods.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Replaced {
    /// The workload.
    pub object: ObjectReference,
    /// The number of its pods that end.
    pub pods: usize,
}

/// Returns the pods that end on the assumed nodes. `nodes` are as their kubelets find them when they start.
pub(super) fn ended(pods: &[Pod], nodes: &[Node], assumed: &Assumed) -> EndedPods {
    let (mut ended, mut replaced) = (EndedPods::default(), BTreeMap::new());
    let upgraded: Vec<Node> = nodes.iter().filter(|node| assumed.nodes.contains_key(&node.name)).cloned().collect();
    for (pod, _, obstacles) in ending(pods.iter(), &upgraded) {
        let certain: Vec<&Obstacle> = obstacles.iter().filter(|obstacle| !is_unknown(obstacle, assumed)).collect();
        if certain.is_empty() {
            ended.unknown += 1;
            continue;
        }
        ended.total += 1;
        ended.selected.extend(certain.into_iter().map(Obstacle::wanted));
        if pod.controller.is_some() {
            *replaced.entry(of_workload(&pod.workload())).or_default() += 1;
        } else {
            ended.without_controller.push(reference("Pod", &pod.namespace, &pod.name));
        }
    }
    ended.without_controller.sort();
    ended.replaced = replaced.into_iter().map(|(object, pods)| Replaced { object, pods }).collect();
    ended
}

/// Reads the name of a workload: `Deployment shop/web`.
fn of_workload(name: &str) -> ObjectReference {
    let (kind, rest) = name.split_once(' ').unwrap_or_default();
    let (namespace, name) = rest.split_once('/').unwrap_or_default();
    reference(kind, namespace, name)
}
