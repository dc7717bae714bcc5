//! Pod specs, with what decides beyond the operator's fields if a pod can start on a node.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::Value;
use winpool_core::api::quantity::amount;
use winpool_core::pod::{self as operator, System};

use crate::placement::HOSTNAME;

use super::programs::{WireAction, WireLifecycle, WireMount, WireVolume, is_windows_path, program_of};

/// The fields of a pod spec that winpool reads to answer a question.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(try_from = "Value")]
pub struct PodSpec {
    /// The fields that the operator reads.
    pub operator: operator::PodSpec,
    /// True if it mounts a path of a node that only Windows has, such as `C:\data`.
    pub has_windows_volume: bool,
    /// `hostNetwork`.
    pub has_host_network: bool,
    /// True if a `topologySpreadConstraints` item counts nodes whose taints the pod does not tolerate as nodes without pods.
    pub spreads_over_tainted_nodes: bool,
    /// `schedulerName`, if it is not the default scheduler.
    pub scheduler: Option<String>,
    /// The `LocalQueue` of Kueue that the workload names in a label.
    pub queue: Option<String>,
    /// Containers, init containers and ephemeral containers.
    pub containers: Vec<Container>,
}

impl Deref for PodSpec {
    type Target = operator::PodSpec;

    fn deref(&self) -> &operator::PodSpec {
        &self.operator
    }
}

impl DerefMut for PodSpec {
    fn deref_mut(&mut self) -> &mut operator::PodSpec {
        &mut self.operator
    }
}

/// The fields of a container that winpool reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Container {
    /// The field of the pod spec that it is in.
    pub list: ContainerList,
    /// Its index there.
    pub index: usize,
    pub name: String,
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

/// A list of containers in a pod spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContainerList {
    #[default]
    Containers,
    InitContainers,
    EphemeralContainers,
}

impl ContainerList {
    /// The name of the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
            Self::EphemeralContainers => "ephemeralContainers",
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "a pod spec")]
struct WireSpec {
    security_context: Option<Value>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
    ephemeral_containers: Option<Vec<WireContainer>>,
    volumes: Option<Vec<WireVolume>>,
    host_network: Option<bool>,
    scheduler_name: Option<String>,
    topology_spread_constraints: Option<Vec<WireSpread>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpread {
    topology_key: Option<String>,
    when_unsatisfiable: Option<String>,
    node_taints_policy: Option<String>,
    node_affinity_policy: Option<String>,
}

impl WireSpread {
    /// True if each node is a domain of its own, and one that the pod does not tolerate counts: the default of `nodeTaintsPolicy` is
    /// `Ignore`. With the default of `nodeAffinityPolicy` nodes that the pod does not select do not count.
    fn counts_tainted_nodes(&self) -> bool {
        self.topology_key.as_deref() == Some(HOSTNAME)
            && self.when_unsatisfiable.as_deref() != Some("ScheduleAnyway")
            && self.node_taints_policy.as_deref() != Some("Honor")
            && self.node_affinity_policy.as_deref() != Some("Ignore")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    name: Option<String>,
    image: Option<String>,
    /// A value of another type is the API server's to refuse.
    command: Option<Value>,
    args: Option<Value>,
    working_dir: Option<String>,
    volume_mounts: Option<Vec<WireMount>>,
    liveness_probe: Option<WireAction>,
    readiness_probe: Option<WireAction>,
    startup_probe: Option<WireAction>,
    lifecycle: Option<WireLifecycle>,
    restart_policy: Option<String>,
    security_context: Option<Value>,
    resources: Option<WireResources>,
}

impl WireContainer {
    /// Returns the system of the first program that shows one, or else Windows if a path is one of Windows.
    fn program(&self) -> Option<System> {
        let lists = [&self.command, &self.args].into_iter().flatten().filter_map(Value::as_array);
        let of_lifecycle =
            self.lifecycle.iter().flat_map(|lifecycle| lifecycle.post_start.iter().chain(&lifecycle.pre_stop));
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
    /// A limit counts as the request if the container has no request.
    fn extended(self) -> BTreeMap<String, i128> {
        let is_extended = |name: &str| {
            name.split_once('/')
                .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
        };
        let quantities = self.limits.into_iter().chain(self.requests).flatten().filter(|(name, _)| is_extended(name));
        quantities.filter_map(|(name, quantity)| Some((name, amount(&quantity)?))).collect()
    }
}

/// Returns `windowsOptions.hostProcess` of a security context.
fn host_process(context: Option<&Value>) -> Option<bool> {
    context?["windowsOptions"]["hostProcess"].as_bool()
}

impl TryFrom<Value> for PodSpec {
    type Error = serde_json::Error;

    fn try_from(spec: Value) -> Result<Self, Self::Error> {
        let operator = operator::PodSpec::deserialize(&spec)?;
        let wire = WireSpec::deserialize(spec)?;
        let lists = [
            (ContainerList::Containers, wire.containers),
            (ContainerList::InitContainers, wire.init_containers),
            (ContainerList::EphemeralContainers, wire.ephemeral_containers),
        ];
        let of_pod = host_process(wire.security_context.as_ref()).unwrap_or(false);
        let container = |list, (index, container): (usize, WireContainer)| Container {
            list,
            index,
            program: container.program(),
            name: container.name.unwrap_or_default(),
            image: container.image,
            is_sidecar: list == ContainerList::InitContainers && container.restart_policy.as_deref() == Some("Always"),
            is_host_process: host_process(container.security_context.as_ref()).unwrap_or(of_pod),
            extended_resources: container.resources.map(WireResources::extended).unwrap_or_default(),
        };
        let containers = lists
            .into_iter()
            .flat_map(|(list, containers)| {
                containers.into_iter().flatten().enumerate().map(move |item| container(list, item))
            })
            .collect();
        let spreads = wire.topology_spread_constraints;
        Ok(Self {
            operator,
            has_windows_volume: wire.volumes.iter().flatten().any(WireVolume::is_of_windows),
            has_host_network: wire.host_network == Some(true),
            spreads_over_tainted_nodes: spreads.iter().flatten().any(WireSpread::counts_tainted_nodes),
            scheduler: wire.scheduler_name.filter(|name| !["", "default-scheduler"].contains(&name.as_str())),
            queue: None,
            containers,
        })
    }
}

impl PodSpec {
    /// Returns the images that the pod needs, each with its container.
    pub fn images(&self) -> impl Iterator<Item = (&Container, &str)> {
        let needed = self.containers.iter().filter(|container| container.list != ContainerList::EphemeralContainers);
        needed.filter_map(|container| Some((container, container.image.as_deref()?)))
    }
}
