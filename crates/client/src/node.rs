//! The lean cached node.
//!
//! A cluster has thousands of nodes of about 10 KB of JSON, of which winpool reads a few fields. Label pairs, taint
//! lists and version strings are shared between nodes.
//!
//! The kubelet decides the size of its node, so only a limited part of a node is cached. A patch tests the values it
//! was computed from: if some were left out, the patch fails and the node is reported as blocked.

use std::fmt;
use std::marker::PhantomData;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use winpool_core::api::names;
use winpool_core::interner::Interner;
use winpool_core::labels::Labels;
use winpool_core::node::{NodeFields, NodeObject, TaintList};
use winpool_core::pod::{FieldManager, WireMetadata};

/// The number of labels that are cached of a node, the first by key. Nodes have a few dozen.
pub const LABELS: usize = 512;
/// The number of taints that are cached of a node. Nodes have a few.
pub const TAINTS: usize = 128;
/// The longest text that is cached, in bytes. Longer ones are treated as absent.
pub const TEXT: usize = 4096;

/// A Node as a watch or a list decodes it, with the metadata that kube needs. Only the object is cached: the metadata
/// takes more memory than the rest.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Node)]
#[serde(from = "WireNode")]
pub struct ListedNode {
    /// Only name, uid and resourceVersion.
    metadata: ObjectMeta,
    pub object: NodeObject,
}

impl From<NodeObject> for ListedNode {
    fn from(object: NodeObject) -> Self {
        let [name, uid, resource_version] =
            [&*object.name, &object.uid, &object.resource_version].map(|text| Some(text.to_owned()));
        Self { metadata: ObjectMeta { name, uid, resource_version, ..ObjectMeta::default() }, object }
    }
}

/// The label selector of Windows nodes.
pub fn windows() -> String {
    format!("{}={}", names::OS, names::WINDOWS)
}

/// The label selector of nodes that came back with another operating system and still carry winpool's pool label.
pub fn reimaged() -> String {
    format!("{},{}", names::POOL, others())
}

/// The label selector of nodes that are not for Windows.
pub fn others() -> String {
    format!("{}!={}", names::OS, names::WINDOWS)
}

/// The fields to decode. serde skips all others, such as managedFields and images.
#[derive(Deserialize)]
struct WireNode {
    metadata: WireMetadata,
    #[serde(default)]
    spec: WireNodeSpec,
    #[serde(default)]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
struct WireNodeSpec {
    unschedulable: Option<bool>,
    taints: Option<First<Value, TAINTS>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    #[serde(default)]
    node_info: WireNodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNodeInfo {
    kernel_version: Option<Box<str>>,
    operating_system: Option<Box<str>>,
    container_runtime_version: Option<Box<str>>,
}

/// Values that many nodes have in common, stored once for the whole process.
type Shared<T> = LazyLock<Mutex<Interner<T>>>;
static PAIRS: Shared<(Box<str>, Box<str>)> = LazyLock::new(Mutex::default);
static TAINT_LISTS: Shared<TaintList> = LazyLock::new(Mutex::default);
static TEXTS: Shared<str> = LazyLock::new(Mutex::default);

impl From<WireNode> for ListedNode {
    fn from(wire: WireNode) -> Self {
        let WireNode { mut metadata, spec, status } = wire;
        let labels = metadata.labels.take().into_iter().flatten().take(LABELS);
        let labels = labels.map(|(key, value)| PAIRS.lock().intern((key.into(), value.into())));
        let labels: Labels = labels.collect();
        let has_annotations = metadata.annotations.is_some();
        let reported = |fields: &FieldManager| fields.subresource.as_deref() == Some("status");
        let others = metadata.managed_fields.take().into_iter().flatten().filter(|fields| !reported(fields));
        let others = others.filter(|fields| fields.manager.as_deref().is_some_and(|name| name != names::FIELD_MANAGER));
        let other_writer = others.max_by(|a, b| a.time.cmp(&b.time));
        let mut annotations = metadata.annotations.take().unwrap_or_default();
        let mut annotation = |name: &str| annotations.remove(name).filter(|text| text.len() <= TEXT);
        let text =
            |text: Option<Box<str>>| text.filter(|text| text.len() <= TEXT).map(|text| TEXTS.lock().intern(text));
        let object = NodeObject {
            name: metadata.take_name().into(),
            uid: metadata.uid.unwrap_or_default().into(),
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            node: NodeFields {
                labels,
                has_annotations,
                applied: annotation(names::APPLIED).map(Into::into),
                ignore: annotation(names::IGNORE).map(Into::into),
                is_cordoned: spec.unschedulable == Some(true),
                taints: TAINT_LISTS.lock().intern(TaintList::new(spec.taints.map(|First(taints)| taints))),
                kernel_version: text(status.node_info.kernel_version).map(Into::into),
                operating_system: text(status.node_info.operating_system),
                container_runtime: text(status.node_info.container_runtime_version),
            },
            other_writer: other_writer.and_then(|fields| text(fields.manager)),
        };
        Self::from(object)
    }
}

/// The first `MOST` items of a list. The others are read and dropped.
struct First<T, const MOST: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for First<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FirstItems(PhantomData))
    }
}

