//! Pod specs of pods and templates: the fields that decide on which nodes a pod may run and if it can start there.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{NodeSelector, NodeSelectorTerm, PodOS, PodSchedulingGate, Toleration},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::Deserialize;
use serde_json::Value;

use crate::api::quantity::amount;

use super::{
    affinity::is_empty,
    programs::{WireAction, WireLifecycle, WireMount, WireVolume},
    system::{System, is_windows_path, program_of},
};

/// The fields of a pod spec that winpool reads.
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
    /// The terms of the required node affinity, one of which has to match. No terms mean no requirement.
    pub terms: Vec<NodeSelectorTerm>,
    pub tolerations: Vec<Toleration>,
    /// True if the pod or one of its containers has `securityContext.windowsOptions` with a value other than `false`.
    pub has_windows_options: bool,
    /// True if it mounts a path of a node that only Windows has, such as `C:\data`.
    pub has_windows_volume: bool,
    /// `hostNetwork`.
    pub has_host_network: bool,
    /// `schedulerName`, if it is not the default scheduler.
    pub scheduler: Option<String>,
    /// The names in `schedulingGates`. The scheduler ignores the pod until there are none.
    pub scheduling_gates: Vec<String>,
    /// Containers, init containers and ephemeral containers.
    pub containers: Vec<Container>,
}

/// The fields of a container that winpool reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// The field of the pod spec that it is in.
    pub list: ContainerList,
    /// Its index there.
    pub index: usize,
    pub image: Option<String>,
    /// The operating system of the programs that it runs, as far as their names and paths show it.
    pub program: Option<System>,
    /// True for an init container that keeps running: a sidecar.
    pub is_sidecar: bool,
    /// `securityContext.windowsOptions.hostProcess`, its own or the pod's.
    pub is_host_process: bool,
    /// Its requests of extended resources, in billionths. These are resources whose domain is not Kubernetes' own.
    pub extended_resources: BTreeMap<String, i128>,
}

named! {
    /// A list of containers in a pod spec.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum ContainerList {
        #[default]
        Containers = "containers",
        InitContainers = "initContainers",
        EphemeralContainers = "ephemeralContainers",
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "a pod spec")]
struct WireSpec {
    node_name: Option<String>,
    runtime_class_name: Option<String>,
    os: Option<PodOS>,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Option<Vec<Toleration>>,
    affinity: Option<WireAffinity>,
    security_context: Option<SecurityContext>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
    ephemeral_containers: Option<Vec<WireContainer>>,
    volumes: Option<Vec<WireVolume>>,
    host_network: Option<bool>,
    scheduler_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
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
    image: Option<String>,
    /// A value of another type is the API server's to refuse.
    pub command: Option<Value>,
    pub args: Option<Value>,
    pub working_dir: Option<String>,
    pub volume_mounts: Option<Vec<WireMount>>,
    pub liveness_probe: Option<WireAction>,
    pub readiness_probe: Option<WireAction>,
    pub startup_probe: Option<WireAction>,
    pub lifecycle: Option<WireLifecycle>,
    restart_policy: Option<String>,
    security_context: Option<SecurityContext>,
    resources: Option<WireResources>,
}

impl WireContainer {
    /// Returns the system of the first program that shows one, or else Windows if a path is one of Windows.
    fn program(&self) -> Option<System> {
        let lists = [&self.command, &self.args].into_iter().flatten().filter_map(Value::as_array);
        let of_lifecycle = self.lifecycle.iter().flat_map(|all| all.post_start.iter().chain(&all.pre_stop));
        let probes = self.startup_probe.iter().chain(&self.liveness_probe).chain(&self.readiness_probe);
        let mut commands = probes.chain(of_lifecycle).filter_map(|handler| handler.exec.as_ref()?.command.as_ref());
        let mounts = self.volume_mounts.iter().flatten().filter_map(|mount| mount.mount_path.as_deref());
        let has_windows_path = || self.working_dir.as_deref().into_iter().chain(mounts).any(is_windows_path);
        program_of(lists.flatten().filter_map(Value::as_str))
            .or_else(|| commands.find_map(|words| program_of(words.iter().map(String::as_str))))
            .or_else(|| has_windows_path().then_some(System::Windows))
    }
}

