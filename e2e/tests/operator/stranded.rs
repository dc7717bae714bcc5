//! Nobody is stranded: a taint waits for the pods that it would keep off their nodes.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::{
    SimulatedNode,
    harness::{BUILD, Harness, OS_WINDOWS, condition, has_taint, label},
};

fn is_held(pool: &WindowsPool) -> bool {
    taints_applied(pool).0 == "WorkloadsNotTolerating"
}

fn taints_applied(pool: &WindowsPool) -> (String, String) {
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    let condition = conditions.find(|condition| condition.type_ == "TaintsApplied");
    condition.map(|condition| (condition.reason.clone(), condition.message.clone())).unwrap_or_default()
}

async fn run_pod(harness: &Harness, name: &str, node: &str, tolerations: Value) {
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": {"pod-template-hash": "5d8f7"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f7", "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": node, "tolerations": tolerations, "containers": [{"name": "c", "image": "servercore"}]},
    });
    harness.create_pod(pod).await;
}

#[tokio::test]
async fn a_taint_is_held_while_pods_do_not_tolerate_it_and_everything_else_is_done() {
    let harness = Harness::new().await;
    let node = SimulatedNode::windows("10.0.20348.2655").name("busy").without_label(BUILD);
    node.join(&harness.client).await.unwrap();
    run_pod(&harness, "web-5d8f7-a", "busy", json!([])).await;
    run_pod(&harness, "web-5d8f7-b", "busy", json!([{"key": "os", "operator": "Exists", "effect": "NoExecute"}])).await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.pool_until("default", "holds the taint", is_held).await;

    let (reason, message) = taints_applied(&pool);
    assert_eq!(reason, "WorkloadsNotTolerating");
    assert!(message.contains("Deployment default/web (2 pods)"), "{message}");
    assert!(message.contains("key: os,") && message.contains("taintPolicy: Always"), "{message}");
    assert_eq!(condition(&pool, "Ready"), Some("False"));
    let node = harness.node_until("busy", "has its label", |node| label(node, BUILD).is_some()).await;
    assert!(!has_taint(&node, OS_WINDOWS));
    harness.class_until("windows-2022", "is there", |_| true).await;
    assert_eq!(pool.status.unwrap().managed_taints, Vec::<String>::new(), "what was never put on is not recorded");

    harness.apply_pool(json!({"taintPolicy": "Always"})).await;
    harness.ready("default").await;
    assert!(has_taint(&harness.node("busy").await, OS_WINDOWS));
    operator.stop().await;
}

#[tokio::test]
async fn a_taint_that_was_let_through_stays_enforced_and_a_changed_one_is_judged_again() {
    let harness = Harness::new().await;
    SimulatedNode::windows("10.0.20348.2655").name("first").join(&harness.client).await.unwrap();
    run_pod(&harness, "tolerating", "first", json!([{"key": "os", "value": "windows"}])).await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.ready("default").await;
    assert_eq!(pool.status.unwrap().managed_taints, [OS_WINDOWS]);

    // A node that joins later is tainted at once, whatever runs on it.
    run_pod(&harness, "early", "second", json!([])).await;
    SimulatedNode::windows("10.0.20348.2655").name("second").join(&harness.client).await.unwrap();
    harness.node_until("second", "is tainted", |node| has_taint(node, OS_WINDOWS)).await;

    harness.apply_pool(json!({"taints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]})).await;
    harness.pool_until("default", "holds the changed taint", is_held).await;
    for name in ["first", "second"] {
        assert!(has_taint(&harness.node(name).await, OS_WINDOWS), "{name} never loses its guard");
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_taint_that_no_node_needed_yet_is_judged_when_the_spelling_in_its_place_is_retired() {
    let harness = Harness::new().await;
    let node = SimulatedNode::windows("10.0.20348.2655").name("guarded").taint("os", "Windows", "NoSchedule");
    node.join(&harness.client).await.unwrap();
    run_pod(&harness, "web-5d8f7-a", "guarded", json!([{"key": "os", "value": "Windows"}])).await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.ready("default").await;
    assert_eq!(pool.status.unwrap().managed_taints, Vec::<String>::new(), "none was needed");

    harness.apply_pool(json!({"retiredTaints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]})).await;
    let pool = harness.pool_until("default", "holds the taint", is_held).await;
    assert!(taints_applied(&pool).1.contains("Deployment default/web (1 pod)"), "{pool:?}");
    assert!(has_taint(&harness.node("guarded").await, "os=Windows:NoSchedule"));

    // A node on which nobody would be stranded waits as well: pods of the workload may be meant for it.
    SimulatedNode::windows("10.0.20348.2655").name("bare").join(&harness.client).await.unwrap();
    let both = |pool: &WindowsPool| pool.status.as_ref().is_some_and(|status| status.nodes.held == 2);
    harness.pool_until("default", "holds the taint of both", both).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_dry_run_tells_who_would_be_stranded() {
    let (harness, audit) = Harness::audited().await;
    SimulatedNode::windows("10.0.20348.2655").name("busy").join(&harness.client).await.unwrap();
    run_pod(&harness, "web-5d8f7-a", "busy", json!([])).await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({"mode": "DryRun"})).await;
    let pool = harness.pool_until("default", "would hold the taint", is_held).await;
    let (reason, message) = taints_applied(&pool);
    assert_eq!(reason, "WorkloadsNotTolerating");
    assert!(message.contains("Deployment default/web (1 pod)"), "{message}");
    // The log has a request once the operator has its answer, which is after the pool changed.
    operator.stop().await;
    let mut written: Vec<_> = audit.requests().into_iter().filter(|r| r.verb != "get").map(|r| r.resource).collect();
    written.retain(|resource| resource != "events");
    written.dedup();
    assert_eq!(written, ["windowspools/status"]);
}

#[tokio::test]
async fn a_held_taint_goes_through_once_the_pods_tolerate_it() {
    let harness = Harness::new().await;
    SimulatedNode::windows("10.0.20348.2655").name("busy").join(&harness.client).await.unwrap();
    run_pod(&harness, "web-5d8f7-a", "busy", json!([])).await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.pool_until("default", "holds the taint", is_held).await;
    harness.pods().delete("web-5d8f7-a", &DeleteParams::default().grace_period(0)).await.unwrap();
    // It looks again every minute, and when it starts.
    operator.stop().await;
    let operator = harness.operator().await;
    harness.node_until("busy", "is tainted", |node| has_taint(node, OS_WINDOWS)).await;
    harness.ready("default").await;
    operator.stop().await;
}

#[tokio::test]
async fn never_puts_on_no_taint_takes_winpools_off_and_classes_tolerate_all_the_same() {
    let harness = Harness::new().await;
    SimulatedNode::windows("10.0.20348.2655").name("win").join(&harness.client).await.unwrap();
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    assert!(has_taint(&harness.node("win").await, OS_WINDOWS));
    harness.apply_pool(json!({"taintPolicy": "Never"})).await;
    harness.node_until("win", "lost winpool's taint", |node| !has_taint(node, OS_WINDOWS)).await;
    let class = harness.classes().get("windows-2022").await.unwrap();
    assert!(json!(class.scheduling).to_string().contains(r#""value":"windows""#));
    operator.stop().await;
}
