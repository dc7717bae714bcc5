//! Workloads: objects that create pods from a template.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

use crate::{api::names, windows::Build};

use super::{metadata::WireMetadata, spec::PodSpec};

/// The fields of a workload that winpool reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireWorkload")]
pub struct Workload {
    pub namespace: String,
    pub name: String,
    pub created: Option<Timestamp>,
    /// Kind and name of the object that controls it.
    pub controller: Option<(String, String)>,
    /// True if it creates no more pods: it is being deleted, or has finished.
    pub is_over: bool,
    /// True if the annotation `winpool.dev/ignore` of the workload or its template excludes it from the workload
    /// check.
    pub is_ignored: bool,
    pub replicas: i64,
    /// The builds in the annotation `winpool.dev/images-run-on` of its pods, if the annotation is for their images.
    pub images_run_on: Vec<Build>,
    /// True if a rollout is not finished, so that its next pod may come from an older template. Only a Deployment and a
    /// `StatefulSet` roll out.
    pub is_rolling_out: bool,
    /// The label `kubernetes.io/os` of its pods, which the kubelet compares with the node's label.
    pub os_label: Option<String>,
    /// The pod spec of the template.
    pub template: PodSpec,
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

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireTemplate {
    // Helm charts write `metadata:` with nothing in it.
    metadata: Option<WireMetadata>,
    spec: Option<PodSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireJobTemplate {
    spec: WireWorkloadSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireWorkloadStatus {
    observed_generation: Option<i64>,
    replicas: Option<i64>,
    updated_replicas: Option<i64>,
    current_revision: Option<String>,
    update_revision: Option<String>,
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
        let template = spec.template.or_else(|| spec.job_template?.spec.template).unwrap_or_default();
        let of_pods = template.metadata.unwrap_or_default();
        let annotation =
            of_pods.annotations.as_ref().and_then(|all| all.get(names::IMAGES_RUN_ON)?.split_once(" for "));
        let images =
            || template.spec.iter().flat_map(PodSpec::images).map(|(_, image)| image).collect::<Vec<_>>().join(" ");
        let builds = annotation.filter(|(_, of)| *of == images()).map(|(builds, _)| builds).unwrap_or_default();
        let images_run_on = builds.split(' ').filter_map(|build| build.parse().ok()).collect();
        let ended = |condition: &WireCondition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        };
        Self {
            is_over: metadata.deletion_timestamp.is_some() || status.conditions.iter().flatten().any(ended),
            is_ignored: metadata.is_ignored() || of_pods.is_ignored(),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            controller: metadata.controller(),
            namespace: metadata.namespace.unwrap_or_default(),
            name,
            replicas: spec.replicas.unwrap_or(1),
            is_rolling_out: status.observed_generation < metadata.generation
                || status.updated_replicas.unwrap_or(0) < spec.replicas.unwrap_or(1).max(status.replicas.unwrap_or(0))
                || status.current_revision.is_some()
                    && status.update_revision.is_some()
                    && status.current_revision != status.update_revision,
            os_label: of_pods.labels.and_then(|mut labels| labels.remove(names::OS)),
            images_run_on,
            template: template.spec.unwrap_or_default(),
        }
    }
}
