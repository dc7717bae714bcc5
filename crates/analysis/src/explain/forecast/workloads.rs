//! The workloads whose new pods run elsewhere when the operator has finished.

use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::ObjectReference;

use crate::explain::subject::WorkloadSubject;
use crate::kinds::WorkloadKind;
use crate::verdict::{Asked, Cluster, Group, OnNode, PodOutcome, Verdict, one_of_each};

/// A workload whose new pods run elsewhere when the operator has finished.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadForecast {
    /// The object that creates the pods.
    pub object: ObjectReference,
    /// The path of the pod spec; absent if the object has one template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where they run now.
    pub now: PodOutcome,
    /// Where they run then.
    pub after: PodOutcome,
    /// The number of nodes on which they can be scheduled now, and are not known to fail.
    pub nodes_now: usize,
    /// The same number then.
    pub nodes_after: usize,
    /// What keeps them off a node on which they can be scheduled now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The effect on the new pods of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// They find no node any more on which they start.
    Stop,
    /// They find a node on which they do not start.
    MayFail,
    /// They are scheduled on fewer nodes, and start there.
    FewerNodes,
    /// They find a node on which they start.
    Start,
    /// They are no longer scheduled on nodes on which they do not start.
    FailNoMore,
}

impl WorkloadForecast {
    /// Returns what changes for the new pods of the workload, if it matters.
    pub(in crate::explain) fn of(
        subject: &WorkloadSubject,
        now: OfGroups<'_, '_>,
        then: OfGroups<'_, '_>,
    ) -> Option<Self> {
        let changed = Self {
            object: subject.object.clone(),
            path: subject.path.clone(),
            now: now.0.outcome(),
            after: then.0.outcome(),
            nodes_now: number(now),
            nodes_after: number(then),
            reason: None,
        };
        let is_daemon_set = subject.kind.is_some_and(WorkloadKind::is_daemon_set);
        let makes_fewer = is_daemon_set && changed.nodes_after < changed.nodes_now;
        (makes_fewer || changed.effect() != Effect::FewerNodes).then_some(changed)
    }

    pub fn effect(&self) -> Effect {
        let may_fail = |outcome| outcome == PodOutcome::MayNotStart;
        match (self.nodes_now, self.nodes_after) {
            (1.., 0) => Effect::Stop,
            (0, 1..) => Effect::Start,
            _ if may_fail(self.after) && !may_fail(self.now) => Effect::MayFail,
            _ if may_fail(self.now) && !may_fail(self.after) => Effect::FailNoMore,
            _ => Effect::FewerNodes,
        }
    }
}

/// Returns the workloads whose new pods run in one of two clusters and not in the other one, and the `DaemonSets` that make pods for
/// fewer nodes. `with_held` is the cluster after as long as taints are held. The clusters have the same nodes.
pub(super) fn changed(
    subjects: &[WorkloadSubject],
    before: &Cluster,
    after: &Cluster,
    with_held: &Cluster,
) -> Vec<WorkloadForecast> {
    let asked = Asked::by(subjects.iter().map(|subject| &subject.template.spec));
    let asked =
        asked.with_classes(before.classes.values().chain(after.classes.values())).with_admission(&before.admission);
    let nodes = before.nodes.iter().zip(&after.nodes).zip(&with_held.nodes);
    let groups = one_of_each(nodes.map(|((now, then), held)| [now, then, held].map(|node| asked.group(node))));
    let [before, after, with_held] = [before, after, with_held].map(|cluster| cluster.with_one_of_each(&groups));
    let changed = subjects.iter().filter_map(|subject| {
        let (now, then) = (Verdict::of(subject.question(), &before), Verdict::of(subject.question(), &after));
        let changed = WorkloadForecast::of(subject, (&now, &groups), (&then, &groups))?;
        Some(WorkloadForecast { reason: why_fewer(&now, &then, &after, &with_held), ..changed })
    });
    changed.collect()
}

/// A verdict, and the groups of nodes whose first nodes it is about.
type OfGroups<'a, 'v> = (&'a Verdict<'v>, &'a [Group]);

/// The number of nodes on which the pods can be scheduled, and are not known to fail.
fn number((verdict, groups): OfGroups<'_, '_>) -> usize {
    let takes = |on: &OnNode| on.is_possible() && on.starts != Some(false) && verdict.refused.is_none();
    verdict.nodes.iter().zip(groups).filter(|(on, _)| takes(on)).map(|(_, group)| group.nodes).sum()
}

/// Returns why a node, or the API server, no longer takes the pods.
fn why_fewer(now: &Verdict<'_>, then: &Verdict<'_>, after: &Cluster, with_held: &Cluster) -> Option<String> {
    if let Some(refused) = then.refused.as_ref().filter(|_| now.refused.is_none()) {
        return Some(then.pod.admit(refused, after).text);
    }
    let pairs = now.nodes.iter().zip(&then.nodes).zip(&with_held.nodes);
    let mut lost =
        pairs.filter(|((now, then), _)| now.is_possible() && now.starts != Some(false) && !then.is_possible());
    let ((_, on), node) = lost.next()?;
    let why = on.obstacles.first().map(|obstacle| then.pod.describe(obstacle))?;
    let is_held = then.pod.obstacles(node).is_empty();
    Some(if is_held { format!("{why}, once winpool no longer holds it") } else { why })
}
