//! The true state of the model's cluster: nodes, pools and RuntimeClasses in the API server, and workloads.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_core::api::{Taint, TaintPolicy, WindowsPool, names};
use winpool_core::node::NodeObject;
use winpool_core::plan::pools::pool::{GuardedPool, Pool};
use winpool_core::pod::{DaemonSet, Pod, PodProgress, PodSpec};

use super::shared::{Copies, Shared, share};
use crate::common::{self, at_registration, recorded_in};

/// The wall-clock time of every object.
pub const TODAY: Timestamp = Timestamp::UNIX_EPOCH;

/// A node, with the answers that are asked of it again and again.
#[derive(Debug)]
pub struct NodeFacts {
    pub object: Value,
    /// The node as the operator reads it.
    pub seen: Arc<NodeObject>,
    /// Taints that winpool added, whatever its annotation says.
    pub own: Vec<Taint>,
    /// Other writers' taints: they carry `timeAdded`.
    pub foreign: Vec<Value>,
    /// Labels and annotations of other writers.
    pub words: Value,
}

pub type Node = Shared<NodeFacts>;
pub type Nodes = BTreeMap<&'static str, Node>;

pub fn node(object: Value) -> Node {
    static NODES: LazyLock<Copies<Value, NodeFacts>> = LazyLock::new(Mutex::default);
    share(&NODES, object, |object| {
        let node = common::read(object);
        let raw = object.pointer("/spec/taints").and_then(Value::as_array).cloned().unwrap_or_default();
        let own = raw.iter().zip(node.taints.taints()).filter(|(raw, _)| !is_foreign(raw));
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        NodeFacts {
            own: own.map(|(_, taint)| taint.clone()).collect(),
            foreign: raw.iter().filter(|taint| is_foreign(taint)).cloned().collect(),
            words: words_of_others(object),
            seen: Arc::new(NodeObject {
                name: text("name").into(),
                uid: text("uid").into(),
                resource_version: object["metadata"]["resourceVersion"].to_string().into(),
                node,
                other_writer: None,
            }),
            object: object.clone(),
        }
    })
}

pub fn is_foreign(taint: &Value) -> bool {
    taint.get("timeAdded").is_some()
}

fn words_of_others(node: &Value) -> Value {
    let mut metadata = node["metadata"].clone();
    metadata.as_object_mut().unwrap().remove("resourceVersion");
    for map in ["labels", "annotations"] {
        let Some(map) = metadata.get_mut(map).and_then(Value::as_object_mut) else { continue };
        map.retain(|key, _| !key.contains("winpool.dev/") && key != names::WINDOWS_BUILD);
    }
    metadata
}

impl NodeFacts {
    /// True if the watch of Windows nodes shows it.
    pub fn is_windows(&self) -> bool {
        self.seen.node.is_windows()
    }
}

/// The label by which pools select nodes here.
pub const TEAM: &str = "team";

/// A node as a kubelet registers it, with Windows Server 2019 if its name starts with `old`. `number` makes uids differ.
pub fn bare_node(name: &str, team: &str, number: usize) -> Value {
    let build = if name.starts_with("old") { "10.0.17763.6189" } else { "10.0.20348.2655" };
    json!({
        "metadata": {
            "name": name, "uid": format!("{name}-{number}"),
            "labels": {names::OS: names::WINDOWS, names::ARCH: "amd64", TEAM: team},
            "annotations": {"example.com/owner": "ops"},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kernelVersion": build, "operatingSystem": "windows"}},
    })
}

/// The effect of the policy `born-tainted` on a node that registers. Every pool is applied to the result of the one
/// before.
pub fn as_registered<'p>(mut object: Value, pools: impl Iterator<Item = &'p WindowsPoolFacts>) -> Value {
    for (facts, pool) in pools.filter_map(|facts| Some((facts, facts.pool.as_ref()?))) {
        let claimed = object.pointer("/metadata/annotations/winpool.dev~1applied").is_some();
        let recorded = at_registration(&facts.guarded.status.clone().unwrap_or_default());
        let may =
            |taint: &Taint| pool.spec.taint_policy == TaintPolicy::TaintOnly || recorded.contains(&taint.to_string());
        let taints: Vec<Taint> = pool.spec.wanted_taints().into_iter().filter(may).collect();
        let selects = pool.spec.selects(&node(object.clone()).seen.node.labels);
        if claimed || taints.is_empty() || !selects || !pool.spec.enforces() {
            continue;
        }
        let texts: Vec<String> = taints.iter().map(ToString::to_string).collect();
        let list = object["spec"].as_object_mut().unwrap().entry("taints").or_insert_with(|| json!([]));
        list.as_array_mut().unwrap().extend(taints.iter().map(|taint| json!(taint)));
        object["metadata"]["annotations"][names::APPLIED] =
            json!(json!({"pool": pool.spec.name, "taints": texts}).to_string());
        object["metadata"]["labels"][names::POOL] = json!(pool.spec.name);
    }
    object
}

/// A pool in the API server, and as winpool reads it.
#[derive(Debug)]
pub struct WindowsPoolFacts {
    pub object: Value,
    pub guarded: Arc<GuardedPool>,
    pub pool: Option<Pool>,
}

pub type PoolObject = Shared<WindowsPoolFacts>;
pub type Pools = BTreeMap<&'static str, PoolObject>;

