//! A node.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{api::core::v1, apimachinery::pkg::api::resource::Quantity};
use serde_json::Value;
use winpool_core::{
    api::{Taint, names},
    labels::Labels,
    plan::{self, nodes::NodeObject},
    windows::{ContainerRuntime, KernelVersion},
};

use crate::image::Host;

use super::Source;

/// A node as it was read.
#[derive(Clone, Debug, Default)]
pub struct SeenNode {
    pub source: Option<Source>,
    /// The fields that the operator decides by.
    pub object: NodeObject,
    pub allocatable: BTreeMap<String, Quantity>,
    /// The fields that rules read.
    pub written: Value,
}

impl SeenNode {
    /// Returns the node as pods see it.
    pub fn host(&self) -> Node {
        Node { allocatable: self.allocatable.clone(), ..Node::of(&self.object.name, &self.object.node) }
    }
}

/// The fields of a node that decide which pods can be scheduled there and start.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: String,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub is_cordoned: bool,
    pub allocatable: BTreeMap<String, Quantity>,
    /// The operating system, from the label or else from the kubelet's report.
    pub os: Option<String>,
    /// The kernel version, if the node runs Windows.
    pub version: Option<KernelVersion>,
    pub runtime: Option<ContainerRuntime>,
    /// The names in `status.runtimeHandlers`; `None` if the node does not list them.
    pub handlers: Option<Arc<[Box<str>]>>,
}

impl Node {
    /// Returns the node with this name, without its resources.
    pub fn of(name: &str, seen: &plan::Node) -> Self {
        let reported = seen.operating_system.as_deref();
        let os = seen.labels.get(names::OS).or(reported).filter(|os| !os.is_empty()).map(str::to_owned);
        let is_windows = os.as_deref() == Some(names::WINDOWS);
        Self {
            name: name.to_owned(),
            labels: seen.labels.clone(),
            taints: seen.taints.taints().to_vec(),
            is_cordoned: seen.is_cordoned,
            allocatable: BTreeMap::new(),
            version: if is_windows { seen.windows_version() } else { None },
            runtime: seen.container_runtime.as_deref().and_then(|text| text.parse().ok()),
            handlers: seen.runtime_handlers.clone(),
            os,
        }
    }

    pub fn is_windows(&self) -> bool {
        self.os.as_deref() == Some(names::WINDOWS)
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

impl From<&v1::Node> for Node {
    fn from(node: &v1::Node) -> Self {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let labels = node.metadata.labels.iter().flatten();
        let labels: Labels = labels.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let status = node.status.as_ref();
        let info = status.and_then(|status| status.node_info.as_ref());
        let handlers = status.and_then(|status| status.runtime_handlers.as_ref());
        let seen = plan::Node {
            labels,
            is_cordoned: node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)),
            kernel_version: info.map(|info| info.kernel_version.as_str().into()),
            operating_system: info.map(|info| info.operating_system.as_str().into()),
            container_runtime: info.map(|info| info.container_runtime_version.as_str().into()),
            runtime_handlers: handlers
                .map(|all| all.iter().map(|handler| handler.name.clone().unwrap_or_default().into()).collect()),
            ..plan::Node::default()
        };
        Self {
            taints: taints.map(|t| Taint::new(&t.key, t.value.as_deref().unwrap_or_default(), &t.effect)).collect(),
            allocatable: status.and_then(|status| status.allocatable.clone()).unwrap_or_default(),
            ..Self::of(node.metadata.name.as_deref().unwrap_or_default(), &seen)
        }
    }
}
