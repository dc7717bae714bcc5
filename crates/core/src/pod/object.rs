//! Pods: their controller and progress.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::api::names;
use crate::pod::spec::PodSpec;
use crate::pod::{KnownError, known_error};

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
    /// The time at which winpool last added tolerations to it: winpool changes nothing else of pods.
    pub helped: Option<Timestamp>,
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
            created: metadata.created(),
            is_terminating: metadata.deletion_timestamp.is_some(),
            is_mirror: metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")),
            is_ignored: metadata.is_ignored(),
            helped: metadata.written(),
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

/// The fields of a pod's status that winpool reads. No time is among them: a kubelet can write some that no type here holds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Option<String>,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub conditions: Option<Vec<PodCondition>>,
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
    pub container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: Option<String>,
    pub message: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: String,
    pub state: Option<ContainerState>,
    pub last_state: Option<ContainerState>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub running: Option<IgnoredAny>,
    pub waiting: Option<StateReason>,
    pub terminated: Option<StateReason>,
}

/// Why a container waits or has ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StateReason {
    pub exit_code: i32,
    pub reason: Option<String>,
    pub message: Option<String>,
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
pub fn controlled_by<'a>(by: Option<&'a (String, String)>, pod: &'a str, hash: Option<&str>) -> (&'a str, &'a str) {
    let deployment = |set: &'a str| set.strip_suffix(hash?)?.strip_suffix('-');
    match by {
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

// The part of the status of a pod that shows if it starts.

/// The reasons of containers that ended because they could not be started. Others wrote their last message themselves.
const NOT_STARTED: [&str; 2] = ["StartError", "ContainerCannotRun"];
/// The reasons of containers that wait while their pod may still have no sandbox.
const BEFORE_SANDBOX: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The part of the status of a pod that shows if it starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartStatus {
    /// The known errors because of which containers do not run.
    pub failures: Vec<&'static KnownError>,
    /// The error for which the kubelet refused the pod.
    pub refusal: Option<&'static KnownError>,
    /// True if the scheduler finds no node.
    pub is_unschedulable: bool,
    /// True if its sandbox was created.
    pub has_sandbox: bool,
}

impl StartStatus {
    pub(crate) fn of(status: &PodStatus) -> Self {
        let has = |kind: &str, is: &str| {
            let mut found = status.conditions.iter().flatten().filter(|condition| condition.type_ == kind);
            // The scheduler has not looked at a pod with a gate.
            found.any(|condition| condition.status == is && condition.reason.as_deref() != Some("SchedulingGated"))
        };
        let containers = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let has_failed = status.phase.as_deref() == Some("Failed");
        Self {
            failures: containers().filter_map(failure).collect(),
            refusal: status.reason.as_deref().filter(|_| has_failed).and_then(known_error),
            is_unschedulable: has("PodScheduled", "False"),
            has_sandbox: has("PodReadyToStartContainers", "True") || containers().any(is_past_sandbox),
        }
    }
}

fn failure(status: &ContainerStatus) -> Option<&'static KnownError> {
    let now = status.state.as_ref()?;
    if now.running.is_some() {
        return None;
    }
    // A container that waits for its next attempt shows the last one.
    let before = status.last_state.as_ref().filter(|_| now.waiting.is_some());
    let ended = [Some(now), before].into_iter().flatten().filter_map(|state| state.terminated.as_ref());
    let ended = ended.filter(|ended| ended.reason.as_deref().is_some_and(|reason| NOT_STARTED.contains(&reason)));
    let waiting = now.waiting.as_ref().and_then(|waiting| waiting.message.as_deref());
    let mut messages = waiting.into_iter().chain(ended.filter_map(|ended| ended.message.as_deref()));
    messages.find_map(known_error)
}

fn is_past_sandbox(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| match &state.waiting {
        None => state.running.is_some() || state.terminated.is_some(),
        Some(waiting) => waiting.reason.as_deref().is_some_and(|reason| !BEFORE_SANDBOX.contains(&reason)),
    })
}

// Metadata of pods, workloads and templates.

