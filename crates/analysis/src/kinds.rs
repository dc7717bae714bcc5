//! The kinds of objects that create pods: a row each.

use std::cmp::Ordering;

use serde_json::Value;

/// A kind of object that creates pods.
#[derive(Debug, PartialEq, Eq)]
pub struct WorkloadKind {
    pub name: &'static str,
    /// Its group with each version that winpool can read, newest first.
    pub api_versions: &'static [&'static str],
    pub plural: &'static str,
    /// The name that kubectl has for it besides; empty if it has none.
    pub short: &'static str,
    /// The path of its pod spec. `None` if there may be several templates, which are found by their shape.
    pub path: Option<&'static str>,
    /// When an object creates no more pods.
    end: End,
    /// True if its pods have fields of their own in the object, and so no template.
    is_assembled: bool,
    /// True if new pods follow a change of the template. Other objects refuse it, or have created their pods already.
    pub takes_changes: bool,
}

/// When an object has finished. An object that is in none of these states creates pods.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Never,
    /// One of these conditions is true.
    Condition(&'static [&'static str]),
    /// The field has one of these values; with none, any value.
    Field(&'static str, &'static [&'static str]),
}

/// The path of the pod spec in most of them.
pub(crate) const TEMPLATE: &str = "spec.template.spec";

const POD_PHASES: End = End::Field("/status/phase", &["Succeeded", "Failed"]);
const JOB_CONDITIONS: End = End::Condition(&["Complete", "Failed"]);
const TRAINING_CONDITIONS: End = End::Condition(&["Succeeded", "Failed"]);
const RAY_STATES: End = End::Field("/status/jobDeploymentStatus", &["Complete", "Failed"]);
const RUN_TIMES: End = End::Field("/status/completionTime", &[]);
const SPARK_STATES: End = End::Field("/status/applicationState/state", &["COMPLETED", "FAILED"]);

/// The known kinds: those of Kubernetes itself, and then those of others.
///
/// Sources: ray-project/kuberay `ray-operator/apis/ray/v1`, kubeflow/spark-operator `api/v1beta2`,
/// kubernetes-sigs/lws `api/leaderworkerset/v1`, kubeflow/trainer `pkg/apis/kubeflow.org/v1` of its release 1,
/// kubeflow/mpi-operator `pkg/apis/kubeflow/v2beta1`, argoproj/argo-workflows `pkg/apis/workflow/v1alpha1`, and tektoncd/pipeline
/// `pkg/apis/pipeline/v1`.
pub const KINDS: &[WorkloadKind] = &[
    own("Pod", &["v1"], "pods", "po").at("spec").until(POD_PHASES),
    own("Deployment", &["apps/v1"], "deployments", "deploy").changing(),
    own("StatefulSet", &["apps/v1"], "statefulsets", "sts").changing(),
    own("DaemonSet", &["apps/v1"], "daemonsets", "ds").changing(),
    own("ReplicaSet", &["apps/v1"], "replicasets", "rs"),
    own("ReplicationController", &["v1"], "replicationcontrollers", "rc").changing(),
    own("Job", &["batch/v1"], "jobs", "").until(JOB_CONDITIONS),
    own("CronJob", &["batch/v1"], "cronjobs", "cj").at("spec.jobTemplate.spec.template.spec").changing(),
    own("PodTemplate", &["v1"], "podtemplates", "").at("template.spec"),
    other("RayCluster", &["ray.io/v1", "ray.io/v1alpha1"], "rayclusters"),
    other("RayJob", &["ray.io/v1", "ray.io/v1alpha1"], "rayjobs").until(RAY_STATES),
    other("RayService", &["ray.io/v1", "ray.io/v1alpha1"], "rayservices"),
    other("LeaderWorkerSet", &["leaderworkerset.x-k8s.io/v1"], "leaderworkersets"),
    other("PyTorchJob", &["kubeflow.org/v1"], "pytorchjobs").until(TRAINING_CONDITIONS),
    other("TFJob", &["kubeflow.org/v1"], "tfjobs").until(TRAINING_CONDITIONS),
    other("XGBoostJob", &["kubeflow.org/v1"], "xgboostjobs").until(TRAINING_CONDITIONS),
    other("PaddleJob", &["kubeflow.org/v1"], "paddlejobs").until(TRAINING_CONDITIONS),
    other("JAXJob", &["kubeflow.org/v1"], "jaxjobs").until(TRAINING_CONDITIONS),
    other("MPIJob", &["kubeflow.org/v2beta1", "kubeflow.org/v1"], "mpijobs").until(TRAINING_CONDITIONS),
    assembled("SparkApplication", &["sparkoperator.k8s.io/v1beta2"], "sparkapplications").until(SPARK_STATES),
    assembled("Workflow", &["argoproj.io/v1alpha1"], "workflows").until(End::Field("/status/finishedAt", &[])),
    assembled("CronWorkflow", &["argoproj.io/v1alpha1"], "cronworkflows"),
    assembled("WorkflowTemplate", &["argoproj.io/v1alpha1"], "workflowtemplates"),
    assembled("TaskRun", &["tekton.dev/v1", "tekton.dev/v1beta1"], "taskruns").until(RUN_TIMES),
    assembled("PipelineRun", &["tekton.dev/v1", "tekton.dev/v1beta1"], "pipelineruns").until(RUN_TIMES),
    assembled("Task", &["tekton.dev/v1", "tekton.dev/v1beta1"], "tasks"),
    assembled("Pipeline", &["tekton.dev/v1", "tekton.dev/v1beta1"], "pipelines"),
];

/// A kind of Kubernetes itself.
const fn own(
    name: &'static str,
    api_versions: &'static [&'static str],
    plural: &'static str,
    short: &'static str,
) -> WorkloadKind {
    let (path, end) = (Some(TEMPLATE), End::Never);
    WorkloadKind { name, api_versions, plural, short, path, end, is_assembled: false, takes_changes: false }
}

