//! Writes that do not match the current objects: winpool distinguishes them by the next step that they need.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::DeleteParams;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use winpool_client::error::{RequestError, in_time};
use winpool_client::node::ListedNode;
use winpool_core::api::WindowsPool;
use winpool_core::node::{NodeObject, NodePlan, TaintChange};
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::patch::{FieldChange, node_patch, runtime_class_patch};
use winpool_core::plan::pools::pool::{Policy, Pool, PoolEntry};
use winpool_core::plan::taints::Consent;
use winpool_e2e::harness::objects::{BUILD, label};
use winpool_e2e::harness::{APPLIED, Harness, POOL};
use winpool_e2e::nodes::kubelet::Kubelet;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_operator::leadership::Leadership;
use winpool_operator::write::Applier;

#[tokio::test]
async fn a_patch_of_a_node_that_changed_since_it_was_read_changes_nothing() {
    let harness = Harness::new().await;
    let policy = policy(json!({"nodeSelector": {"example.com/group": "a"}}));
    let changes = [
        ("a taint of others", json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}})),
        ("the pool label", json!({"metadata": {"labels": {POOL: "other"}}})),
        ("what was applied", json!({"metadata": {"annotations": {APPLIED: "{}"}}})),
        ("all annotations", json!({"metadata": {"annotations": null}})),
    ];
    for (number, (what, change)) in changes.into_iter().enumerate() {
        let name = format!("win-{number}");
        join(&harness, &name).await;
        let read = seen(&harness.client, &name).await.unwrap();
        let edited = harness.edit_node(&name, change).await;
        let result = send(&harness.client, &read, &policy).await;
        assert!(matches!(result, Err(RequestError::Stale)), "{what}: {result:?}");
        assert_eq!(harness.node(&name).await.resource_version(), edited.resource_version(), "{what}");
    }

    let kubelet = join(&harness, "upgraded").await;
    let read = seen(&harness.client, "upgraded").await.unwrap();
    kubelet.upgrade_in_place("10.0.26100.4061").await.unwrap();
    let result = send(&harness.client, &read, &policy).await;
    assert!(matches!(result, Err(RequestError::Stale)), "{result:?}");

    let kubelet = join(&harness, "unlabelled").await;
    harness.edit_node("unlabelled", json!({"metadata": {"labels": {BUILD: null}}})).await;
    let read = seen(&harness.client, "unlabelled").await.unwrap();
    kubelet.upgrade_in_place_without_label("10.0.26100.4061").await.unwrap();
    let result = send(&harness.client, &read, &policy).await;
    assert!(matches!(result, Err(RequestError::Stale)), "the label would be wrong: {result:?}");
}

#[tokio::test]
async fn a_heartbeat_since_the_node_was_read_does_not_make_a_patch_stale() {
    let harness = Harness::new().await;
    let policy = policy(json!({}));
    let kubelet = join(&harness, "win").await;
    let read = seen(&harness.client, "win").await.unwrap();
    kubelet.heartbeat().await.unwrap();
    harness.edit_node("win", json!({"metadata": {"labels": {"example.com/other": "x"}}})).await;
    let written = send(&harness.client, &read, &policy).await.unwrap();
    assert_eq!(written.node.labels.get("example.com/other"), Some("x"));
    assert!(assess(&written.node, &policy, Consent::Given).plan.is_empty());
}

#[tokio::test]
async fn a_new_node_with_the_name_of_a_deleted_one_is_not_written() {
    let harness = Harness::new().await;
    let policy = policy(json!({}));
    let kubelet = join(&harness, "win").await;
    let read = seen(&harness.client, "win").await.unwrap();
    kubelet.leave().await.unwrap();
    let result = send(&harness.client, &read, &policy).await;
    assert!(matches!(result, Err(RequestError::Gone)), "{result:?}");

    join(&harness, "win").await;
    let result = send(&harness.client, &read, &policy).await;
    assert!(matches!(result, Err(RequestError::Stale)), "{result:?}");
    assert_eq!(label(&harness.node("win").await, POOL), None);
}

