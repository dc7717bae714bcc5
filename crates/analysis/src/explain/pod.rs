//! The nodes on which a pod can be scheduled and start, and the change that it needs.

mod errors;
mod result;

use winpool_core::api::{ObjectReference, names};

use crate::kinds::WorkloadKind;
use crate::pod::{Pod, daemon_set_node};
use crate::remedy::Remedy;
use crate::system::doubt;
use crate::verdict::{
    AdmittedPod, Cluster, OnNode, PlacedBy, PodOutcome, RECREATE, Subject, Verdict, ends_with_upgrade,
};
use crate::view::{Node, Workload};
use crate::workload::or_default;

use errors::Errors;

pub use result::{ExplainedError, NodeResult, PodExplanation, UnexplainedError};

/// Explains this pod in this cluster.
pub fn answer(pod: &Pod, cluster: &Cluster) -> PodExplanation {
    let placed_by = if daemon_set_node(pod).is_some() { PlacedBy::DaemonSetBefore } else { PlacedBy::Anyone };
    let object = ObjectReference::namespaced("Pod", or_default(&pod.namespace), &pod.name);
    let explanation = explanation(pod, std::slice::from_ref(pod), placed_by, cluster);
    PodExplanation {
        object,
        node: pod.spec.node.clone(),
        ends_with_upgrade: ends_with_upgrade(pod, &cluster.nodes),
        ..explanation
    }
}

/// Explains the pods of this template; `pods` are its current pods.
pub fn answer_template(
    kind: &'static WorkloadKind,
    workload: &Workload,
    pods: &[Pod],
    cluster: &Cluster,
) -> PodExplanation {
    let pod = workload.pod();
    let explained = explanation(&pod, pods, PlacedBy::of(Some(kind)), cluster);
    let recreate = || recreate(pods, cluster);
    PodExplanation { object: workload.object(), remedy: explained.remedy.or_else(recreate), ..explained }
}

/// Returns what to do with pods that wait, because they keep what their RuntimeClass had when they were created.
fn recreate(pods: &[Pod], cluster: &Cluster) -> Option<Remedy> {
    let waits = |pod: &&Pod| pod.start_status.is_unschedulable && pod.spec.node.is_none() && !pod.is_terminating;
    let of_class = pods.iter().filter(waits).filter(|pod| pod.spec.runtime_class.is_some());
    let mut waiting = of_class.filter(|pod| {
        let remedy = answer(pod, cluster).remedy;
        remedy.is_some_and(|remedy| remedy.text.starts_with(RECREATE))
    });
    let first = waiting.next()?;
    Some(Remedy::advice(format!(
        "{RECREATE}s that wait, such as {}: they keep what their RuntimeClass had when they were created",
        first.name
    )))
}

/// Explains a pod, or the template of `pods` as a pod.
fn explanation(pod: &Pod, pods: &[Pod], placed_by: PlacedBy, cluster: &Cluster) -> PodExplanation {
    let history = cluster.history(pods);
    let verdict = Verdict::of(Subject { pod, placed_by, history }, cluster);
    let (candidate, refused) = (&verdict.pod, verdict.refused.as_ref());
    let doubt = candidate.guess(&cluster.nodes).and_then(doubt).filter(|_| !history.is_on_windows_only());
    // The DaemonSet controller has chosen the node of its pod.
    let chosen = daemon_set_node(pod).filter(|_| placed_by == PlacedBy::DaemonSetBefore);
    let is_shown = |(node, on): &(&Node, &OnNode)| match chosen {
        Some(chosen) => node.name == chosen,
        None => node.is_windows() == candidate.is_windows || on.is_possible(),
    };
    let shown = cluster.nodes.iter().zip(&verdict.nodes).filter(is_shown);
    let mut nodes: Vec<NodeResult> = shown.map(|(node, on)| result_on(candidate, node, on)).collect();
    nodes.extend(chosen.filter(|_| nodes.is_empty()).map(NodeResult::missing));
    // The findings say what else the API server refuses, and the rest of the answer is as if it did not.
    let refused = refused.filter(|refused| refused.is_by_class());
    if refused.is_some() && !pod.is_bound {
        nodes.clear();
    }
    let lands = nodes.iter().any(|result| result.possible);
    let starts = nodes.iter().all(|result| !result.possible || result.starts != Some(false));
    let of_chosen = chosen.map(|name| cluster.only(name));
    let cluster = of_chosen.as_ref().unwrap_or(cluster);
    let remedy = match refused {
        Some(refused) => Some(candidate.admit(refused, cluster)),
        None if lands && starts => None,
        None => Some(candidate.remedy(cluster)),
    };
    let remedy = remedy.map(|remedy| if doubt.is_some() { remedy.undecided() } else { remedy });
    let gates = candidate.spec.scheduling_gates.join(", ");
    let wait = (!gates.is_empty())
        .then(|| format!("wait until its schedulingGates ({gates}) are removed: the scheduler ignores it until then"));
    let remedy = match (wait, remedy) {
        (Some(wait), Some(remedy)) => Some(remedy.after(&format!("{wait}. Then "))),
        (wait, remedy) => wait.map(Remedy::advice).or(remedy),
    };
    let errors = Errors::of(candidate, pods, cluster, &mut nodes);
    let mut explanation = PodExplanation {
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
        outcome: PodOutcome::default(),
        nodes,
        ends_with_upgrade: None,
        remedy,
        notes: candidate.added.by_policies.iter().map(|added| format!("The admission policy {added}.")).collect(),
    };
    explanation.conclude();
    explanation
}

/// Words what happens on a node.
fn result_on(pod: &AdmittedPod<'_>, node: &Node, on: &OnNode) -> NodeResult {
    let obstacles = on.obstacles.iter().map(|obstacle| pod.describe(obstacle));
    let is_hypothetical = !on.is_possible() && on.starts == Some(false);
    let why = on.why.iter().map(|why| if is_hypothetical { format!("if scheduled: {why}") } else { why.clone() });
    let reasons = obstacles.chain(why).collect();
    NodeResult { name: node.name.clone(), possible: on.is_possible(), starts: on.starts, reasons }
}