struct FirstItems<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for FirstItems<T, MOST> {
    type Value = First<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < MOST
            && let Some(item) = list.next_element()?
        {
            items.push(item);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(First(items))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use kube::Resource;
    use serde_json::json;

    use super::*;

    fn decode(object: Value) -> NodeObject {
        serde_json::from_value::<ListedNode>(object).unwrap().object
    }

    fn node(name: &str) -> NodeObject {
        decode(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name, "uid": "u", "resourceVersion": "7",
                "labels": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.20348"},
                "annotations": {"winpool.dev/applied": "{}", "other": "x"},
                "managedFields": [{"manager": "kubelet"}],
            },
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]},
            "status": {"nodeInfo": {"kernelVersion": "10.0.20348.2655", "operatingSystem": "windows"}, "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": name}], "images": [{"names": ["a"]}]},
        }))
    }

    #[test]
    fn reads_what_plans_need_and_drops_the_rest() {
        let node = node("a");
        assert_eq!((&*node.name, &*node.uid), ("a", "u"));
        assert_eq!(ListedNode::from(node.clone()).meta().resource_version.as_deref(), Some("7"));
        assert_eq!(node.node.labels.get("kubernetes.io/os"), Some("windows"));
        assert_eq!(node.node.applied.as_deref(), Some("{}"));
        assert_eq!(node.node.taints.to_json()[0]["timeAdded"], "2026-01-01T00:00:00Z");
        assert_eq!(node.node.kernel_version.as_deref(), Some("10.0.20348.2655"));
    }

    #[test]
    fn conditions_and_heartbeats_of_a_node_change_nothing() {
        let with = |ready: &str, beat: &str| {
            decode(json!({
                "metadata": {"name": "a"}, "spec": {"unschedulable": true},
                "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": beat}]},
            }))
        };
        assert!(with("True", "1").node.is_cordoned);
        assert_eq!(with("True", "1"), with("False", "2"));
    }

    #[test]
    fn the_last_writer_besides_winpool_is_known_and_who_wrote_only_the_status_is_not() {
        let entry = |manager: &str, time: &str| json!({"manager": manager, "time": time});
        let mut entries = json!([
            entry("old", "2026-01-01T00:00:00Z"),
            entry("new", "2026-01-02T00:00:00Z"),
            entry("winpool", "2026-01-03T00:00:00Z"),
            entry("kubelet", "2026-01-04T00:00:00Z"),
        ]);
        entries[3]["subresource"] = "status".into();
        let node = decode(json!({"metadata": {"name": "a", "managedFields": entries}}));
        assert_eq!(node.other_writer.as_deref(), Some("new"));
    }

    #[test]
    fn a_node_with_nothing_but_a_name_is_read() {
        let node = decode(json!({"metadata": {"name": "bare"}}));
        assert_eq!(node.node.taints.to_json(), Value::Null);
        assert!(!node.node.has_annotations);
    }

    #[test]
    fn little_is_kept_of_a_node_that_is_far_too_large() {
        let long = "x".repeat(1_000_000);
        let taints: Vec<Value> =
            (0..10_000).map(|n| json!({"key": format!("key-{n}"), "effect": "NoSchedule"})).collect();
        let labels: BTreeMap<String, &str> = (0..10_000).map(|n| (format!("key-{n:05}"), "")).collect();
        let seen = decode(json!({
            "metadata": {
                "name": "large", "labels": labels,
                "annotations": {"winpool.dev/applied": long, "winpool.dev/ignore": long},
            },
            "spec": {"taints": taints},
            "status": {"nodeInfo": {"kernelVersion": long, "operatingSystem": long, "containerRuntimeVersion": long}},
        }))
        .node;
        assert_eq!((seen.taints.taints().len(), seen.taints.to_json()[127]["key"].as_str()), (128, Some("key-127")));
        assert_eq!((seen.labels.get("key-00511"), seen.labels.get("key-00512")), (Some(""), None));
        assert_eq!((seen.has_annotations, seen.applied, seen.ignore), (true, None, None));
        assert_eq!((seen.kernel_version, seen.operating_system, seen.container_runtime), (None, None, None));
    }

    #[test]
    fn like_nodes_share_their_taints_and_versions() {
        let (a, b) = (node("a"), node("b"));
        assert!(Arc::ptr_eq(&a.node.taints, &b.node.taints));
        let text = |node: &NodeObject| node.node.kernel_version.as_deref().unwrap().as_ptr();
        assert_eq!(text(&a), text(&b));
    }
}
