//! Nodes and pools to plan with, and the API server's way of applying a JSON Patch.

pub mod any;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::node::v1::RuntimeClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use winpool_core::api::{Taint, WindowsPool, WindowsPoolStatus, names};
use winpool_core::node::{NodeFields, TaintList};
use winpool_core::plan::classes::ClassesPlan;
use winpool_core::plan::classes::runtime_class::{ClassAction, PlannedClass};
use winpool_core::plan::nodes::assessment::Assessment;
use winpool_core::plan::nodes::numbers::NodeSummary;
use winpool_core::plan::patch::{node_patch, runtime_class_patch};
use winpool_core::plan::pods::PodTable;
use winpool_core::plan::pools::consent::PoolConsent;
use winpool_core::plan::pools::pool::{Policy, Pool, PoolEntry, PoolSpec};
use winpool_core::plan::taints::Consent;
use winpool_core::plan::{self, Now};
use winpool_core::pod::Pod;
use winpool_core::windows::Build;
use winpool_simulation::request;

pub use winpool_simulation::request::apply;

/// `metadata.uid` of every node here.
pub const UID: &str = "0e2d4b7c-5b0f-4a5e-9d53-3a4f1c6f8a11";

pub fn yaml<T: DeserializeOwned>(text: &str) -> T {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A Windows Server 2022 node as an AKS node pool makes it, merged with `changes` (YAML; `null` removes).
pub fn node(changes: &str) -> Value {
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "akspoolws000000",
            "uid": UID,
            "resourceVersion": "1042",
            "labels": {
                "beta.kubernetes.io/os": "windows",
                "kubernetes.azure.com/agentpool": "poolws",
                "kubernetes.azure.com/os-sku": "Windows2022",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": "akspoolws000000",
                "kubernetes.io/os": "windows",
                "node.kubernetes.io/windows-build": "10.0.20348",
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"podCIDR": "10.244.3.0/24"},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {
                "architecture": "amd64",
                "kernelVersion": "10.0.20348.825",
                "operatingSystem": "windows",
                "osImage": "Windows Server 2022 Datacenter",
            },
        },
    });
    json_patch::merge(&mut node, &yaml(changes));
    node
}

/// [`node`] with these taints, written `key=value:effect`, and no other change.
pub fn tainted(taints: &[&str]) -> Value {
    let taints: Vec<Taint> = taints.iter().map(|text| text.parse().unwrap()).collect();
    node(&json!({ "spec": { "taints": taints } }).to_string())
}

/// Adds the pool's label and the annotation with these taints to a node, as winpool does.
pub fn marked(mut node: Value, pool: &str, taints: &[&str]) -> Value {
    let applied = json!({ "pool": pool, "taints": taints }).to_string();
    let marks = json!({"metadata": {"labels": {names::POOL: pool}, "annotations": {names::APPLIED: applied}}});
    json_patch::merge(&mut node, &marks);
    node
}

/// The node as the operator reads it.
pub fn read(node: &Value) -> NodeFields {
    let text = |path: &str| node.pointer(path).and_then(Value::as_str);
    let labels: BTreeMap<String, String> =
        node.pointer("/metadata/labels").map(|map| serde_json::from_value(map.clone()).unwrap()).unwrap_or_default();
    NodeFields {
        labels: labels.into_iter().collect(),
        has_annotations: node.pointer("/metadata/annotations").is_some(),
        applied: text("/metadata/annotations/winpool.dev~1applied").map(Into::into),
        ignore: text("/metadata/annotations/winpool.dev~1ignore").map(Into::into),
        taints: Arc::new(TaintList::new(node.pointer("/spec/taints").and_then(Value::as_array).cloned())),
        is_cordoned: node.pointer("/spec/unschedulable") == Some(&json!(true)),
        kernel_version: text("/status/nodeInfo/kernelVersion").map(Into::into),
        operating_system: text("/status/nodeInfo/operatingSystem").map(Into::into),
        container_runtime: text("/status/nodeInfo/containerRuntimeVersion").map(Into::into),
    }
}

/// The table of these pods.
pub fn table_of(pods: impl IntoIterator<Item: Borrow<Pod>>, now: Now) -> PodTable {
    let mut table = PodTable::default();
    pods.into_iter().for_each(|pod| table.see(pod.borrow(), now));
    table.end_list();
    table
}

/// Sets this label of the node.
pub fn set_label(node: &mut NodeFields, key: &str, value: Option<&str>) {
    node.labels = request::labels(&node.labels, [(key, value)]);
}

/// A pool named `default` of 2026-01-01 with an empty spec, merged with `changes` (YAML).
pub fn pool_object(changes: &str) -> WindowsPool {
    let mut pool = json!({
        "apiVersion": "winpool.dev/v1alpha1",
        "kind": "WindowsPool",
        "metadata": {"name": "default", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1},
        "spec": {},
    });
    json_patch::merge(&mut pool, &yaml(changes));
    serde_json::from_value(pool).unwrap()
}

pub fn pool(changes: &str) -> Pool {
    Pool::read(&pool_object(changes)).unwrap()
}

/// The pool with another spec.
pub fn with_spec(mut pool: Pool, change: impl FnOnce(&mut PoolSpec)) -> Pool {
    change(Arc::make_mut(&mut pool.spec));
    pool
}

