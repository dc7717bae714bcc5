//! Writes that do not match the current objects: winpool distinguishes them by the next step that they need.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
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
use winpool_e2e::harness::objects::{BUILD, has_taint, label};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL, change_taints};
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

#[tokio::test]
async fn no_taint_of_others_is_lost_while_many_clients_write_at_the_same_moment() {
    let (harness, log) = Harness::audited().await;
    join(&harness, "win").await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| tokio::spawn(toggle(harness.nodes(), format!("example.com/writer-{number}"))))
        .collect();
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let is_guarded = |node: &Node| has_taint(node, OS_WINDOWS);
    harness.node_until("win", "is tainted", is_guarded).await;
    change_taints(&harness.nodes(), "win", |taints| {
        let assessment = taints.len();
        taints.retain(|taint| taint.key != "os");
        assert_eq!(taints.len(), assessment - 1);
    })
    .await;
    harness.node_until("win", "is tainted again", is_guarded).await;
    let mut expected = Vec::new();
    for writer in writers {
        expected.push(writer.await.unwrap());
    }
    harness.ready("default").await;
    let node = harness.node("win").await;
    operator.stop().await;

    let left: Vec<_> = node.spec.unwrap().taints.unwrap();
    for taint in &expected {
        assert!(left.contains(taint), "{taint:?} in {left:?}");
    }
    assert_eq!(left.len(), WRITERS + 2, "theirs, not-ready and winpool's: {left:?}");
    let patches = log.of("patch", "nodes").into_iter();
    let (accepted, refused): (Vec<_>, Vec<_>) = patches.partition(|request| request.code == 200);
    assert_eq!(accepted.len(), 2, "one for each time that the taint was missing: {accepted:?}");
    assert!(refused.iter().all(|request| request.code == 422), "{refused:?}");
    assert!(refused.len() <= WRITERS * ROUNDS, "each refusal has another's write as its cause: {}", refused.len());
}

const WRITERS: usize = 6;
/// An odd number, so that each taint is present at the end.
const ROUNDS: usize = 9;

/// Adds a taint to the node and removes it, in turn, and checks that no other client does. Returns the last taint.
async fn toggle(nodes: Api<Node>, key: String) -> Taint {
    let mut mine: Option<Taint> = None;
    for round in 0..ROUNDS {
        let next = mine.is_none().then(|| Taint {
            key: key.clone(),
            value: Some(format!("round-{round}")),
            effect: "PreferNoSchedule".to_owned(),
            time_added: Some(Time(Timestamp::from_second(1_800_000_000).unwrap())),
        });
        change_taints(&nodes, "win", |taints| {
            let assessment = taints.iter().find(|taint| taint.key == key);
            assert_eq!(assessment, mine.as_ref());
            taints.retain(|taint| taint.key != key);
            taints.extend(next.clone());
        })
        .await;
        mine = next;
    }
    mine.unwrap()
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