#[derive(Deserialize)]
struct WireResources {
    limits: Option<BTreeMap<String, Quantity>>,
    requests: Option<BTreeMap<String, Quantity>>,
}

impl WireResources {
    /// Uses a limit as the request if there is no request.
    fn extended(self) -> BTreeMap<String, i128> {
        let is_extended = |name: &str| {
            name.split_once('/')
                .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
        };
        let all = self.limits.into_iter().chain(self.requests).flatten().filter(|(name, _)| is_extended(name));
        all.filter_map(|(name, quantity)| Some((name, amount(&quantity)?))).collect()
    }
}

/// A security context, of which winpool reads `windowsOptions`.
#[derive(Default, Deserialize)]
struct SecurityContext(BTreeMap<String, Value>);

impl SecurityContext {
    /// True if `windowsOptions` sets anything. `hostProcess: false` alone says nothing about the system.
    fn has_windows_options(&self) -> bool {
        let options = self.0.get("windowsOptions").and_then(Value::as_object);
        options.is_some_and(|options| options.values().any(|value| !matches!(value, Value::Null | Value::Bool(false))))
    }

    fn host_process(&self) -> Option<bool> {
        self.0.get("windowsOptions")?.get("hostProcess")?.as_bool()
    }
}

impl From<WireSpec> for PodSpec {
    fn from(wire: WireSpec) -> Self {
        let lists = [
            (ContainerList::Containers, wire.containers),
            (ContainerList::InitContainers, wire.init_containers),
            (ContainerList::EphemeralContainers, wire.ephemeral_containers),
        ];
        let of_pod = wire.security_context.unwrap_or_default();
        let contexts = lists.iter().flat_map(|(_, list)| list.iter().flatten());
        let mut contexts =
            contexts.filter_map(|container| container.security_context.as_ref()).chain(std::iter::once(&of_pod));
        let has_windows_options = contexts.any(SecurityContext::has_windows_options);
        let container = |list, (index, container): (usize, WireContainer)| {
            let program = container.program();
            let own = container.security_context.and_then(|context| context.host_process());
            Container {
                list,
                index,
                image: container.image,
                program,
                is_sidecar: list == ContainerList::InitContainers
                    && container.restart_policy.as_deref() == Some("Always"),
                is_host_process: own.or(of_pod.host_process()).unwrap_or(false),
                extended_resources: container.resources.map(WireResources::extended).unwrap_or_default(),
            }
        };
        let containers = lists
            .into_iter()
            .flat_map(|(list, all)| all.into_iter().flatten().enumerate().map(move |each| (list, each)))
            .map(|(list, each)| container(list, each))
            .collect();
        let required = wire.affinity.and_then(|affinity| affinity.node_affinity?.required);
        Self {
            node: wire.node_name.filter(|name| !name.is_empty()),
            runtime_class: wire.runtime_class_name.filter(|name| !name.is_empty()),
            os: wire.os.map(|os| os.name).filter(|name| !name.is_empty()),
            node_selector: wire.node_selector.unwrap_or_default(),
            terms: required.map(|required| required.node_selector_terms).unwrap_or_default(),
            tolerations: wire.tolerations.unwrap_or_default(),
            has_windows_options,
            has_windows_volume: wire.volumes.iter().flatten().any(WireVolume::is_of_windows),
            has_host_network: wire.host_network == Some(true),
            scheduler: wire.scheduler_name.filter(|name| !["", "default-scheduler"].contains(&name.as_str())),
            scheduling_gates: wire.scheduling_gates.into_iter().flatten().map(|gate| gate.name).collect(),
            containers,
        }
    }
}

impl PodSpec {
    /// Returns the value that `nodeSelector` requires for a label.
    pub fn selected(&self, key: &str) -> Option<&str> {
        self.node_selector.get(key).map(String::as_str)
    }

    /// Returns the terms of the required node affinity that can select a node.
    pub fn selecting_terms(&self) -> impl Iterator<Item = &NodeSelectorTerm> {
        self.terms.iter().filter(|term| !is_empty(term))
    }

    /// Returns the images that the pod needs, each with its container.
    pub fn images(&self) -> impl Iterator<Item = (&Container, &str)> {
        let needed = self.containers.iter().filter(|container| container.list != ContainerList::EphemeralContainers);
        needed.filter_map(|container| Some((container, container.image.as_deref()?)))
    }
}
