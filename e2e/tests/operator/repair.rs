//! Nodes that others change, and foreign taints on them.

use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::{BUILD, has_taint, label};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL};
use winpool_e2e::nodes::simulated::SimulatedNode;

#[tokio::test]
async fn a_node_that_loses_what_winpool_added_gets_it_again_and_keeps_foreign_taints() {
    let harness = Harness::new().await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    let foreign = json!([
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
        {"key": "ToBeDeletedByClusterAutoscaler", "value": "1767225600", "effect": "NoSchedule"},
    ]);
    let edits = [
        ("label", json!({"labels": {BUILD: null}})),
        ("wrong-label", json!({"labels": {BUILD: "10.0.20348"}})),
        ("record", json!({"labels": {POOL: null}, "annotations": {APPLIED: null}})),
    ];
    // One node for each edit: a third repair of a node within 10 minutes counts as a conflict.
    for (name, metadata) in edits {
        harness.join_node(SimulatedNode::server_2019(name)).await;
        harness.is_tainted(name).await;
        let edited = harness.edit_node(name, json!({"metadata": metadata, "spec": {"taints": foreign}})).await;
        let is_repaired = |node: &k8s_openapi::api::core::v1::Node| {
            node.resource_version() != edited.resource_version()
                && label(node, BUILD) == Some("10.0.17763")
                && has_taint(node, OS_WINDOWS)
        };
        let node = harness.node_until(name, "is repaired", is_repaired).await;
        let taints: Vec<Value> = node.spec.unwrap().taints.unwrap().iter().map(|taint| json!(taint)).collect();
        assert!(foreign.as_array().unwrap().iter().all(|taint| taints.contains(taint)), "{name}: {taints:?}");
    }
}
