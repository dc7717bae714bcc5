//! Migrations between taints. A recorder of every version of every node and class proves that every
//! node always had a taint, and that classes changed first.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{BUILD, taint, taints, tolerates};
use winpool_e2e::harness::versions::Versions;
use winpool_e2e::nodes::simulated::SimulatedNode;

const OLD: &str = "os=Win1809:NoSchedule";
const NEW: &str = "os=windows:NoSchedule";
const NODES: [&str; 2] = ["win-a", "win-b"];

/// Records every version of every node and class. One etcd counts the revisions of both.
struct Recorder {
    nodes: Versions<Node>,
    classes: Versions<RuntimeClass>,
}

struct History {
    nodes: BTreeMap<u64, Node>,
    classes: BTreeMap<u64, RuntimeClass>,
}

impl Recorder {
    async fn start(harness: &Harness) -> Self {
        Self { nodes: Versions::of(harness.nodes()).await, classes: Versions::of(harness.classes()).await }
    }

    /// What happened since it was started.
    async fn stop(self) -> History {
        History { nodes: by_version(&self.nodes).await, classes: by_version(&self.classes).await }
    }
}

async fn by_version<K>(versions: &Versions<K>) -> BTreeMap<u64, K>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let versions = versions.until_now().await.into_iter();
    versions.map(|(_, object)| (object.resource_version().unwrap().parse().unwrap(), object)).collect()
}

fn os_taints(node: &Node) -> Vec<String> {
    let mut taints = taints(node);
    taints.retain(|taint| taint.starts_with("os=") && taint.ends_with(":NoSchedule"));
    taints
}

/// Every version of each node has a guard, no node is written before there is a class that tolerates what it carries, and
/// no class ever stops tolerating what a node carries.
fn assert_never_without_guard_and_class_always_first(history: &History) {
    let mut written = BTreeMap::<String, usize>::new();
    for (version, node) in &history.nodes {
        let (name, guards) = (node.name_any(), os_taints(node));
        assert!(!guards.is_empty(), "{name} has no guard at {version}: {:?}", taints(node));
        let writes = written.entry(name.clone()).or_default();
        // As it was before winpool came.
        if *writes > 0 {
            let class = history.classes.range(..version).next_back();
            let (_, class) = class.unwrap_or_else(|| panic!("{name} is written at {version}, before there is a class"));
            for guard in guards {
                assert!(tolerates(class, &guard), "{name} has {guard} at {version}, before its class");
            }
        }
        *writes += 1;
    }
    assert!(NODES.iter().all(|name| written[*name] > 1), "every node is written: {written:?}");
    for (version, class) in &history.classes {
        for name in NODES {
            let at_that_time = history.nodes.range(..version).rev().find(|(_, node)| node.name_any() == name);
            for guard in os_taints(at_that_time.unwrap().1) {
                assert!(tolerates(class, &guard), "the class at {version} does not tolerate {guard} of {name}");
            }
        }
    }
}

fn migration() -> Value {
    json!({"taints": [taint(NEW)], "retiredTaints": [taint(OLD)]})
}

async fn with_old_nodes() -> Harness {
    let harness = Harness::new().await;
    for name in NODES {
        let node = SimulatedNode::server_2019(name).without_label(BUILD);
        node.taint("os", "Win1809", "NoSchedule").join(&harness.client).await.unwrap();
    }
    harness
}

#[tokio::test]
async fn a_class_tolerates_both_taints_before_the_first_node_changes() {
    let harness = with_old_nodes().await;
    let recorder = Recorder::start(&harness).await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({"taints": [taint(OLD)]})).await;
    assert!(!tolerates(&harness.classes().get("windows-2019").await.unwrap(), NEW));

    harness.apply_pool(migration()).await;
    for name in NODES {
        harness.node_until(name, "has the new taint only", |node| os_taints(node) == [NEW]).await;
    }
    harness.ready("default").await;
    harness.apply_pool(json!({"taints": [taint(NEW)]})).await;
    harness.class_until("windows-2019", "tolerates the new taint only", |class| !tolerates(class, OLD)).await;
    operator.stop().await;

    let history = recorder.stop().await;
    assert_never_without_guard_and_class_always_first(&history);
    let states: Vec<[bool; 2]> = history.classes.values().map(|c| [tolerates(c, OLD), tolerates(c, NEW)]).collect();
    assert_eq!(states, [[true, false], [true, true], [false, true]], "old, both, new");
}