/// A kind that a CustomResourceDefinition adds.
const fn other(name: &'static str, api_versions: &'static [&'static str], plural: &'static str) -> WorkloadKind {
    WorkloadKind { path: None, ..own(name, api_versions, plural, "") }
}

/// Such a kind whose controller assembles its pods.
const fn assembled(name: &'static str, api_versions: &'static [&'static str], plural: &'static str) -> WorkloadKind {
    WorkloadKind { is_assembled: true, ..other(name, api_versions, plural) }
}

impl WorkloadKind {
    const fn at(self, path: &'static str) -> Self {
        Self { path: Some(path), ..self }
    }

    const fn until(self, end: End) -> Self {
        Self { end, ..self }
    }

    const fn changing(self) -> Self {
        Self { takes_changes: true, ..self }
    }

    /// Returns the row of this group and name. Until Kubernetes 1.16 the group `extensions` had the kinds of `apps`.
    pub fn of(group: &str, name: &str) -> Option<&'static Self> {
        let group = if group == "extensions" { "apps" } else { group };
        KINDS.iter().find(|kind| (kind.group(), kind.name) == (group, name))
    }

    /// Returns the kind of Kubernetes itself with this name, if its objects create pods from a template.
    pub fn with_template(name: &str) -> Option<&'static Self> {
        Self::own(name).filter(|kind| kind.has_template())
    }

    /// Returns the kind that kubectl knows by this text: in any case, singular, plural or short.
    pub fn by_any_name(text: &str) -> Option<&'static Self> {
        let matches = |name: &str| name.eq_ignore_ascii_case(text);
        KINDS.iter().find(|kind| [kind.name, kind.plural, kind.short].into_iter().any(matches))
    }

    /// Returns the kind of Kubernetes itself with this name.
    pub fn own(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name && kind.is_own())
    }

    /// True for a kind of Kubernetes itself.
    pub fn is_own(&self) -> bool {
        self.path.is_some()
    }

    /// True if its objects create pods from a template.
    pub fn has_template(&self) -> bool {
        !matches!(self.name, "Pod" | "PodTemplate") && !self.is_assembled
    }

    /// True if the DaemonSet controller places its pods.
    pub fn is_daemon_set(&self) -> bool {
        self.name == "DaemonSet"
    }

    /// Its newest version, with its group: `apps/v1`.
    pub fn api_version(&self) -> &'static str {
        self.api_versions.first().copied().unwrap_or_default()
    }

    /// Its API group; empty for the core group.
    pub fn group(&self) -> &'static str {
        group_of(self.api_version())
    }

    /// True if an object of this kind has finished.
    pub fn has_ended(&self, object: &Value) -> bool {
        match self.end {
            End::Never => false,
            End::Condition(ends) => {
                let is_end = |condition: &Value| {
                    ends.iter().any(|end| condition["type"] == **end) && condition["status"] == "True"
                };
                object["status"]["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(is_end))
            }
            End::Field(path, values) => {
                let value = object.pointer(path).and_then(Value::as_str);
                value.is_some_and(|value| values.is_empty() || values.contains(&value))
            }
        }
    }
}

/// In the order of the table.
impl Ord for WorkloadKind {
    fn cmp(&self, other: &Self) -> Ordering {
        let position = |kind: &Self| KINDS.iter().position(|row| row == kind);
        position(self).cmp(&position(other))
    }
}

impl PartialOrd for WorkloadKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// True if this group has, or had, a kind of Kubernetes itself with this name.
pub fn is_own(group: &str, kind: &str) -> bool {
    WorkloadKind::of(group, kind).is_some_and(WorkloadKind::is_own)
}

/// Returns the JSON Pointer of the pod template in objects of this kind of Kubernetes itself; empty for a Pod.
pub fn template_of(kind: &str) -> Option<String> {
    WorkloadKind::own(kind)?.path.map(template_at)
}

/// Returns the JSON Pointer of the parent of the pod spec at this path.
pub(crate) fn template_at(path: &str) -> String {
    path.strip_suffix(".spec")
        .map_or_else(String::new, |parent| format!("/{}", parent.replace(['.', '['], "/").replace(']', "")))
}

/// Returns the group of an API version; empty for the core group.
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
