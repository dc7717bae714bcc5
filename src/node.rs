//! The lean cached node.
//!
//! A cluster has thousands of nodes, each some 10 KB of JSON, of which winpool reads a few fields. What it keeps is
//! shared where nodes are alike: label pairs, taint lists and version strings.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde::Deserialize;
use serde_json::Value;
use winpool_core::{
    api::names,
    plan::{self, Labels, TaintList},
};

use crate::shared::Shared;

/// A Node as winpool caches it. `metadata` has name, uid and resourceVersion only.
#[derive(Clone, Debug, Default, Deserialize, kube::Resource)]
#[resource(inherit = Node)]
#[serde(from = "Wire")]
pub struct CachedNode {
    /// Name, uid and resourceVersion.
    pub metadata: ObjectMeta,
    /// What plans are made from.
    pub seen: plan::Node,
}

impl CachedNode {
    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
}

/// The label selector of Windows nodes.
pub(crate) fn windows() -> String {
    format!("{}={}", names::OS, names::WINDOWS)
}

/// The label selector of nodes that came back as another system and still carry the mark of a pool.
pub(crate) fn reimaged() -> String {
    format!("{},{}!={}", names::POOL, names::OS, names::WINDOWS)
}

/// The fields to decode; serde skips all others, managedFields and images included, without keeping them.
#[derive(Deserialize)]
struct Wire {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    annotations: Option<BTreeMap<Box<str>, Box<str>>>,
}

#[derive(Default, Deserialize)]
struct WireSpec {
    taints: Option<Vec<Value>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    #[serde(default)]
    node_info: WireNodeInfo,
    runtime_handlers: Option<Vec<WireHandler>>,
}

#[derive(Deserialize)]
struct WireHandler {
    #[serde(default)]
    name: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNodeInfo {
    kernel_version: Option<Box<str>>,
    operating_system: Option<Box<str>>,
    container_runtime_version: Option<Box<str>>,
}

static LABELS: LazyLock<Shared<(Box<str>, Box<str>)>> = LazyLock::new(Shared::default);
static TAINTS: LazyLock<Shared<TaintList>> = LazyLock::new(Shared::default);
static TEXTS: LazyLock<Shared<str>> = LazyLock::new(Shared::default);

impl From<Wire> for CachedNode {
    fn from(wire: Wire) -> Self {
        let Wire { metadata, spec, status } = wire;
        let labels: Labels = metadata.labels.into_iter().flatten().map(|pair| LABELS.share(pair)).collect();
        let has_annotations = metadata.annotations.is_some();
        let mut annotations = metadata.annotations.unwrap_or_default();
        Self {
            metadata: ObjectMeta {
                name: metadata.name,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                ..ObjectMeta::default()
            },
            seen: plan::Node {
                labels,
                has_annotations,
                applied: annotations.remove(names::APPLIED),
                ignore: annotations.remove(names::IGNORE),
                taints: TAINTS.share(TaintList::new(spec.taints)),
                kernel_version: status.node_info.kernel_version.map(|text| TEXTS.share(text)),
                operating_system: status.node_info.operating_system.map(|text| TEXTS.share(text)),
                container_runtime: status.node_info.container_runtime_version.map(|text| TEXTS.share(text)),
                runtime_handlers: status.runtime_handlers.map(handler_names),
            },
        }
    }
}

fn handler_names(handlers: Vec<WireHandler>) -> Arc<[Box<str>]> {
    handlers.into_iter().map(|handler| handler.name).collect()
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt;
    use serde_json::json;

    use super::*;

    fn node(name: &str) -> CachedNode {
        serde_json::from_value(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name, "uid": "u", "resourceVersion": "7",
                "labels": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"},
                "annotations": {"winpool.dev/applied": "{}", "other": "x"},
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]},
            "status": {"nodeInfo": {"kernelVersion": "10.0.20348.2655", "operatingSystem": "windows"}, "images": [{"names": ["a"]}]},
        }))
        .unwrap()
    }

    #[test]
    fn reads_what_plans_need_and_drops_the_rest() {
        let node = node("a");
        assert_eq!(node.name_any(), "a");
        assert_eq!(node.metadata.annotations, None);
        assert_eq!(node.metadata.managed_fields, None);
        assert_eq!(node.seen.labels.get("kubernetes.io/os"), Some("windows"));
        assert_eq!(node.seen.applied.as_deref(), Some("{}"));
        assert_eq!(node.seen.taints.to_json()[0]["timeAdded"], "2026-01-01T00:00:00Z");
        assert_eq!(node.seen.kernel_version.as_deref(), Some("10.0.20348.2655"));
    }

    #[test]
    fn a_node_with_nothing_but_a_name_is_read() {
        let node: CachedNode = serde_json::from_value(json!({"metadata": {"name": "bare"}})).unwrap();
        assert_eq!(node.seen.taints.to_json(), Value::Null);
        assert!(!node.seen.has_annotations);
    }

    #[test]
    fn like_nodes_share_their_taints_and_versions() {
        let (a, b) = (node("a"), node("b"));
        assert!(Arc::ptr_eq(&a.seen.taints, &b.seen.taints));
        assert!(Arc::ptr_eq(a.seen.kernel_version.as_ref().unwrap(), b.seen.kernel_version.as_ref().unwrap()));
    }
}
