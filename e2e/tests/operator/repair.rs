//! Nodes that others change, and foreign taints on them.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, has_taint, label};
use winpool_e2e::harness::{Harness, OS_WINDOWS};
use winpool_e2e::nodes::simulated::SimulatedNode;

/// Foreign taints. One has every field of a taint.
fn foreign() -> Value {
    json!([
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"},
        {"key": "ToBeDeletedByClusterAutoscaler", "value": "1767225600", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "value": "", "effect": "PreferNoSchedule"},
    ])
}

/// The taints of `foreign` as the server keeps them, without winpool's own.
fn foreign_of(node: &Node) -> Value {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    json!(taints.iter().filter(|taint| taint.key != "os").collect::<Vec<_>>())
}

fn is_right(node: &Node, build: &str) -> bool {
    label(node, BUILD) == Some(build) && has_taint(node, OS_WINDOWS)
}

#[tokio::test]
async fn nodes_are_repaired_and_keep_foreign_taints() {
    let harness = Harness::new().await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;

    let join = async |name: &str| {
        let kubelet = harness.join_node(SimulatedNode::server_2019(name)).await;
        let set = json!({"spec": {"taints": foreign()}});
        let others = foreign_of(&harness.edit_node(name, set).await);
        let node = harness.node_until(name, "is right after it joined", |node| is_right(node, "10.0.17763")).await;
        assert_eq!(foreign_of(&node), others);
        (kubelet, others)
    };
    let taints = json!(foreign());
    let edits = [
        ("lost its label", json!({"metadata": {"labels": {BUILD: null}}})),
        ("got a wrong label", json!({"metadata": {"labels": {BUILD: "10.0.20348"}}})),
        (
            "lost winpool's marks",
            json!({"metadata": {"annotations": {"winpool.dev/applied": null}, "labels": {"winpool.dev/pool": null}}, "spec": {"taints": taints}}),
        ),
        (
            "lost everything",
            json!({"metadata": {"annotations": null, "labels": {BUILD: null}}, "spec": {"taints": taints}}),
        ),
    ];
    // One node for each edit: a third repair of a node within 10 minutes counts as a conflict.
    for (number, (what, edit)) in edits.into_iter().enumerate() {
        let name = format!("win-{number}");
        let (_, others) = join(&name).await;
        let edited = harness.edit_node(&name, edit).await;
        let node = harness
            .node_until(&name, &format!("is right after it {what}"), |node| {
                node.resource_version() != edited.resource_version() && is_right(node, "10.0.17763")
            })
            .await;
        assert_eq!(foreign_of(&node), others, "after it {what}");
    }
    harness.class_until("windows-2019", "is there", |_| true).await;

    // An upgrade in place: the kubelet reports the new version, and an old kubelet leaves the label as it was.
    let (kubelet, others) = join("upgraded").await;
    kubelet.upgrade_in_place_without_label("10.0.20348.2655").await.unwrap();
    let node = harness.node_until("upgraded", "has the label of 2022", |node| is_right(node, "10.0.20348")).await;
    assert_eq!(foreign_of(&node), others);
    harness.class_until("windows-2022", "is there", |_| true).await;
    let classes = |pool: &WindowsPool| -> Vec<(String, i64)> {
        let classes = pool.status.iter().flat_map(|status| &status.runtime_classes);
        classes.map(|class| (class.name.clone(), class.nodes)).collect()
    };
    let expected = [("windows-2019".to_owned(), 4), ("windows-2022".to_owned(), 1)];
    harness.pool_until("default", "keeps the class of 2019", |pool| classes(pool) == expected).await;
}
