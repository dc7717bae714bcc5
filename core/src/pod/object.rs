//! Pods: their controller and progress.

use k8s_openapi::{
    api::core::v1::{ContainerState, PodStatus},
    jiff::Timestamp,
};
use serde::Deserialize;

use super::{metadata::WireMetadata, spec::PodSpec, start_status::StartStatus};

/// The fields of a pod that winpool reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    /// Kind and name of the controller that created it.
    pub controller: Option<(String, String)>,
    /// The label `pod-template-hash`, which a Deployment gives its `ReplicaSets` and their pods.
    pub template_hash: Option<String>,
    pub created: Option<Timestamp>,
    /// True if it has a deletionTimestamp.
    pub is_terminating: bool,
    /// True if a kubelet created it from a file on the node.
    pub is_mirror: bool,
    /// True if it has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    pub spec: PodSpec,
    pub progress: PodProgress,
    /// The part of its status that shows if it starts.
    pub start_status: StartStatus,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodProgress {
    /// None of its containers has run yet.
    #[default]
    Waiting,
    /// One of its containers runs or has run.
    Started,
    /// `status.phase` is Succeeded or Failed.
    Finished,
}

/// A pod as the API server writes it.
#[derive(Deserialize)]
pub struct WirePod {
    pub metadata: WireMetadata,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

impl From<WirePod> for Pod {
    fn from(WirePod { mut metadata, spec, status }: WirePod) -> Self {
        let name = metadata.take_name();
        let uid = metadata.uid.take().unwrap_or_default();
        let resource_version = metadata.resource_version.take().unwrap_or_default();
        Self {
            controller: metadata.controller(),
            template_hash: metadata.labels.as_mut().and_then(|labels| labels.remove("pod-template-hash")),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            is_terminating: metadata.deletion_timestamp.is_some(),
            is_mirror: metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")),
            is_ignored: metadata.is_ignored(),
            namespace: metadata.namespace.unwrap_or_default(),
            name,
            uid,
            resource_version,
            progress: progress(&status),
            spec,
            start_status: StartStatus::of(&status),
        }
    }
}

/// Returns the current and previous states of its containers.
pub fn container_states(status: &PodStatus) -> impl Iterator<Item = &ContainerState> {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    containers.flat_map(|container| container.state.iter().chain(&container.last_state))
}

/// True if one of its containers runs or has run.
pub fn has_run(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Running" | "Succeeded"))
        || container_states(status).any(|state| state.running.is_some() || state.terminated.is_some())
}

fn progress(status: &PodStatus) -> PodProgress {
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => PodProgress::Finished,
        _ if has_run(status) => PodProgress::Started,
        _ => PodProgress::Waiting,
    }
}

impl Pod {
    /// Returns its workload, such as `Deployment shop/web`, or the pod itself if it has no controller.
    pub fn workload(&self) -> String {
        let (kind, name) = controlled_by(self.controller.as_ref(), &self.name, self.template_hash.as_deref());
        format!("{kind} {}/{name}", self.namespace)
    }
}

/// Returns kind and name of the workload of a pod with this controller and name, or the pod itself if it has no controller. The
/// name of a Deployment's `ReplicaSet` is the name of the Deployment and the hash of its template; that of a `CronJob`'s Job is
/// its name and a time.
pub fn controlled_by<'a>(
    controller: Option<&'a (String, String)>,
    pod: &'a str,
    template_hash: Option<&str>,
) -> (&'a str, &'a str) {
    let deployment = |set: &'a str| set.strip_suffix(template_hash?)?.strip_suffix('-');
    match controller {
        None => ("Pod", pod),
        Some((kind, name)) => match kind.as_str() {
            "ReplicaSet" => deployment(name).map_or(("ReplicaSet", name), |deployment| ("Deployment", deployment)),
            "Job" => cron_job(name).map_or(("Job", name), |cron_job| ("CronJob", cron_job)),
            kind => (kind, name),
        },
    }
}

/// Returns the `CronJob` of a Job, whose name is that of the `CronJob` and the minute of its run since 1970
/// (kubernetes/kubernetes pkg/controller/cronjob, `getJobName`). A Job that a user names so is a rare mistake.
fn cron_job(job: &str) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    (minute.len() == 8 && minute.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}
