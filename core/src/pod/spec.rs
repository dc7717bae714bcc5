//! Pods and pod templates, as far as taints, classes and placement concern them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodStatus, Toleration},
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
    jiff::Timestamp,
};
use serde::Deserialize;
use serde_json::Value;

use crate::api::{Taint, names};

use super::{WorkloadKind, tolerate};

/// What winpool reads of a pod spec.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireSpec")]
pub struct PodSpec {
    /// `nodeName`.
    pub node: Option<String>,
    /// `runtimeClassName`.
    pub runtime_class: Option<String>,
    /// `os.name`.
    pub os: Option<String>,
    /// `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The terms of the required node affinity: one of them has to match. None means no requirement.
    pub terms: Vec<NodeSelectorTerm>,
    /// `tolerations`.
    pub tolerations: Vec<Toleration>,
    /// Whether the pod or a container has `securityContext.windowsOptions`.
    pub has_windows_options: bool,
    /// Whether it uses a field that only Linux has: a Windows kubelet cannot start such a pod.
    pub has_linux_fields: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec {
    node_name: Option<String>,
    runtime_class_name: Option<String>,
    os: Option<WireOs>,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Option<Vec<Toleration>>,
    affinity: Option<WireAffinity>,
    security_context: Option<BTreeMap<String, Value>>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
    host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    host_pid: Option<bool>,
    #[serde(rename = "hostIPC")]
    host_ipc: Option<bool>,
}

#[derive(Deserialize)]
struct WireOs {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAffinity {
    node_affinity: Option<WireNodeAffinity>,
}

#[derive(Deserialize)]
struct WireNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    security_context: Option<BTreeMap<String, Value>>,
}

/// Fields of a security context, of a pod or a container, that the API server refuses in a pod with
/// `os.name: windows` (kubernetes/kubernetes pkg/apis/core/validation, `validateWindows`).
const LINUX_SECURITY: [&str; 11] = [
    "seLinuxOptions",
    "seccompProfile",
    "appArmorProfile",
    "fsGroup",
    "supplementalGroups",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "capabilities",
    "privileged",
    "procMount",
];

impl From<WireSpec> for PodSpec {
    fn from(wire: WireSpec) -> Self {
        let containers = wire.containers.iter().chain(&wire.init_containers).flatten();
        let contexts = containers.filter_map(|container| container.security_context.as_ref());
        let contexts: Vec<_> = contexts.chain(&wire.security_context).collect();
        let present = |key: &str| contexts.iter().any(|c| c.get(key).is_some_and(|value| !value.is_null()));
        let has_windows_options = present("windowsOptions");
        let on_host = [wire.host_network, wire.host_pid, wire.host_ipc].contains(&Some(true));
        // A HostProcess pod has to be on the host's network.
        let has_linux_fields = !has_windows_options && (on_host || LINUX_SECURITY.into_iter().any(present));
        let required = wire.affinity.and_then(|affinity| affinity.node_affinity?.required);
        Self {
            node: wire.node_name.filter(|name| !name.is_empty()),
            runtime_class: wire.runtime_class_name.filter(|name| !name.is_empty()),
            os: wire.os.map(|os| os.name),
            node_selector: wire.node_selector.unwrap_or_default(),
            terms: required.map(|required| required.node_selector_terms).unwrap_or_default(),
            tolerations: wire.tolerations.unwrap_or_default(),
            has_windows_options,
            has_linux_fields,
        }
    }
}

impl PodSpec {
    /// Whether it tolerates `taint` by its own tolerations.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        tolerate(&self.tolerations, taint)
    }

    /// Whether nothing in it says which operating system it is for.
    #[must_use]
    pub fn says_no_system(&self) -> bool {
        let affinity = self.terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
        self.os.is_none()
            && self.runtime_class.is_none()
            && !self.has_windows_options
            && !self.node_selector.keys().any(|key| tells_the_system(key))
            && !affinity.into_iter().any(|expression| tells_the_system(&expression.key))
    }

    /// Whether it says that it is for another system than Windows.
    #[must_use]
    pub fn says_another_system(&self) -> bool {
        let other = |os: &str| os != names::WINDOWS;
        self.os.as_deref().is_some_and(other)
            || OS_KEYS.iter().any(|key| self.node_selector.get(*key).is_some_and(|os| other(os)))
    }

    /// Whether it says Windows by itself; its class may say it too.
    #[must_use]
    pub fn says_windows(&self) -> bool {
        self.has_windows_options || self.says_windows_in_view_of(expects_windows)
    }

    /// Whether it says Windows in a way that the admission policies read: they know neither `windowsOptions` nor
    /// capability labels in affinity.
    pub(crate) fn says_windows_to_policies(&self) -> bool {
        let is_read =
            |expression: &NodeSelectorRequirement| !expression.key.starts_with(names::CAPABILITY_LABEL_PREFIX);
        self.says_windows_in_view_of(|expression| is_read(expression) && expects_windows(expression))
    }

