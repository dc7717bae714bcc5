//! Workloads: objects that create pods from a template.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use winpool_core::api::names;
use winpool_core::pod::{self as operator, DaemonSet, WireMetadata};

use crate::kinds::{TEMPLATE, WorkloadKind};
use crate::pod::{Pod, PodSpec};
use crate::pod_security::Violations;
use crate::workload::{WorkloadManifest, is_ignored, or_default};

use super::{Creation, QUEUE, Request};

/// The fields of a workload that winpool reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireWorkload")]
pub struct Workload {
    pub namespace: String,
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    pub created: Option<Timestamp>,
    /// Kind and name of the object that controls it.
    pub controller: Option<(String, String)>,
    /// True if it creates no more pods: it is being deleted, or has finished.
    pub is_over: bool,
    /// True if the workload or its template has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    pub replicas: i64,
    /// The label `kubernetes.io/os` of its pods, which the kubelet compares with the node's label.
    pub os_label: Option<String>,
    /// The checks of PodSecurity that its pods do not pass.
    pub violations: Violations,
    /// The pod spec of the template.
    pub template: PodSpec,
    /// The path of the pod spec in the object, if it may have several templates.
    pub path: Option<String>,
}

#[derive(Deserialize)]
struct WireWorkload {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireWorkloadSpec,
    #[serde(default)]
    status: WireWorkloadStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireWorkloadSpec {
    replicas: Option<i64>,
    template: Option<WireTemplate>,
    job_template: Option<Box<WireJobTemplate>>,
}

/// A pod template. PodSecurity reads it as it was written.
#[derive(Default, Deserialize)]
#[serde(try_from = "Value")]
struct WireTemplate {
    metadata: WireMetadata,
    spec: PodSpec,
    violations: Violations,
}

impl TryFrom<Value> for WireTemplate {
    type Error = serde_json::Error;

    fn try_from(template: Value) -> Result<Self, Self::Error> {
        let (metadata, spec) = (&template["metadata"], &template["spec"]);
        Ok(Self {
            // Helm charts write `metadata:` with nothing in it.
            metadata: Option::deserialize(metadata)?.unwrap_or_default(),
            spec: Option::deserialize(spec)?.unwrap_or_default(),
            violations: Violations::of(spec, metadata),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireJobTemplate {
    metadata: Option<WireMetadata>,
    spec: WireWorkloadSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireWorkloadStatus {
    conditions: Option<Vec<WireCondition>>,
}

#[derive(Deserialize)]
struct WireCondition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl From<WireWorkload> for Workload {
    fn from(WireWorkload { mut metadata, spec, status }: WireWorkload) -> Self {
        let name = metadata.take_name();
        let mut of_job = None;
        let template = spec.template.or_else(|| {
            let job = spec.job_template?;
            of_job = job.metadata;
            job.spec.template
        });
        let WireTemplate { metadata: of_pods, spec: template, violations } = template.unwrap_or_default();
        let queue = [Some(&metadata), of_job.as_ref(), Some(&of_pods)].into_iter().flatten().find_map(queue_of);
        let ended = |condition: &WireCondition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        };
        Self {
            is_over: metadata.deletion_timestamp.is_some() || status.conditions.iter().flatten().any(ended),
            is_ignored: metadata.is_ignored() || of_pods.is_ignored(),
            created: metadata.created(),
            controller: metadata.controller(),
            namespace: metadata.namespace.unwrap_or_default(),
            name,
            uid: metadata.uid.unwrap_or_default(),
            replicas: spec.replicas.unwrap_or(1),
            os_label: of_pods.labels.and_then(|mut labels| labels.remove(names::OS)),
            template: PodSpec { queue, ..template },
            violations,
            path: None,
        }
    }
}

/// Returns the `LocalQueue` of Kueue in the labels.
pub(crate) fn queue_of(metadata: &WireMetadata) -> Option<String> {
    metadata.labels.as_ref()?.get(QUEUE).cloned()
}

impl Workload {
    /// Returns a workload for each pod template of an object of this kind.
    ///
    /// # Errors
    /// Fails if the metadata, or the template of a kind of Kubernetes itself, cannot be read.
    pub fn read_all(kind: &'static WorkloadKind, object: &Value) -> Result<Vec<Self>, serde_json::Error> {
        if kind.is_own() {
            return Ok(vec![Self::deserialize(object)?]);
        }
        let mut metadata = WireMetadata::deserialize(&object["metadata"])?;
        let of_object = Self {
            is_over: metadata.deletion_timestamp.is_some() || kind.has_ended(object),
            is_ignored: metadata.is_ignored(),
            created: metadata.created(),
            controller: metadata.controller(),
            name: metadata.take_name(),
            namespace: metadata.namespace.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            replicas: 1,
            ..Self::default()
        };
        let of_template = |manifest: WorkloadManifest<'_>| Self {
            is_ignored: of_object.is_ignored || is_ignored(manifest.metadata),
            os_label: manifest.labels().remove(names::OS),
            path: Some(manifest.path.into_owned()),
            violations: Violations::of(manifest.raw, manifest.metadata),
            template: manifest.pod,
            ..of_object.clone()
        };
        Ok(WorkloadManifest::read_all(object).into_iter().flatten().map(of_template).collect())
    }

    /// Returns the request with which the API server gets its template, or its new pods.
    pub fn creation(&self, kind: &'static WorkloadKind) -> Creation<'_> {
        let request = match (kind.is_daemon_set(), &self.created) {
            (true, Some(_)) => Request::Earlier,
            (true, None) => Request::DaemonSet,
            (false, _) => Request::Pod,
        };
        Creation { namespace: or_default(&self.namespace), request, is_ignored: self.is_ignored }
    }

    /// Returns a pod as its template says. That of a DaemonSet that exists is not new: policies have seen the template.
    pub fn pod_of(&self, kind: &'static WorkloadKind) -> Pod {
        let mut pod = self.pod();
        pod.created = self.created.filter(|_| kind.is_daemon_set());
        pod
    }

    /// Returns a new pod as its template says.
    pub fn pod(&self) -> Pod {
        let (namespace, is_ignored) = (self.namespace.clone(), self.is_ignored);
        let operator = operator::Pod { namespace, is_ignored, ..operator::Pod::default() };
        let (os_label, violations) = (self.os_label.clone(), self.violations.clone());
        Pod { operator, spec: self.template.clone(), os_label, violations, ..Pod::default() }
    }

    /// Returns the workload of this kind as if it were read from a manifest. It has no raw fields, so rules about single fields do
    /// not apply.
    pub fn manifest(&self, kind: &'static WorkloadKind) -> WorkloadManifest<'_> {
        WorkloadManifest {
            api_version: kind.api_version(),
            kind: kind.name,
            namespace: or_default(&self.namespace),
            name: &self.name,
            path: self.path.as_deref().or(kind.path).unwrap_or(TEMPLATE).to_owned().into(),
            pod: self.template.clone(),
            raw: &Value::Null,
            metadata: &Value::Null,
            pieces: &Value::Null,
            own_metadata: &Value::Null,
            claims: &Value::Null,
            has_selector: true,
            controller: None,
        }
    }
}

impl From<&Workload> for DaemonSet {
    fn from(workload: &Workload) -> Self {
        let Workload { namespace, name, uid, created, is_over, is_ignored, template, .. } = workload.clone();
        let (template, resource_version) = (template.operator, String::new());
        Self { namespace, name, uid, resource_version, created, is_over, is_ignored, template }
    }
}
