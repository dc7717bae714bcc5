//! Pods: their controller, progress and errors.

use k8s_openapi::{
    api::core::v1::{ContainerState, PodStatus},
    jiff::Timestamp,
};
use serde::Deserialize;

use crate::api::names;

use super::{
    errors::{KnownError, known_error},
    metadata::WireMetadata,
    spec::PodSpec,
    start_status::StartStatus,
    workload_kind::WorkloadKind,
};

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
    /// `metadata.deletionTimestamp`: the end of its grace period, if it is being deleted.
    pub deleted: Option<Timestamp>,
    /// True if a kubelet created it from a file on the node.
    pub is_mirror: bool,
    /// True if it has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    pub spec: PodSpec,
    pub progress: PodProgress,
    /// The node on which one of its containers runs or has run.
    pub ran_on: Option<String>,
    /// True if it has a phase, so that the scheduler has set `nodeName`. In a manifest, the author has set it.
    pub is_bound: bool,
    /// The label `kubernetes.io/os`, which the kubelet compares with the node's label.
    pub os_label: Option<String>,
    /// The known errors in its status.
    pub errors: Vec<KnownError>,
    /// The part of its status that shows if it starts.
    pub start_status: StartStatus,
    /// The scheduler's reason why it finds no node.
    pub unschedulable: Option<String>,
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

#[derive(Deserialize)]
struct WirePod {
    metadata: WireMetadata,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

impl From<WirePod> for Pod {
    fn from(WirePod { mut metadata, spec, status }: WirePod) -> Self {
        let name = metadata.take_name();
        let uid = metadata.uid.take().unwrap_or_default();
        let resource_version = metadata.resource_version.take().unwrap_or_default();
        let label = |key: &str| metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned());
        Self {
            controller: metadata.controller(),
            template_hash: label("pod-template-hash"),
            os_label: label(names::OS),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleted: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            is_mirror: metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")),
            is_ignored: metadata.is_ignored(),
            namespace: metadata.namespace.unwrap_or_default(),
            name,
            uid,
            resource_version,
            progress: progress(&status),
            ran_on: spec.node.clone().filter(|_| has_run(&status)),
            spec,
            is_bound: status.phase.is_some(),
            errors: errors(&status),
            start_status: StartStatus::of(&status),
            unschedulable: unschedulable(&status),
        }
    }
}

/// Returns the current and previous states of its containers.
fn states(status: &PodStatus) -> impl Iterator<Item = &ContainerState> {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    containers.flat_map(|container| container.state.iter().chain(&container.last_state))
}

fn unschedulable(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let scheduled = conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    scheduled.message.clone()
}

fn has_run(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Running" | "Succeeded"))
        || states(status).any(|state| state.running.is_some() || state.terminated.is_some())
}

fn progress(status: &PodStatus) -> PodProgress {
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => PodProgress::Finished,
        _ if has_run(status) => PodProgress::Started,
        _ => PodProgress::Waiting,
    }
}

fn errors(status: &PodStatus) -> Vec<KnownError> {
    let messages = states(status).flat_map(|state| {
        let waiting = state.waiting.iter().filter_map(|waiting| waiting.message.as_deref());
        waiting.chain(state.terminated.iter().filter_map(|terminated| terminated.message.as_deref()))
    });
    let mut found: Vec<KnownError> = Vec::new();
    for message in messages.chain(status.reason.as_deref()).chain(status.message.as_deref()) {
        found.extend(known_error(message).copied().filter(|error| !found.contains(error)));
    }
    found
}

impl Pod {
    /// Returns its workload, such as `Deployment shop/web`, or the pod itself if it has no controller. The name of a
    /// Deployment's `ReplicaSet` is the name of the Deployment and the hash of its template; that of a `CronJob`'s Job is its
    /// name and a time.
    pub fn workload(&self) -> String {
        let (kind, name) = self.controlled_by();
        format!("{kind} {}/{name}", self.namespace)
    }

    /// Returns the kind of its workload, if winpool lists templates of that kind.
    pub fn workload_kind(&self) -> Option<WorkloadKind> {
        WorkloadKind::by_name(self.controlled_by().0)
    }

    fn controlled_by(&self) -> (&str, &str) {
        match &self.controller {
            None => ("Pod", self.name.as_str()),
            Some((kind, name)) if kind == "ReplicaSet" => match self.deployment(name) {
                Some(deployment) => ("Deployment", deployment),
                None => ("ReplicaSet", name.as_str()),
            },
            Some((kind, name)) if kind == "Job" => match cron_job(name) {
                Some(cron_job) => ("CronJob", cron_job),
                None => ("Job", name.as_str()),
            },
            Some((kind, name)) => (kind.as_str(), name.as_str()),
        }
    }

    fn deployment<'a>(&self, replica_set: &'a str) -> Option<&'a str> {
        replica_set.strip_suffix(self.template_hash.as_deref()?)?.strip_suffix('-')
    }

    /// True if it has a deletionTimestamp.
    pub fn is_terminating(&self) -> bool {
        self.deleted.is_some()
    }
}

/// Returns the `CronJob` of a Job, whose name is that of the `CronJob` and the minute of its run since 1970
/// (kubernetes/kubernetes pkg/controller/cronjob, `getJobName`). A Job that a user names so is a rare mistake.
fn cron_job(job: &str) -> Option<&str> {
    let (name, minute) = job.rsplit_once('-')?;
    (minute.len() == 8 && minute.bytes().all(|b| b.is_ascii_digit())).then_some(name)
}
