//! Pods, with what answers read of them beyond what decides about nodes.

use std::borrow::Borrow;
use std::mem;
use std::ops::{Deref, DerefMut};

use crate::kinds::WorkloadKind;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use winpool_core::api::names;
use winpool_core::plan::Now;
use winpool_core::plan::pods::PodTable;
use winpool_core::pod::{self as operator, PodStatus, WireMetadata, controlled_by, has_run};

use crate::pod_security::Violations;
use crate::view::{Creation, QUEUE, Request};
use crate::workload::or_default;

use super::PodSpec;
use super::error::{PodError, errors_of};

/// Returns the operator's table of these pods.
pub fn table_of(pods: impl IntoIterator<Item: Borrow<operator::Pod>>, now: Now) -> PodTable {
    let mut table = PodTable::default();
    pods.into_iter().for_each(|pod| table.see(pod.borrow(), now));
    table.end_list();
    table
}

/// The fields of a pod that winpool reads to answer a question.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    /// The fields that the operator reads, but for those in `spec`.
    pub operator: operator::Pod,
    pub spec: PodSpec,
    /// The node on which one of its containers runs or has run.
    pub ran_on: Option<String>,
    /// True if it has a phase, so that the scheduler has set `nodeName`. In a manifest, the author has set it.
    pub is_bound: bool,
    /// The label `kubernetes.io/os`, which the kubelet compares with the node's label.
    pub os_label: Option<String>,
    /// The checks of PodSecurity that it does not pass, if it is a new pod.
    pub violations: Violations,
    /// The known errors in its status, and those that keep it from running.
    pub errors: Vec<PodError>,
    /// The time of the last Event which reports that it has its sandbox and volumes.
    pub progressed: Option<Timestamp>,
    /// The scheduler's reason why it finds no node.
    pub unschedulable: Option<String>,
}

#[derive(Deserialize)]
struct WirePod {
    metadata: WireMetadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

/// True for a pod that `kubectl debug` has put on this node.
pub(crate) fn is_of_debugger(name: &str, node: &str) -> bool {
    name.strip_prefix("node-debugger-").is_some_and(|rest| rest.starts_with(node))
}

impl Deref for Pod {
    type Target = operator::Pod;

    fn deref(&self) -> &operator::Pod {
        &self.operator
    }
}

impl DerefMut for Pod {
    fn deref_mut(&mut self) -> &mut operator::Pod {
        &mut self.operator
    }
}

impl From<WirePod> for Pod {
    fn from(WirePod { mut metadata, spec, status }: WirePod) -> Self {
        let mut label = |key: &str| metadata.labels.as_mut()?.remove(key);
        let (queue, os_label) = (label(QUEUE), label(names::OS));
        let mut spec = PodSpec { queue, ..spec };
        let ran_on = spec.node.clone().filter(|_| has_run(&status));
        let has_phase = status.phase.is_some();
        let (errors, unschedulable) = (errors_of(&status), unschedulable(&status));
        let mut operator = operator::Pod::from(operator::WirePod { metadata, spec: spec.operator, status });
        spec.operator = mem::take(&mut operator.spec);
        let is_bound = has_phase && !spec.node.as_deref().is_some_and(|node| is_of_debugger(&operator.name, node));
        Self {
            operator,
            spec,
            ran_on,
            is_bound,
            os_label,
            violations: Violations::default(),
            errors,
            progressed: None,
            unschedulable,
        }
    }
}

impl From<&Pod> for operator::Pod {
    fn from(pod: &Pod) -> Self {
        Self { spec: pod.spec.operator.clone(), ..pod.operator.clone() }
    }
}

fn unschedulable(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    scheduled.message.clone()
}

impl Pod {
    /// Reads a pod of a manifest. Unless it has a phase, the API server does not have it yet.
    ///
    /// # Errors
    /// Fails if a field has the wrong type.
    pub fn of_manifest(object: &Value) -> Result<Self, serde_json::Error> {
        let mut pod = Self::deserialize(object)?;
        if !pod.is_bound {
            pod.violations = Violations::of(&object["spec"], &object["metadata"]);
        }
        Ok(pod)
    }

    /// Returns what policies read of it beside its spec. `new` is the request if the API server does not have it yet.
    pub(crate) fn creation(&self, new: Request) -> Creation<'_> {
        let request = if self.created.is_none() && !self.is_bound { new } else { Request::Earlier };
        Creation { namespace: or_default(&self.namespace), request, is_ignored: self.is_ignored }
    }

    /// Returns its workload, such as `Deployment shop/web`, or the pod itself if it has no controller.
    pub fn workload(&self) -> String {
        let (kind, name) = self.controlled_by();
        format!("{kind} {}/{name}", self.namespace)
    }

    /// Returns the kind of its workload, if winpool lists templates of that kind.
    pub fn workload_kind(&self) -> Option<&'static WorkloadKind> {
        WorkloadKind::with_template(self.controlled_by().0)
    }

    fn controlled_by(&self) -> (&str, &str) {
        controlled_by(self.controller.as_ref(), &self.name, self.template_hash.as_deref())
    }
}
