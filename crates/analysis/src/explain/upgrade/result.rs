//! The answer for an upgrade.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::ObjectReference;

use crate::explain::blockers::Evidence;
use crate::remedy::Remedy;
use crate::verdict::PodOutcome;
use crate::view::assume::AssumedNodes;

use super::ended::EndedPods;

/// The effects on workloads when nodes get another Windows version.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// The nodes, and the versions that they are assumed to run.
    pub assume: Vec<AssumedNodes>,
    /// The workloads that can use these nodes, now or afterwards.
    pub workloads: Vec<UpgradedWorkload>,
    /// The pods that the kubelet ends when a node starts as the new version; absent if the pods are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_pods: Option<EndedPods>,
    /// The numbers of workloads that are not among `workloads`, by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// Facts that winpool cannot determine, with the reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Upgrade {
    /// True if every workload is read and runs while the nodes change and afterwards, and no pod is lost.
    pub fn is_harmless(&self) -> bool {
        let runs = |workload: &UpgradedWorkload| workload.rolling.runs() && workload.after.runs();
        let loses = |ended: &EndedPods| !ended.without_controller.is_empty();
        let is_read = |left_out: &LeftOut| left_out.reason != LeftOutReason::KindNotRead;
        self.workloads.iter().all(runs)
            && !self.ended_pods.as_ref().is_some_and(loses)
            && self.left_out.iter().all(is_read)
            && self.notes.is_empty()
    }
}

/// The workloads that the answer leaves out for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The reason.
    pub reason: LeftOutReason,
    /// The number of workloads.
    pub count: usize,
    /// The number of workloads by kind.
    pub kinds: BTreeMap<String, usize>,
}

impl LeftOut {
    /// Counts the workloads of these kinds, by reason.
    pub(super) fn count<'a>(all: impl IntoIterator<Item = (LeftOutReason, &'a str)>) -> Vec<Self> {
        let mut by_reason: BTreeMap<LeftOutReason, BTreeMap<String, usize>> = BTreeMap::new();
        for (reason, kind) in all {
            *by_reason.entry(reason).or_default().entry(kind.to_owned()).or_default() += 1;
        }
        let counted = |(reason, kinds): (_, BTreeMap<_, usize>)| Self { reason, count: kinds.values().sum(), kinds };
        by_reason.into_iter().map(counted).collect()
    }
}

/// The reason why an answer leaves a workload out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum LeftOutReason {
    /// It is in a manifest of a kind whose pod templates this command does not read.
    KindNotRead,
    /// It selects a label of these nodes whose value after the upgrade is unknown.
    UnknownLabel,
    /// It lacks only tolerations for taints of these nodes.
    NoToleration,
    /// It cannot be scheduled on these nodes, neither now nor after the upgrade.
    OtherNodes,
    /// It is for Linux, or nothing shows that it is for Windows.
    NotForWindows,
    /// It is a pod on another node or on no node, and no controller creates it again.
    NoController,
}

/// A workload before, during and after the upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradedWorkload {
    /// The object that creates the pods.
    pub object: ObjectReference,
    /// The path of the pod spec; absent if the object has one template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// With the nodes of today.
    pub now: PodOutcome,
    /// While some nodes have the old version, and others the new one.
    pub rolling: PodOutcome,
    /// With the last node changed.
    pub after: PodOutcome,
    /// The evidence that the new version runs its images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Evidence>,
    /// The least change with which it runs all the time; absent if it needs none, or none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<Remedy>,
    /// The reason why nothing better is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