/// The pool with a version that identifies its content.
pub fn pool(mut object: Value) -> PoolObject {
    static POOLS: LazyLock<Copies<Value, WindowsPoolFacts>> = LazyLock::new(Mutex::default);
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    share(&POOLS, object, |object| {
        let mut object = object.clone();
        let text = object.to_string();
        let version = text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(0x100_0000_01B3) ^ u64::from(byte));
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let guarded = GuardedPool::deserialize(&object).unwrap();
        let pool = WindowsPool::deserialize(&object).ok().and_then(|pool| Pool::read(&pool).ok());
        WindowsPoolFacts { guarded: Arc::new(guarded), pool, object }
    })
}

/// A new pool. The first in the alphabet is the oldest.
pub fn new_pool(name: &str, spec: &str, number: usize) -> PoolObject {
    let created = format!("2026-01-0{}T00:00:00Z", if name < "b" { 1 } else { 2 });
    pool(json!({
        "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool",
        "metadata": {"name": name, "uid": format!("{name}-{number}"), "generation": 1, "creationTimestamp": created},
        "spec": serde_yaml::from_str::<Value>(spec).unwrap(),
    }))
}

impl WindowsPoolFacts {
    pub fn is_deleting(&self) -> bool {
        self.guarded.metadata.deletion_timestamp.is_some()
    }

    /// True if the status records that winpool may have added this taint to nodes.
    pub fn records(&self, taint: &Taint) -> bool {
        let status = self.guarded.status.as_ref();
        status.is_some_and(|status| recorded_in(status).contains(&taint.to_string()))
    }

    /// `status` of the condition Ready, if it is about the present spec.
    pub fn ready(&self) -> Option<&str> {
        let status = self.guarded.status.as_ref()?;
        let ready = status.conditions.iter().find(|condition| condition.type_ == names::condition::READY)?;
        (status.observed_generation == self.guarded.metadata.generation).then_some(ready.status.as_str())
    }
}

pub type Class = Shared<Arc<RuntimeClass>>;
pub type Classes = BTreeMap<String, Class>;

pub fn class(object: &RuntimeClass) -> Class {
    static CLASSES: LazyLock<Copies<Value, Arc<RuntimeClass>>> = LazyLock::new(Mutex::default);
    share(&CLASSES, json!(object), |object| Arc::new(serde_json::from_value(object.clone()).unwrap()))
}

/// A workload, with its pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    pub name: &'static str,
    pub kind: Kind,
    /// The RuntimeClass of its pods.
    pub class: Option<&'static str>,
    /// True if its template tolerates every taint.
    pub tolerates: bool,
    /// The nodes on which its pods run; `None` for a pod that waits.
    pub pods: Vec<Option<&'static str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A DaemonSet for Windows.
    DaemonSet,
    /// One that comes after a pool has put its taint on a node.
    Late,
    /// A DaemonSet that says no system, like the agent of a cloud.
    Agent,
    /// Another workload for Windows.
    Other,
}

impl Work {
    /// True if its controller makes a pod for this node, but for taints.
    fn selects(&self, node: &NodeFacts) -> bool {
        node.is_windows() && self.kind != Kind::Other
    }

    /// True if it is a DaemonSet that is known to be for Windows, that would lose its pod on this node by a taint, and that
    /// came before the taint or runs there.
    pub fn objects(&self, node: &NodeFacts) -> bool {
        let is_known = matches!(self.kind, Kind::DaemonSet | Kind::Late) || self.pods.iter().any(Option::is_some);
        let counts = self.kind != Kind::Late || self.pods.contains(&Some(&*node.seen.name));
        is_known && !self.tolerates && self.selects(node) && counts
    }

    /// True if its controller makes a pod for some node.
    pub fn has_node(&self, nodes: &Nodes) -> bool {
        let keeps_off = |taint: &Taint| taint.effect.keeps_off() && !self.tolerates;
        nodes.values().any(|node| self.selects(node) && !node.seen.node.taints.taints().iter().any(keeps_off))
    }

    fn spec(&self) -> PodSpec {
        let tolerates_all = Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() };
        PodSpec {
            runtime_class: self.class.map(str::to_owned),
            os: (self.kind != Kind::Agent).then(|| names::WINDOWS.to_owned()),
            tolerations: self.tolerates.then_some(tolerates_all).into_iter().collect(),
            ..PodSpec::default()
        }
    }

    /// Its entry in a list of `DaemonSets`.
    pub fn daemon_set(&self) -> Option<DaemonSet> {
        let (namespace, name) = ("shop".to_owned(), self.name.to_owned());
        let created = Some(TODAY + Duration::from_secs(u64::from(self.kind == Kind::Late)));
        let set = DaemonSet { namespace, name, created, template: self.spec(), ..DaemonSet::default() };
        (self.kind != Kind::Other).then_some(set)
    }

    /// Its entries in a list of pods.
    pub fn pods(&self) -> impl Iterator<Item = Pod> {
        let kind = if self.kind == Kind::Other { "GameServerSet" } else { "DaemonSet" };
        self.pods.iter().enumerate().map(move |(number, node)| Pod {
            namespace: "shop".to_owned(),
            name: format!("{}-{number}", self.name),
            uid: format!("{}-{number}", self.name),
            controller: Some((kind.to_owned(), self.name.to_owned())),
            created: Some(TODAY),
            progress: if node.is_some() { PodProgress::Started } else { PodProgress::Waiting },
            spec: PodSpec { node: node.map(str::to_owned), ..self.spec() },
            ..Pod::default()
        })
    }
}
