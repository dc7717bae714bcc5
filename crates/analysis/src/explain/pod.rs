//! The nodes on which a pod can be scheduled and start, and the change that it needs.

mod admitted;
mod daemon_set;
mod errors;
mod images;
mod kubelet;
mod node_fit;
mod remedy;
mod result;

use std::collections::BTreeMap;

use winpool_core::api::{ObjectReference, names};
use winpool_core::pod::Class;

use crate::image::Images;
use crate::kinds::WorkloadKind;
use crate::pod::{Pod, daemon_set_node};
use crate::remedy::Remedy;
use crate::system::doubt;
use crate::view::{Node, Workload};
use crate::workload::or_default;

use admitted::{Admitted, PlacedBy};
use errors::Errors;
use kubelet::ends_with_upgrade;

pub use admitted::has_run_on_windows;
pub(super) use kubelet::ending;
pub(super) use node_fit::{NodeFit, TemplateFit, fits};
pub use remedy::RECREATE;
pub(super) use remedy::settled;
pub use result::{ExplainedError, NodeResult, PodExplanation, UnexplainedError};

/// Explains this pod on these nodes, with these RuntimeClasses and the platforms of its images, as registries report them.
pub fn answer(pod: &Pod, machines: &[Node], classes: &BTreeMap<String, Class>, images: &Images) -> PodExplanation {
    let placed_by = if daemon_set_node(pod).is_some() { PlacedBy::DaemonSetBefore } else { PlacedBy::Anyone };
    let object = ObjectReference::namespaced("Pod", or_default(&pod.namespace), &pod.name);
    let explanation = explanation(pod, std::slice::from_ref(pod), placed_by, machines, classes, images);
    PodExplanation {
        object,
        node: pod.spec.node.clone(),
        ends_with_upgrade: ends_with_upgrade(pod, machines),
        ..explanation
    }
}

/// Explains the pods of this template; `pods` are its current pods.
pub fn answer_template(
    kind: &'static WorkloadKind,
    workload: &Workload,
    pods: &[Pod],
    machines: &[Node],
    classes: &BTreeMap<String, Class>,
    images: &Images,
) -> PodExplanation {
    let (spec, os_label) = (workload.template.clone(), workload.os_label.clone());
    let pod = Pod { spec, os_label, ..Pod::default() };
    let object = ObjectReference::namespaced(kind.name, or_default(&workload.namespace), &workload.name);
    let placed_by = PlacedBy::of(Some(kind));
    PodExplanation { object, ..explanation(&pod, pods, placed_by, machines, classes, images) }
}

/// Explains a pod, or the template of `pods` as a pod.
fn explanation(
    pod: &Pod,
    pods: &[Pod],
    placed_by: PlacedBy,
    machines: &[Node],
    classes: &BTreeMap<String, Class>,
    images: &Images,
) -> PodExplanation {
    let Admitted { candidate, refused } = Admitted::of(pod, pods, placed_by, machines, classes, images);
    let doubt = candidate.guess(machines).and_then(doubt).filter(|_| !has_run_on_windows(pods, machines));
    // The DaemonSet controller has chosen the node of its pod.
    let chosen = daemon_set_node(pod).filter(|_| placed_by == PlacedBy::DaemonSetBefore);
    let machine = chosen.and_then(|name| machines.iter().find(|machine| machine.name == name));
    let machines = if chosen.is_some() { machine.map_or(&[][..], std::slice::from_ref) } else { machines };
    let is_shown = |machine: &Node| chosen.is_some() || machine.is_windows() == candidate.is_windows;
    let results = machines.iter().map(|machine| (is_shown(machine), candidate.on(machine)));
    let mut nodes: Vec<NodeResult> = results.filter(|(own, result)| *own || result.possible).map(|(_, l)| l).collect();
    nodes.extend(chosen.filter(|_| machines.is_empty()).map(NodeResult::missing));
    // A pod that the API server refuses is on no node.
    if refused.is_some() && !pod.is_bound {
        nodes.clear();
    }
    let lands = nodes.iter().any(|result| result.possible);
    let starts = nodes.iter().all(|result| !result.possible || result.starts != Some(false));
    let remedy = match refused {
        Some(refused) => Some(candidate.admit(refused, machines, classes)),
        None if lands && starts => None,
        None => Some(candidate.remedy(machines, classes)),
    };
    let remedy = remedy.map(|remedy| if doubt.is_some() { remedy.undecided() } else { remedy });
    let gates = candidate.spec.scheduling_gates.join(", ");
    let wait = (!gates.is_empty())
        .then(|| format!("wait until its schedulingGates ({gates}) are removed: the scheduler ignores it until then"));
    let remedy = match (wait, remedy) {
        (Some(wait), Some(remedy)) => Some(remedy.after(&format!("{wait}. Then "))),
        (wait, remedy) => wait.map(Remedy::advice).or(remedy),
    };
    let errors = Errors::of(&candidate, pods, machines, &mut nodes);
    PodExplanation {
        object: ObjectReference::default(),
        system: if candidate.is_windows { names::WINDOWS } else { "linux" }.to_owned(),
        doubt,
        node: None,
        scheduler_message: pods.iter().filter(|pod| pod.spec.node.is_none()).find_map(|pod| pod.unschedulable.clone()),
        scheduler: pod.spec.scheduler.clone(),
        refused: Vec::new(),
        problems: Vec::new(),
        errors: errors.explained,
        unexplained: errors.unexplained,
        failing_on: errors.failing_on,
        waiting_pods: pods.iter().filter(|pod| pod.start_status.is_unschedulable).count(),
        nodes,
        ends_with_upgrade: None,
        remedy,
        notes: Vec::new(),
    }
}
