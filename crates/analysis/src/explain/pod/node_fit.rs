//! What happens to the pods of a template on each node, without the search for a change that helps.

use std::collections::BTreeMap;

use winpool_core::pod::Class;

use crate::image::Images;
use crate::kinds::WorkloadKind;
use crate::placement::Obstacle;
use crate::pod::Pod;
use crate::remedy::Remedy;
use crate::view::Node;

use super::admitted::{Admitted, PlacedBy};

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
    /// The reason why the API server refuses the pods, with the change.
    pub refused: Option<Remedy>,
    /// The answer for each node.
    pub nodes: Vec<NodeFit>,
}

/// Returns what happens to the pods of a template on these nodes; `pods` are its current pods.
pub(in crate::explain) fn fits(
    kind: Option<&'static WorkloadKind>,
    template: &Pod,
    pods: &[Pod],
    machines: &[Node],
    classes: &BTreeMap<String, Class>,
    images: &Images,
) -> TemplateFit {
    let Admitted { candidate, refused } = Admitted::of(template, pods, PlacedBy::of(kind), machines, classes, images);
    let refused = refused.map(|refused| candidate.admit(refused, machines, classes));
    let on = |machine: &Node| NodeFit { obstacles: candidate.obstacles(machine), starts: candidate.starts(machine).0 };
    TemplateFit { is_windows: candidate.is_windows, refused, nodes: machines.iter().map(on).collect() }
}