    fn says_windows_in_view_of(&self, expects: impl Fn(&NodeSelectorRequirement) -> bool) -> bool {
        let every_term = || {
            let mut terms = self.terms.iter();
            !self.terms.is_empty() && terms.all(|term| term.match_expressions.iter().flatten().any(&expects))
        };
        self.os.as_deref() == Some(names::WINDOWS) || selects_windows(&self.node_selector) || every_term()
    }

    /// Whether it chooses nodes by nothing but operating system and architecture.
    pub(crate) fn selects_no_more_than_a_system(&self) -> bool {
        let arch = [names::ARCH, "beta.kubernetes.io/arch"];
        let of_system = |key: &String| OS_KEYS.contains(&key.as_str()) || arch.contains(&key.as_str());
        self.terms.is_empty() && self.node_selector.keys().all(of_system)
    }
}

const OS_KEYS: [&str; 2] = [names::OS, "beta.kubernetes.io/os"];

/// Whether a node label of this key says which operating system the node runs.
#[must_use]
pub fn tells_the_system(key: &str) -> bool {
    OS_KEYS.contains(&key) || is_on_windows_only(key)
}

fn is_on_windows_only(key: &str) -> bool {
    key == names::WINDOWS_BUILD || key.starts_with(names::CAPABILITY_LABEL_PREFIX)
}

/// Whether only Windows nodes have these labels.
#[must_use]
pub fn selects_windows(selector: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .any(|(key, value)| OS_KEYS.contains(&key.as_str()) && value == names::WINDOWS || is_on_windows_only(key))
}

fn expects_windows(expression: &NodeSelectorRequirement) -> bool {
    let values = expression.values.as_deref().unwrap_or_default();
    let is_in = expression.operator == "In" && !values.is_empty();
    OS_KEYS.contains(&expression.key.as_str()) && is_in && values.iter().all(|value| value == names::WINDOWS)
        || is_on_windows_only(&expression.key) && (is_in || expression.operator == "Exists")
}

/// What winpool reads of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// Kind and name of the controller that made it.
    pub controller: Option<(String, String)>,
    /// The label `pod-template-hash`, which a Deployment gives its `ReplicaSets` and their pods.
    pub template_hash: Option<String>,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp`: when its grace period ends, if it is being deleted.
    pub deleted: Option<Timestamp>,
    /// Whether a kubelet made it of a file on its node.
    pub is_mirror: bool,
    /// Whether it asks that its placement does not count, by the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    /// `spec`.
    pub spec: PodSpec,
    /// How far it came.
    pub progress: PodProgress,
}

/// How far a pod came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodProgress {
    /// None of its containers has run yet.
    #[default]
    Waiting,
    /// None of its containers has run, and the kubelet says that the image is not for the node's operating system.
    ImageOfAnotherSystem,
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

/// Metadata without managedFields, which are larger than all the rest.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WireMetadata {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
    pub owner_references: Option<Vec<OwnerReference>>,
}

impl WireMetadata {
    pub fn is_ignored(&self) -> bool {
        self.annotations.as_ref().and_then(|all| all.get(names::IGNORE)).is_some_and(|value| value == "true")
    }

    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }
}

impl From<WirePod> for Pod {
    fn from(WirePod { metadata, spec, status }: WirePod) -> Self {
        Self {
            controller: metadata.controller().map(|owner| (owner.kind.clone(), owner.name.clone())),
            template_hash: metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash").cloned()),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            deleted: metadata.deletion_timestamp.as_ref().map(|time| time.0),
            is_mirror: metadata.annotations.as_ref().is_some_and(|all| all.contains_key("kubernetes.io/config.mirror")),
            is_ignored: metadata.is_ignored(),
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            spec,
            progress: progress(&status),
        }
    }
}

fn progress(status: &PodStatus) -> PodProgress {
    let containers = || status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let seen = || containers().flat_map(|container| container.state.iter().chain(&container.last_state));
    let mut waiting = seen().filter_map(|state| state.waiting.as_ref()?.message.as_deref());
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => PodProgress::Finished,
        Some("Running") => PodProgress::Started,
        _ if seen().any(|state| state.running.is_some() || state.terminated.is_some()) => PodProgress::Started,
        _ if waiting.any(says_no_variant) => PodProgress::ImageOfAnotherSystem,
        _ => PodProgress::Waiting,
    }
}

/// containerd's words for an image that has no variant for the node.
fn says_no_variant(message: &str) -> bool {
    message.contains("no match for platform in manifest") || message.contains("no matching manifest for windows")
}

impl Pod {
    /// `Deployment shop/web`, or the pod itself when nothing controls it. A `ReplicaSet` of a Deployment is named for the
    /// Deployment and the hash of its template.
    #[must_use]
    pub fn workload(&self) -> String {
        let (kind, name) = self.controlled_by();
        format!("{kind} {}/{name}", self.namespace)
    }

    /// The kind of its workload, if templates of that kind are listed.
    #[must_use]
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
            Some((kind, name)) => (kind.as_str(), name.as_str()),
        }
    }

    fn deployment<'a>(&self, replica_set: &'a str) -> Option<&'a str> {
        replica_set.strip_suffix(self.template_hash.as_deref()?)?.strip_suffix('-')
    }

    /// Whether it has a deletionTimestamp.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.deleted.is_some()
    }
}