/// `status.taints` with these taints.
pub fn recorded(taints: &[impl ToString]) -> String {
    json!(taints.iter().map(|taint| json!({"taint": taint.to_string()})).collect::<Vec<_>>()).to_string()
}

/// The taints in `status.taints`.
pub fn recorded_in(status: &WindowsPoolStatus) -> Vec<String> {
    status.taints.iter().map(|listed| listed.taint.clone()).collect()
}

/// Those with which nodes may register.
pub fn at_registration(status: &WindowsPoolStatus) -> Vec<String> {
    let listed = status.taints.iter().filter(|listed| listed.at_registration);
    listed.map(|listed| listed.taint.clone()).collect()
}

/// The pool with another consent.
pub fn with_consent(mut pool: Pool, change: impl FnOnce(&mut PoolConsent)) -> Pool {
    change(Arc::make_mut(&mut pool.consent));
    pool
}

/// A policy of these pools, all of whose classes are right.
pub fn policy(pools: impl IntoIterator<Item = Pool>) -> Policy {
    Policy::new(pools.into_iter().map(|pool| PoolEntry { pool: Arc::new(pool), ready: true }), [].into())
}

/// The assessment of the node if every workload consents.
pub fn assess(node: &NodeFields, policy: &Policy) -> Assessment {
    plan::nodes::assessment::assess(node, policy, Consent::Given)
}

/// The node after the one request that `policy` asks for, if any. Planning again must ask for none.
pub fn converge(node: &Value, policy: &Policy) -> Value {
    converge_with(node, policy, Consent::Given)
}

/// The node after the one request that `policy` asks for, if any.
pub fn planned(node: &Value, policy: &Policy, consent: Consent<'_>) -> Value {
    let seen = read(node);
    let plan = plan::nodes::assessment::assess(&seen, policy, consent).plan;
    if plan.is_empty() {
        return node.clone();
    }
    let after = apply(node, &node_patch(UID, &seen, &plan, policy)).unwrap();
    assert_eq!(read(&after), request::node(&seen, &plan), "forecasts do not see what the patch does");
    after
}

/// [`converge`] with this consent.
pub fn converge_with(node: &Value, policy: &Policy, consent: Consent<'_>) -> Value {
    let after = planned(node, policy, consent);
    let again = plan::nodes::assessment::assess(&read(&after), policy, consent).plan;
    assert!(again.is_empty(), "not right after one request: {again:#?}\n{after:#}");
    after
}

/// The node's taints, written `key=value:effect`.
pub fn taints_of(node: &Value) -> Vec<String> {
    read(node).taints.taints().iter().map(ToString::to_string).collect()
}

pub fn label<'n>(node: &'n Value, key: &str) -> Option<&'n str> {
    node["metadata"]["labels"].get(key).and_then(Value::as_str)
}

/// The annotation `winpool.dev/applied`.
pub fn applied(node: &Value) -> Option<&str> {
    node["metadata"]["annotations"].get(names::APPLIED).and_then(Value::as_str)
}

/// The facts about nodes with these builds and taints, for every pool.
pub fn seen(builds: &[u32], tolerate: &[&str]) -> impl Fn(&str) -> NodeSummary + use<> {
    let seen = NodeSummary {
        builds: builds.iter().map(|number| (Build::new(*number), 1)).collect(),
        tolerate: tolerate.iter().map(|text| text.parse().unwrap()).collect(),
        ..NodeSummary::default()
    };
    move |_| seen.clone()
}

/// The RuntimeClasses that `pool` wants. All of them can select its nodes.
pub fn plan_classes(
    pool: &Pool,
    policy: &Policy,
    seen: &dyn Fn(&str) -> NodeSummary,
    existing: &[Arc<RuntimeClass>],
) -> ClassesPlan {
    plan::classes::plan_classes(pool, policy, seen, existing, &|_| true)
}

/// The moment that every test starts at.
pub fn now() -> Now {
    Now { instant: Instant::now(), time: "2026-03-01T12:00:00Z".parse().unwrap() }
}

/// A RuntimeClass as the API server returns it.
pub fn class(text: &str) -> Arc<RuntimeClass> {
    let mut class: Value = yaml(text);
    json_patch::merge(&mut class, &json!({"metadata": {"uid": "class-uid", "resourceVersion": "77"}}));
    Arc::new(serde_json::from_value(class).unwrap())
}

/// The classes of the cluster after everything in `plan` was written.
pub fn settle(existing: &[Arc<RuntimeClass>], plan: &ClassesPlan) -> Vec<Arc<RuntimeClass>> {
    let mut classes = existing.to_vec();
    for PlannedClass { desired, action } in &plan.classes {
        match action {
            ClassAction::Nothing(_) | ClassAction::OtherHandler(_) | ClassAction::Conflict(_) => {}
            ClassAction::Create(new) => classes.push(class(&json!(new).to_string())),
            ClassAction::Change { changes, .. } => {
                let old = classes.iter_mut().find(|c| c.metadata.name.as_ref() == Some(&desired.name)).unwrap();
                let (uid, version) =
                    (old.metadata.uid.clone().unwrap(), old.metadata.resource_version.clone().unwrap());
                let patched = apply(&json!(**old), &runtime_class_patch(&uid, &version, changes)).unwrap();
                *old = Arc::new(serde_json::from_value(patched).unwrap());
            }
        }
    }
    classes
}
