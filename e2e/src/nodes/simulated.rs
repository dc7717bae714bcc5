//! A simulated node before it joins.

use super::kubelet::Kubelet;
use super::samples::Sample;
use super::windows;
use crate::error::Result;
use k8s_openapi::api::core::v1::{
    ContainerImage, Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet};

/// The label with the Windows build, which a kubelet since 1.17 sets.
pub const WINDOWS_BUILD: &str = "node.kubernetes.io/windows-build";
/// The annotation of the nodes that kwok keeps ready, as (key, value).
pub(crate) const KWOK_NODE: (&str, &str) = ("kwok.x-k8s.io/node", "fake");
pub(super) const OS: &str = "kubernetes.io/os";
pub(super) const ARCH: &str = "kubernetes.io/arch";
const HOSTNAME: &str = "kubernetes.io/hostname";

/// A node before it joins: its name, labels, taints and the reports of its kubelet.
///
/// ```no_run
/// # use winpool_e2e::error::Result;
/// # use winpool_e2e::nodes::samples::Sample;
/// # use winpool_e2e::nodes::simulated::SimulatedNode;
/// # async fn example(client: kube::Client) -> Result<()> {
/// let kubelet = SimulatedNode::server_2022("win-a").label("pool", "a").join(&client).await?;
/// kubelet.upgrade_in_place("10.0.26100.4061").await?;
/// SimulatedNode::sample(Sample::S1).join(&client).await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedNode {
    pub(super) name: String,
    labels: BTreeMap<String, String>,
    without_labels: BTreeSet<String>,
    annotations: BTreeMap<String, String>,
    taints: Vec<Taint>,
    pub(super) info: NodeSystemInfo,
    capacity: BTreeMap<String, Quantity>,
    ready: bool,
}

impl SimulatedNode {
    /// A Windows node with this `kernelVersion`, in any form that kubelets have used. The rest is synthetic: the
    /// reports of a current kubelet. It is named after its build.
    pub fn windows(kernel_version: &str) -> Self {
        let build = windows::build_label(kernel_version).unwrap_or_else(|| "unknown".to_owned());
        let number = build.rsplit('.').next().unwrap_or_default();
        Self::new(NodeSystemInfo {
            kernel_version: kernel_version.to_owned(),
            os_image: windows::os_image(&build).to_owned(),
            container_runtime_version: windows::container_runtime(&build).to_owned(),
            operating_system: "windows".to_owned(),
            ..NodeSystemInfo::default()
        })
        .name(&format!("win-{number}"))
    }

    /// A node of Windows Server 2019 with this name.
    pub fn server_2019(name: &str) -> Self {
        Self::windows("10.0.17763.6659").name(name)
    }

    /// A node of Windows Server 2022 with this name.
    pub fn server_2022(name: &str) -> Self {
        Self::windows("10.0.20348.2655").name(name)
    }

    /// A node of Windows Server 2025 with this name.
    pub fn server_2025(name: &str) -> Self {
        Self::windows("10.0.26100.4061").name(name)
    }

    pub fn linux() -> Self {
        Self::new(NodeSystemInfo {
            kernel_version: "6.12.48+deb13-amd64".to_owned(),
            os_image: "Debian GNU/Linux 13 (trixie)".to_owned(),
            container_runtime_version: "containerd://2.1.4".to_owned(),
            operating_system: "linux".to_owned(),
            ..NodeSystemInfo::default()
        })
        .name("linux")
    }

    /// A node from a public report.
    pub fn sample(sample: Sample) -> Self {
        sample.node()
    }

    fn new(info: NodeSystemInfo) -> Self {
        let info = NodeSystemInfo {
            architecture: "amd64".to_owned(),
            boot_id: "8".to_owned(),
            system_uuid: "00000000-0000-4000-8000-000000000000".to_owned(),
            ..info
        };
        let capacity = [("cpu", "8"), ("memory", "32Gi"), ("pods", "110")]
            .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        let (kwok, managed) = KWOK_NODE;
        Self {
            name: String::new(),
            labels: BTreeMap::new(),
            without_labels: BTreeSet::new(),
            annotations: BTreeMap::from([(kwok.to_owned(), managed.to_owned())]),
            taints: Vec::new(),
            info,
            capacity: capacity.into(),
            ready: false,
        }
        .kubelet("v1.37.1")
    }

