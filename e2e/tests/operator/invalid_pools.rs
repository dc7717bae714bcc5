//! Pools that break the rules of their own schema, because they were stored before the rules were in force.

use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use winpool_e2e::harness::objects::{condition, label, recorded_in, taint, taints};
use winpool_e2e::harness::schema::{create, untyped, with_schema, without_any_shape};
use winpool_e2e::harness::{APPLIED, Harness, POOL};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::audit::AuditLog;

#[tokio::test]
async fn an_unreadable_pool_gets_a_condition_and_affects_no_other_pool() {
    let (harness, log) = Harness::audited().await;
    join(&harness, "win-odd", "10.0.17763.6659", "odd").await;
    join(&harness, "win-good", "10.0.20348.2655", "good").await;
    let operator = harness.operator().await;
    let odd =
        json!({"nodeSelector": {"group": "odd"}, "taints": [taint("odd:NoSchedule")], "taintPolicy": "TaintOnly"});
    harness.apply_pool_named("odd", odd.clone()).await;
    let before = harness.ready("odd").await.status.unwrap();
    assert_eq!(recorded_in(&before), ["odd:NoSchedule"]);
    let marked = harness.node("win-odd").await;

    operator.stop().await;
    let broken = json!({"mode": 7, "taints": "x"});
    with_schema(&harness.client, &broken, true, without_any_shape).await;
    let _operator = harness.operator().await;
    edit(&harness.client, "odd", broken.clone()).await;
    let status = status_until(&harness.client, "odd", |status| ready(status)["reason"] == "InvalidSpec").await;
    let message = ready(&status)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("WindowsPool odd is not valid"), "{message}");
    assert_eq!(status["taints"], json!(before.taints), "what it ever put on nodes is not forgotten");
    assert_eq!(status["nodes"], json!(before.nodes), "and stays as it was reported");

    // The same with the real schema, and other pools still work.
    with_schema(&harness.client, &broken, false, |_| {}).await;
    harness.apply_pool_named("good", json!({"nodeSelector": {"group": "good"}})).await;
    harness.ready("good").await;
    join(&harness, "win-late", "10.0.20348.2655", "good").await;
    harness.node_until("win-late", "is marked", |node| label(node, POOL) == Some("good")).await;
    let now = harness.node("win-odd").await;
    assert_eq!(now.resource_version(), marked.resource_version(), "its marks stay");
    let statuses = writes(&log, "windowspools/status").into_iter().filter(|name| name == "odd").count();

    // A change of a node that it selects, which it cannot know, is no reason to write its status again.
    harness.edit_node("win-odd", json!({"metadata": {"labels": {"example.com/a": "x"}}})).await;
    join(&harness, "win-later", "10.0.26100.4061", "good").await;
    harness.nodes_until("good", "has three nodes", |nodes| nodes.converged == 3).await;
    assert_eq!(writes(&log, "windowspools/status").into_iter().filter(|name| name == "odd").count(), statuses);
    let unchanged = status_until(&harness.client, "odd", |_| true).await;
    assert_eq!(ready(&unchanged)["lastTransitionTime"], ready(&status)["lastTransitionTime"]);

    edit(&harness.client, "odd", json!({"mode": null, "taints": null})).await;
    let pool = harness.ready("odd").await;
    let node = harness.node_until("win-odd", "has the new taint", |node| taints(node).len() == 2).await;
    assert_eq!(taints(&node), ["node.kubernetes.io/not-ready:NoSchedule", "os=windows:NoSchedule"], "the old one went");
    assert!(node.annotations()[APPLIED].contains("os=windows"));
    assert_eq!(condition(&pool, "Ready"), Some("True"));
}

#[tokio::test]
async fn an_event_says_once_what_is_wrong_if_the_api_server_refuses_the_status() {
    let (harness, log) = Harness::audited().await;
    let broken = json!({"taints": "x"});
    with_schema(&harness.client, &broken, true, without_any_shape).await;
    create(&harness.client, "odd", &broken).await;
    with_schema(&harness.client, &broken, false, |_| {}).await;
    let _operator = harness.operator().await;
    let about = |event: &Event| event.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some("odd"));
    let event = harness.event_until("is about the pool", about).await;
    assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("InvalidSpec")));
    let note = event.note.unwrap();
    assert!(note.contains("WindowsPool odd is not valid") && note.contains("expected a sequence"), "{note}");

    // Changes of other pools or nodes cause no retry.
    harness.apply_pool_named("good", json!({"nodeSelector": {"group": "good"}})).await;
    for number in 1..=3 {
        join(&harness, &format!("win-{number}"), "10.0.20348.2655", "good").await;
        harness.nodes_until("good", "has its nodes", |nodes| nodes.converged == number).await;
    }
    let statuses = writes(&log, "windowspools/status").into_iter().filter(|name| name == "odd").count();
    assert_eq!(statuses, 1);

    edit(&harness.client, "odd", json!({"taints": null, "nodeSelector": {"group": "odd"}})).await;
    harness.ready("odd").await;
}

async fn join(harness: &Harness, name: &str, kernel: &str, group: &str) {
    harness.join_node(SimulatedNode::windows(kernel).name(name).label("group", group)).await;
}

/// The objects of this kind that the operator wrote, in order. Writes that failed with a conflict are left out.
fn writes(log: &AuditLog, resource: &str) -> Vec<String> {
    let writes = log.requests().into_iter();
    let writes = writes.filter(|request| request.resource == resource && request.verb != "get" && request.code != 409);
    writes.map(|request| request.name).collect()
}

/// Merges this into the pool's spec.
async fn edit(client: &Client, name: &str, spec: Value) {
    let patch = Patch::Merge(json!({"spec": spec}));
    untyped(client).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn status_until(client: &Client, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let pools = untyped(client);
    let found = async || Ok(Some(pools.get(name).await?.data["status"].take()).filter(&holds));
    wait_for(&format!("the status of pool {name}"), LIMIT, found).await.unwrap()
}

fn ready(status: &Value) -> &Value {
    let conditions = status["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready").unwrap_or(&Value::Null)
}