#[tokio::test]
async fn an_invalid_value_is_denied_in_the_servers_words() {
    let harness = Harness::new().await;
    let applier = applier(&harness.client);
    join(&harness, "win").await;
    let read = seen(&harness.client, "win").await.unwrap();
    let taints = TaintChange {
        to: vec![json!({"key": "os", "value": "windows", "effect": "Sometimes"})],
        added: Vec::new(),
        removed: Vec::new(),
    };
    let plan = NodePlan { taints: Some(taints), ..NodePlan::default() };
    let patch = node_patch(&read.uid, &read.node, &plan, &policy(json!({})));
    let result = applier.patch_node("win", patch).await;
    let Err(RequestError::Denied(message)) = result else { panic!("{result:?}") };
    assert!(message.contains("taints[0].effect"), "{message}");
    assert!(message.contains("Sometimes"), "{message}");
}

#[tokio::test]
async fn a_class_that_changed_since_it_was_read_is_a_conflict() {
    let harness = Harness::new().await;
    let applier = applier(&harness.client);
    let made = applier.create_class(&class("windows-2022")).await.unwrap();
    let again = applier.create_class(&class("windows-2022")).await;
    assert!(matches!(again, Err(RequestError::Conflict)), "{again:?}");

    let changed = relabel(&applier, &made, "first").await.unwrap();
    let result = relabel(&applier, &made, "second").await;
    assert!(matches!(result, Err(RequestError::Conflict)), "{result:?}");
    assert_eq!(harness.classes().get("windows-2022").await.unwrap(), changed);

    harness.classes().delete("windows-2022", &DeleteParams::default()).await.unwrap();
    let result = relabel(&applier, &changed, "third").await;
    assert!(matches!(result, Err(RequestError::Gone)), "{result:?}");
    applier.create_class(&class("windows-2022")).await.unwrap();
    let result = relabel(&applier, &changed, "fourth").await;
    assert!(matches!(result, Err(RequestError::Stale)), "another class of that name: {result:?}");
}

#[tokio::test]
async fn a_node_without_any_annotation_is_written() {
    let harness = Harness::new().await;
    let policy = policy(json!({}));
    let bare = SimulatedNode::server_2022("win").without_kwok();
    harness.join_node(bare).await;
    let read = seen(&harness.client, "win").await.unwrap();
    assert!(!read.node.has_annotations);
    let written = send(&harness.client, &read, &policy).await.unwrap();
    assert!(assess(&written.node, &policy, Consent::Given).plan.is_empty());
    harness.edit_node("win", json!({"spec": {"taints": null}, "metadata": {"annotations": null}})).await;
    let read = seen(&harness.client, "win").await.unwrap();
    harness.edit_node("win", json!({"metadata": {"annotations": {"example.com/other": "x"}}})).await;
    let result = send(&harness.client, &read, &policy).await;
    assert!(matches!(result, Err(RequestError::Stale)), "the annotations of others would be lost: {result:?}");
}

fn applier(client: &Client) -> Applier {
    Applier::new(client.clone(), Leadership::alone())
}

fn policy(spec: Value) -> Policy {
    let pool = WindowsPool::new("default", serde_json::from_value(spec).unwrap());
    let pool = Arc::new(Pool::read(&pool).unwrap());
    Policy::new([PoolEntry { pool, ready: true }], BTreeSet::new())
}

/// Sends the operator's patch for the node as it was read, and reads the node again.
async fn send(client: &Client, node: &NodeObject, policy: &Policy) -> Result<NodeObject, RequestError> {
    let (applier, plan) = (applier(client), assess(&node.node, policy, Consent::Given).plan);
    assert!(!plan.is_empty());
    let patch = node_patch(&node.uid, &node.node, &plan, policy);
    applier.patch_node(&node.name, patch).await?;
    seen(client, &node.name).await
}

/// The node as the operator's watch decodes it.
async fn seen(client: &Client, name: &str) -> Result<NodeObject, RequestError> {
    let nodes: Api<ListedNode> = Api::all(client.clone());
    in_time(nodes.get(name)).await.map(|found| found.object)
}

/// Registers a node without the build label.
async fn join(harness: &Harness, name: &str) -> Kubelet {
    let node = SimulatedNode::server_2022(name).label("example.com/group", "a").without_label(BUILD);
    harness.join_node(node).await
}

fn class(name: &str) -> RuntimeClass {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {POOL: "default"}}, "handler": "a"})).unwrap()
}

async fn relabel(applier: &Applier, class: &RuntimeClass, pool: &str) -> Result<RuntimeClass, RequestError> {
    let change = FieldChange { path: vec!["metadata", "labels", POOL], to: json!(pool) };
    let (uid, version) = (class.uid().unwrap(), class.resource_version().unwrap());
    applier.patch_class(&class.name_any(), runtime_class_patch(&uid, &version, &[change])).await
}
