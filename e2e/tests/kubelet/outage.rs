//! A kubelet that ends without a report.

use serde_json::json;
use winpool_e2e::harness::OS_WINDOWS;
use winpool_e2e::harness::objects::{BUILD, has_taint, label, taints};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::cluster::Flags;
use winpool_e2e::wine::windows::WINDOWS_2022;

use super::stage::{is_ready, machine, ready, stage_with};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Catches winpool and the node lifecycle controller reverting each other's taints, which are in one list.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_node_whose_kubelet_died_keeps_winpools_taint() {
    // The lease is renewed every 10 seconds: with less, a healthy kubelet would count as dead.
    let controller_manager = &["--node-monitor-grace-period=20s", "--node-monitor-period=1s"];
    let harness = stage_with(Flags { controller_manager, ..Flags::default() }).await;
    // If no node is healthy, the controllers evict no pod.
    SimulatedNode::linux().join(&harness.client).await.unwrap();
    let mut machine = machine(&harness, "win", WINDOWS_2022, &[]).await;
    ready(&harness, &machine).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;

    machine.stop_kubelet();
    let is_unreachable = |node: &k8s_openapi::api::core::v1::Node| {
        let of_controllers = taints(node).iter().filter(|taint| taint.starts_with(UNREACHABLE)).count();
        is_ready(node) == Some("Unknown") && of_controllers == 2 && has_taint(node, OS_WINDOWS)
    };
    harness.node_until("win", "is unreachable, and keeps winpool's taint", is_unreachable).await;
    harness.edit_node("win", json!({"metadata": {"labels": {BUILD: null}}})).await;
    harness.node_until("win", "is repaired without its kubelet", |node| label(node, BUILD).is_some()).await;

    machine.start_kubelet(&[]).unwrap();
    harness.node_until("win", "is back, with winpool's taint only", |node| taints(node) == [OS_WINDOWS]).await;
    harness.ready("default").await;
}
