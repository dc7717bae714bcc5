//! The answer for a pod or for the pods of a template.

use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::ObjectReference;

use crate::explain::status::is_zero;
use crate::finding::Finding;
use crate::lint::{CONTRADICTS_SELECTOR, FORBIDDEN, NAMESPACE_CONFLICT, NOT_FOUND};
use crate::remedy::Remedy;
use crate::verdict::PodOutcome;

/// The result for a pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// The pod, or the workload that creates it.
    pub object: ObjectReference,
    /// The operating system that winpool assumes the pod is for: `windows` or `linux`.
    pub system: String,
    /// The only sign of that system, if winpool is not certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doubt: Option<&'static str>,
    /// The node that the pod is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The scheduler's reason why the pod, or one of the workload's pods, is on no node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_message: Option<String>,
    /// `spec.schedulerName`, if it is not the default scheduler. The answer is that of the default scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The reasons for which the API server refuses the pod, or the pods of the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Finding>,
    /// The other errors that `winpool check` finds, except those that `nodes` shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Finding>,
    /// The known errors in the pod's status and in Events, with their meaning.
    pub errors: Vec<ExplainedError>,
    /// The errors that it has at present, or that the workload's pods have, and that winpool does not know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unexplained: Vec<UnexplainedError>,
    /// The nodes on which it fails at present, or pods of the workload do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing_on: Vec<String>,
    /// The number of its pods for which the scheduler reports that it finds no node.
    #[serde(skip_serializing_if = "is_zero")]
    pub waiting_pods: usize,
    /// Where new pods run, by `nodes` and `refused`: in the words of `plan`.
    pub outcome: PodOutcome,
    /// The nodes of that operating system, and others on which the pod can be scheduled. For a pod of a DaemonSet: its
    /// own node. Empty if the API server refuses new pods because of their RuntimeClass.
    pub nodes: Vec<NodeResult>,
    /// Labels of its node that the pod selects and an in-place upgrade of Windows changes. The kubelet then ends the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_with_upgrade: Option<String>,
    /// The change that the pod needs; `null` if winpool knows none. `problems` and `errors` have their own remedies.
    pub remedy: Option<Remedy>,
    /// What the answer lacks, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl PodExplanation {
    /// True if the pod, or a pod of the workload, fails at present.
    pub fn is_failing(&self) -> bool {
        !self.failing_on.is_empty() || !self.unexplained.is_empty()
    }

    /// True if the API server refuses pods because of their RuntimeClass.
    pub fn is_refused_by_class(&self) -> bool {
        self.is_refused_by(&[NOT_FOUND, CONTRADICTS_SELECTOR])
    }

    /// True if the API server accepts a workload, and refuses the pods that it creates.
    pub fn is_refused_as_pod(&self) -> bool {
        self.is_refused_by_class() || self.is_refused_by(&[NAMESPACE_CONFLICT, FORBIDDEN])
    }

    fn is_refused_by(&self, rules: &[&str]) -> bool {
        self.refused.iter().any(|error| rules.contains(&error.rule.as_str()))
    }

    /// Sets the outcome by the other fields.
    pub fn conclude(&mut self) {
        let possible = self.nodes.iter().filter(|node| node.possible && self.refused.is_empty());
        self.outcome = PodOutcome::on(possible.map(|node| node.starts));
    }

    /// True if the pods are scheduled and start, as far as winpool knows.
    pub fn runs(&self) -> bool {
        let mut possible = self.nodes.iter().filter(|node| node.possible).peekable();
        let lands = possible.peek().is_some() && possible.all(|node| node.starts != Some(false));
        let is_kept = !self.refused.is_empty() || !self.problems.is_empty() || self.waiting_pods > 0;
        lands && !is_kept && !self.is_failing()
    }

    /// True if winpool knows the reason of each error that its pods have at present.
    pub fn is_known(&self) -> bool {
        self.unexplained.is_empty() || !self.problems.is_empty()
    }
}

/// A known error of a pod, with its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedError {
    /// The text that identifies the error.
    pub error: &'static str,
    /// The container that has it; absent if it is an error of the whole pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The meaning.
    pub meaning: String,
    /// The change or command that fixes it.
    pub remedy: String,
}

/// An error that a pod has at present and that winpool does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UnexplainedError {
    /// The container that has it; absent if it is an error of the whole pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The reason, such as `CrashLoopBackOff`.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// The result for the pod on one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeResult {
    /// The name of the node.
    pub name: String,
    /// True if the scheduler may place the pod there.
    pub possible: bool,
    /// True if the pod starts there; `null` if winpool cannot determine it.
    pub starts: Option<bool>,
    /// The reasons against this node, and known facts in favour of it.
    pub reasons: Vec<String>,
}

impl NodeResult {
    /// The result for a node that does not exist.
    pub(super) fn missing(name: &str) -> Self {
        Self { name: name.to_owned(), reasons: vec!["there is no such node".to_owned()], ..Self::default() }
    }
}