    /// The node's name, which is also its host name.
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self.info.machine_id.clone_from(&self.name);
        self
    }

    /// Adds a label, as with the kubelet's `--node-labels`: it overrides the kubelet's own.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.without_labels.remove(key);
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Removes a label, even one that the kubelet would set.
    pub fn without_label(mut self, key: &str) -> Self {
        self.labels.remove(key);
        self.without_labels.insert(key.to_owned());
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a taint at registration, as with `--register-with-taints`. With an empty text the taint has no value.
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()).filter(|value| !value.is_empty()),
            effect: effect.to_owned(),
            time_added: None,
        });
        self
    }

    /// The version of the kubelet. It decides which labels the kubelet sets by itself.
    pub fn kubelet(mut self, version: &str) -> Self {
        version.clone_into(&mut self.info.kubelet_version);
        version.clone_into(&mut self.info.kube_proxy_version);
        self
    }

    /// The container runtime, such as `containerd://1.7.19`.
    pub fn container_runtime(mut self, version: &str) -> Self {
        version.clone_into(&mut self.info.container_runtime_version);
        self
    }

    /// The name of the operating system as its kubelet reports it.
    pub fn os_image(mut self, image: &str) -> Self {
        image.clone_into(&mut self.info.os_image);
        self
    }

    /// The processor architecture, `amd64` if not said.
    pub fn architecture(mut self, architecture: &str) -> Self {
        architecture.clone_into(&mut self.info.architecture);
        self
    }

    /// The node's capacity of `cpu`, `memory`, `pods` or an extended resource.
    pub fn resource(mut self, name: &str, amount: &str) -> Self {
        self.capacity.insert(name.to_owned(), Quantity(amount.to_owned()));
        self
    }

    /// The kubelet reports the node as Ready right after it joined, for control planes without kwok.
    pub fn ready(mut self) -> Self {
        self.ready = true;
        self
    }

    /// kwok ignores the node: it gets no heartbeats, and its pods do not run.
    pub fn without_kwok(mut self) -> Self {
        self.annotations.remove(KWOK_NODE.0);
        self
    }

    /// Registers the node as its kubelet does: it is created with its whole status, not yet ready. The API server adds
    /// the taint `node.kubernetes.io/not-ready:NoSchedule`, which the controller manager removes once the node is
    /// Ready.
    ///
    /// `client` may be the kubelet's own identity; then `NodeRestriction` limits the labels.
    pub async fn join(self, client: &Client) -> Result<Kubelet> {
        let nodes: Api<Node> = Api::all(client.clone());
        nodes.create(&PostParams::default(), &self.node()).await?;
        let kubelet = Kubelet::of(self, nodes);
        if kubelet.node().ready {
            kubelet.report_ready(true).await?;
        }
        Ok(kubelet)
    }

    /// The kubelet's request for the registration.
    pub fn node(&self) -> Node {
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(self.all_labels()),
                annotations: Some(self.annotations.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: Some(self.taints.clone()).filter(|taints| !taints.is_empty()),
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                addresses: Some(vec![address("Hostname", &self.name), address("InternalIP", "192.0.2.1")]),
                allocatable: Some(self.capacity.clone()),
                capacity: Some(self.capacity.clone()),
                conditions: Some(conditions(false, Timestamp::now())),
                images: Some(vec![ContainerImage {
                    names: Some(vec!["registry.k8s.io/pause:3.10.1".to_owned()]),
                    size_bytes: Some(320_000),
                }]),
                node_info: Some(self.info.clone()),
                ..NodeStatus::default()
            }),
        }
    }

    pub(super) fn all_labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.labels_of_the_kubelet();
        labels.extend(self.labels.clone());
        labels.retain(|key, _| !self.without_labels.contains(key));
        labels
    }

    /// The labels that a kubelet of this version sets by itself.
    fn labels_of_the_kubelet(&self) -> BTreeMap<String, String> {
        let info = &self.info;
        let (os, arch) = (&info.operating_system, &info.architecture);
        let mut labels = BTreeMap::from([(HOSTNAME.to_owned(), self.name.clone())]);
        let minor = minor_of(&info.kubelet_version);
        if minor >= 14 {
            labels.insert(OS.to_owned(), os.clone());
            labels.insert(ARCH.to_owned(), arch.clone());
        }
        // It is unknown if the newest kubelets still set these; nothing may depend on them.
        labels.insert(format!("beta.{OS}"), os.clone());
        labels.insert(format!("beta.{ARCH}"), arch.clone());
        if minor >= 17
            && os == "windows"
            && let Some(build) = windows::build_label(&info.kernel_version)
        {
            labels.insert(WINDOWS_BUILD.to_owned(), build);
        }
        labels
    }
}

fn address(type_: &str, address: &str) -> NodeAddress {
    NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
}

/// 28 of `v1.28.12`.
fn minor_of(version: &str) -> u32 {
    let minor = version.split('.').nth(1).unwrap_or_default();
    minor.parse().unwrap_or_default()
}

/// The node's conditions at `now`, as a kubelet reports them.
pub(super) fn conditions(ready: bool, now: Timestamp) -> Vec<NodeCondition> {
    let condition = |type_: &str, status: bool, reason: &str| NodeCondition {
        type_: type_.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(format!("simulated: {reason}")),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    let readiness = if ready { "KubeletReady" } else { "KubeletNotReady" };
    vec![
        condition("MemoryPressure", false, "KubeletHasSufficientMemory"),
        condition("DiskPressure", false, "KubeletHasNoDiskPressure"),
        condition("PIDPressure", false, "KubeletHasSufficientPID"),
        condition("Ready", ready, readiness),
    ]
}
