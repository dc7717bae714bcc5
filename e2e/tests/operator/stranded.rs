//! A taint is held while pods on its nodes do not tolerate it.

use winpool_e2e::prelude::*;

async fn run_pod(harness: &Harness, name: &str, node: &str, tolerations: Value) {
    let spec = json!({"nodeName": node, "tolerations": tolerations});
    harness.create_pod(pod_of("Deployment", "web", name, spec)).await;
}

#[tokio::test]
async fn a_held_taint_delays_nothing_else() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2022("busy").without_label(BUILD)).await;
    run_pod(&harness, "web-5d8f7-a", "busy", json!([])).await;
    run_pod(&harness, "web-5d8f7-b", "busy", json!([{"key": "os", "operator": "Exists", "effect": "NoExecute"}])).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.pool_until("default", "holds the taint", is_held).await;

    let (_, reason, message) = condition_text(&pool, "TaintsApplied").unwrap();
    assert_eq!(reason, "WorkloadsNotTolerating");
    assert!(message.contains("Deployment default/web (2 pods)"), "{message}");
    assert!(message.contains("key: os,") && message.contains("taintPolicy: Always"), "{message}");
    assert_eq!(condition(&pool, "Ready"), Some("False"));
    let node = harness.node_until("busy", "has its label", |node| label(node, BUILD).is_some()).await;
    assert!(!has_taint(&node, OS_WINDOWS));
    harness.class_until("windows-2022", "is there", |_| true).await;
    assert_eq!(pool.status.unwrap().managed_taints, Vec::<String>::new(), "what was never put on is not recorded");

    harness.apply_until_ready(json!({"taintPolicy": "Always"})).await;
    assert!(has_taint(&harness.node("busy").await, OS_WINDOWS));
}

#[tokio::test]
async fn an_approved_taint_stays_enforced_and_a_changed_one_is_checked_again() {
    let harness = Harness::new().await;
    harness.join("first").await;
    run_pod(&harness, "tolerating", "first", json!([{"key": "os", "value": "windows"}])).await;
    let _operator = harness.operator().await;
    let pool = harness.apply_until_ready(json!({})).await;
    assert_eq!(pool.status.unwrap().managed_taints, [OS_WINDOWS]);

    // A node that joins later is tainted at once, whatever runs on it.
    run_pod(&harness, "early", "second", json!([])).await;
    harness.join("second").await;
    harness.is_tainted("second").await;

    harness.apply_pool(json!({"taints": [taint("os=Windows:NoSchedule")]})).await;
    harness.pool_until("default", "holds the changed taint", is_held).await;
    for name in ["first", "second"] {
        assert!(has_taint(&harness.node(name).await, OS_WINDOWS), "{name} never loses its guard");
    }
}
