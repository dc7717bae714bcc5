//! A node.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_core::api::{Taint, names};
use winpool_core::labels::Labels;
use winpool_core::node::{NodeFields, NodeObject};
use winpool_core::windows::container_runtime::RuntimeName;
use winpool_core::windows::{ContainerRuntime, KernelVersion};

use crate::image::Host;

use super::source::Position;

/// A node as it was read.
#[derive(Clone, Debug, Default)]
pub struct SeenNode {
    pub source: Option<Position>,
    /// The fields that the operator decides by.
    pub object: NodeObject,
    pub allocatable: BTreeMap<String, Quantity>,
    /// The names in `status.runtimeHandlers`; `None` if the node does not list them.
    pub handlers: Option<Vec<String>>,
    /// The fields that rules read.
    pub written: Value,
}

impl SeenNode {
    /// Returns a node in a live cluster with the fields that the operator reads of it, and others of its JSON.
    pub fn new(object: NodeObject, node: &Value) -> Self {
        let allocatable = Deserialize::deserialize(&node["status"]["allocatable"]).unwrap_or_default();
        let handlers = node["status"]["runtimeHandlers"].as_array().map(|handlers| {
            handlers.iter().map(|handler| handler["name"].as_str().unwrap_or_default().to_owned()).collect()
        });
        Self { source: None, object, allocatable, handlers, written: reduced_node(node) }
    }

    /// True for a Windows node in EKS, which gives its pods addresses.
    pub(crate) fn is_on_eks(&self) -> bool {
        let node = &self.object.node;
        let has_label = || node.labels.with_prefix("eks.amazonaws.com/").next().is_some();
        node.is_windows() && (self.allocatable.contains_key(EKS_ADDRESS) || has_label())
    }

    /// Returns the node as pods see it.
    pub fn host(&self) -> Node {
        let of_object = Node::of(&self.object.name, &self.object.node);
        Node { allocatable: self.allocatable.clone(), handlers: self.handlers.clone(), ..of_object }
    }
}

/// The resource of a node in EKS that stands for the addresses of Windows pods.
pub(crate) const EKS_ADDRESS: &str = "vpc.amazonaws.com/PrivateIPv4Address";

/// The repository of Kubernetes' pause images.
pub(crate) const PAUSE: &str = "registry.k8s.io/pause:";

/// Returns a copy of the node that has only the fields that the rules read.
pub fn reduced_node(node: &Value) -> Value {
    let status = &node["status"];
    let images = status["images"].as_array().into_iter().flatten();
    let is_pause = |image: &&Value| image["names"].as_array().is_some_and(|names| names.iter().any(is_pause_image));
    let images: Vec<&Value> = images.filter(is_pause).collect();
    json!({
        "metadata": {"name": node["metadata"]["name"]},
        "status": {
            "nodeInfo": {
                "kubeletVersion": status["nodeInfo"]["kubeletVersion"], "kernelVersion": status["nodeInfo"]["kernelVersion"],
            },
            "capacity": {"memory": status["capacity"]["memory"]},
            "allocatable": {"memory": status["allocatable"]["memory"]},
            "images": images,
        },
    })
}

fn is_pause_image(name: &Value) -> bool {
    name.as_str().is_some_and(|name| name.starts_with(PAUSE))
}

/// Returns the Windows version that the node reports, or else the build of its label.
fn windows_version(node: &NodeFields) -> Option<KernelVersion> {
    let reported = node.kernel_version.as_ref().and_then(|reported| reported.version);
    reported.or_else(|| node.windows_build().map(|build| KernelVersion { build, revision: None }))
}

/// The fields of a node that decide which pods can be scheduled there and start.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: String,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub is_cordoned: bool,
    /// True if a cordon, or a taint that tells of a state, was left out.
    pub is_waiting: bool,
    pub allocatable: BTreeMap<String, Quantity>,
    /// The operating system, from the label or else from the kubelet's report.
    pub os: Option<String>,
    /// The kernel version, if the node runs Windows.
    pub version: Option<KernelVersion>,
    pub runtime: Option<ContainerRuntime>,
    /// The names in `status.runtimeHandlers`; `None` if the node does not list them.
    pub handlers: Option<Vec<String>>,
}

impl Node {
    /// Returns the node with this name, without its resources and handlers.
    pub fn of(name: &str, seen: &NodeFields) -> Self {
        let reported = seen.operating_system.as_deref();
        let os = seen.labels.get(names::OS).or(reported).filter(|os| !os.is_empty()).map(str::to_owned);
        let is_windows = os.as_deref() == Some(names::WINDOWS);
        Self {
            name: name.to_owned(),
            labels: seen.labels.clone(),
            taints: seen.taints.taints().to_vec(),
            is_cordoned: seen.is_cordoned,
            is_waiting: false,
            allocatable: BTreeMap::new(),
            version: if is_windows { windows_version(seen) } else { None },
            runtime: seen.container_runtime.as_deref().and_then(|text| text.parse().ok()),
            handlers: None,
            os,
        }
    }

    /// Returns the node after its fields have become these.
    pub(crate) fn as_read(&self, seen: &NodeFields) -> Self {
        let Self { allocatable, handlers, .. } = self.clone();
        Self { allocatable, handlers, ..Self::of(&self.name, seen) }
    }

    pub fn is_windows(&self) -> bool {
        self.os.as_deref() == Some(names::WINDOWS)
    }

    /// True if the node certainly has no runtime handler of this name. If it does not list its handlers: containerd has none with the
    /// name of Docker, which old guides write.
    pub(crate) fn lacks_handler(&self, handler: &str) -> bool {
        let is_containerd = || self.runtime.is_some_and(|runtime| runtime.name == RuntimeName::Containerd);
        match &self.handlers {
            Some(handlers) => handlers.iter().all(|listed| listed != handler),
            None => handler == "docker" && is_containerd(),
        }
    }

    /// Returns the operating system in words.
    pub(crate) fn os(&self) -> &str {
        self.os.as_deref().unwrap_or("an unknown system")
    }

    /// Returns what decides which images run there, if the version is known.
    pub fn host(&self) -> Option<Host> {
        let architecture = self.labels.get(names::ARCH).unwrap_or("amd64").to_owned();
        self.version.map(|kernel| Host { kernel, architecture, runtime: self.runtime })
    }
}
