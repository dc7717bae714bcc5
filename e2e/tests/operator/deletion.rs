//! Deleted pools release their nodes and classes.

use kube::ResourceExt;
use serde_json::json;
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, condition_text, face};
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;

#[tokio::test]
async fn deleting_a_pool_restores_its_nodes_and_breaks_no_running_pod() {
    let harness = Harness::new().await;
    let spot = ("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule");
    harness.join_node(SimulatedNode::server_2019("used").taint(spot.0, spot.1, spot.2)).await;
    let node = SimulatedNode::server_2022("guarded").taint("os", "windows", "NoSchedule");
    harness.join_node(node.without_label(BUILD)).await;
    harness.join_node(SimulatedNode::server_2025("plain")).await;
    let names = ["used", "guarded", "plain"];
    let mut before = Vec::new();
    for name in names {
        before.push(face(&harness.node(name).await));
    }

    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    assert_ne!(face(&harness.node("used").await), before[0]);
    harness.run_pod("app", json!({"nodeName": "used", "runtimeClassName": "windows-2019"})).await;

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    for (name, before) in names.into_iter().zip(before) {
        assert_eq!(face(&harness.node(name).await), before, "{name}");
    }
    for (name, why) in [("windows-2019", "a pod uses it"), ("windows-2022", "a node keeps its kubelet's taint")] {
        let class = harness.classes().get(name).await.unwrap();
        assert_eq!(class.labels().get(POOL), None, "{why}, and no pool owns it");
    }
    assert_eq!(harness.classes().get_opt("windows-2025").await.unwrap(), None);
}

#[tokio::test]
async fn a_deletion_completes_without_permission_to_list_and_watch_pods() {
    let harness = Harness::new().await;
    harness.account.take_all(&[("list", "", "pods"), ("watch", "", "pods")]).await;
    harness.join_node(SimulatedNode::server_2019("win")).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let says = |pool: &WindowsPool| {
        condition_text(pool, "TaintsApplied").is_some_and(|(_, reason, _)| reason == "PodsNotSeen")
    };
    // The pauses between two attempts to watch grow, so the first one after 15 seconds may come late.
    let held = async || Ok(Some(harness.pools().get("default").await?).filter(says));
    let pool = wait_for("pool default holds the taint", 3 * LIMIT, held).await.unwrap();
    let (_, _, message) = condition_text(&pool, "TaintsApplied").unwrap();
    assert!(message.contains("pods is forbidden") && message.contains("taintPolicy: TaintOnly"), "{message}");

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let class = harness.classes().get("windows-2019").await.unwrap();
    assert_eq!(class.labels().get(POOL), None);
}