/// Kubernetes' own kinds of workloads, and their groups.
const KINDS: [&str; 7] =
    ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"];
const GROUPS: [&str; 3] = ["", "apps", "batch"];

/// An entry of `metadata.managedFields`, without the fields, which are larger than the rest of most objects.
#[derive(Deserialize)]
pub struct FieldManager {
    pub manager: Option<Box<str>>,
    pub subresource: Option<Box<str>>,
    pub time: Option<Box<str>>,
}

/// The metadata that winpool reads.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireMetadata {
    pub namespace: Option<String>,
    name: Option<String>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    generate_name: Option<String>,
    /// Times are kept as text, because the API server stores some that no type here holds.
    pub creation_timestamp: Option<String>,
    pub deletion_timestamp: Option<String>,
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
    pub owner_references: Option<Vec<OwnerReference>>,
    pub managed_fields: Option<Vec<FieldManager>>,
}

impl WireMetadata {
    /// True if it has the annotation `winpool.dev/ignore`.
    pub fn is_ignored(&self) -> bool {
        self.annotations.as_ref().and_then(|all| all.get(names::IGNORE)).is_some_and(|value| value == "true")
    }

    /// The time of its creation, if [`Timestamp`] can hold it.
    pub fn created(&self) -> Option<Timestamp> {
        self.creation_timestamp.as_ref()?.parse().ok()
    }

    /// The time at which winpool last wrote the object.
    fn written(&self) -> Option<Timestamp> {
        let mut own = self.managed_fields.iter().flatten();
        own.find(|entry| entry.manager.as_deref() == Some(names::FIELD_MANAGER))?.time.as_ref()?.parse().ok()
    }

    /// Returns the name or, if the API server makes it, its prefix.
    pub fn take_name(&mut self) -> String {
        self.name.take().or(self.generate_name.take()).unwrap_or_default()
    }

    /// Kind and name of the controller. A foreign kind with the name of one of Kubernetes' own is written with its group:
    /// `StatefulSet.apps.kruise.io`.
    pub fn controller(&self) -> Option<(String, String)> {
        let mut owners = self.owner_references.iter().flatten();
        let owner =
            owners.find(|owner| owner.controller == Some(true) && is_plain(&owner.kind) && is_plain(&owner.name))?;
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_foreign = KINDS.contains(&owner.kind.as_str()) && !GROUPS.contains(&group);
        let kind = if is_foreign { format!("{}.{group}", owner.kind) } else { owner.kind.clone() };
        Some((kind, owner.name.clone()))
    }
}

/// True if the text can be a kind or a name. The API server accepts any text in an owner, even the name of another namespace.
fn is_plain(text: &str) -> bool {
    text.len() <= 253 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
}

// `DaemonSets`: their names and the template of their pods.

/// The fields of a `DaemonSet` that winpool reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireDaemonSet")]
pub struct DaemonSet {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub created: Option<Timestamp>,
    /// True if it creates no more pods, because it is being deleted.
    pub is_over: bool,
    /// True if it or its template has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    /// The pod spec of the template.
    pub template: PodSpec,
}

#[derive(Deserialize)]
struct WireDaemonSet {
    metadata: WireMetadata,
    spec: WireDaemonSetSpec,
}

#[derive(Deserialize)]
struct WireDaemonSetSpec {
    template: WireTemplate,
}

#[derive(Deserialize)]
struct WireTemplate {
    metadata: Option<WireMetadata>,
    #[serde(default)]
    spec: PodSpec,
}

impl From<WireDaemonSet> for DaemonSet {
    fn from(WireDaemonSet { mut metadata, spec: WireDaemonSetSpec { template } }: WireDaemonSet) -> Self {
        Self {
            is_over: metadata.deletion_timestamp.is_some(),
            is_ignored: metadata.is_ignored() || template.metadata.is_some_and(|of_pods| of_pods.is_ignored()),
            created: metadata.created(),
            name: metadata.take_name(),
            namespace: metadata.namespace.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            template: template.spec,
        }
    }
}
