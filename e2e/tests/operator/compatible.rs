//! Classes for several builds, and `DaemonSets` without a toleration, with a real scheduler and controllers.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use winpool_e2e::harness::objects::{condition_text, has_taint, is_held, node_of, unschedulable};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{Harness, OS_WINDOWS, merge};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;

use crate::policies::rolled_out;

/// Deploys more replicas than there are nodes, each for a node of its own. Waits until the scheduler has bound its pods to
/// these nodes, and found none for the rest.
async fn lands_on(harness: &Harness, class: &str, expected: &[&str]) {
    let apart = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": class}}}]);
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}});
    let mut spread = workload("Deployment", class, json!({"runtimeClassName": class, "affinity": affinity}));
    spread["spec"]["replicas"] = json!(5);
    harness.apply(spread).await;
    let (pods, of_class) = (harness.pods(), ListParams::default().labels(&format!("app={class}")));
    let decided = async || {
        let pods = pods.list(&of_class).await?.items;
        let done = pods.len() == 5 && pods.iter().all(|pod| node_of(pod).is_some() || unschedulable(pod).is_some());
        let mut nodes: Vec<&str> = pods.iter().filter_map(node_of).collect();
        nodes.sort_unstable();
        Ok((done && nodes == expected).then_some(()))
    };
    wait_for(&format!("pods of {class} run on {expected:?} only"), LIMIT, decided).await.unwrap();
}

#[tokio::test]
async fn a_compatible_class_runs_on_newer_windows_if_its_containerd_allows_it() {
    let harness = Harness::with_nodes([
        SimulatedNode::linux().name("linux"),
        SimulatedNode::server_2019("win-2019"),
        SimulatedNode::server_2022("win-2022"),
        // The first version of containerd that runs images of 2022 on 2025, and the last one that does not.
        SimulatedNode::server_2025("win-2025").container_runtime("containerd://1.7.19"),
        SimulatedNode::server_2025("win-2025-old").container_runtime("containerd://1.7.18"),
    ])
    .await;
    let _operator = harness.operator().await;
    let classes = json!([
        {"name": "any-2022", "version": "2022", "hostMatch": "Compatible"}, {"name": "any-windows", "version": "Any"},
    ]);
    harness.apply_until_ready(json!({"runtimeClasses": classes})).await;
    let labelled = ListParams::default().labels("runs.winpool.dev/10.0.20348=true");
    let labelled = harness.nodes().list(&labelled).await.unwrap();
    assert_eq!(labelled.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["win-2022", "win-2025"]);
    lands_on(&harness, "any-2022", &["win-2022", "win-2025"]).await;
    lands_on(&harness, "any-windows", &["win-2019", "win-2022", "win-2025", "win-2025-old"]).await;
}

async fn pods_of_agent(harness: &Harness) -> Vec<Pod> {
    let mut pods = harness.pods().list(&ListParams::default().labels("app=agent")).await.unwrap().items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    pods
}

/// Restarts the DaemonSet, and waits until it has this number of pods.
async fn restarted_with(harness: &Harness, restart: &str, number: i32) {
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    let template = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": restart}}});
    merge(&sets, "agent", json!({"spec": {"template": template}})).await;
    rolled_out(&harness.client, "agent", number).await;
}

#[tokio::test]
async fn a_daemon_set_without_a_toleration_keeps_its_pods_by_default_and_loses_them_with_always() {
    let harness = Harness::with_nodes(["win-a", "win-b"].map(SimulatedNode::server_2022)).await;
    let spec = json!({"os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"}});
    harness.apply(workload("DaemonSet", "agent", spec)).await;
    rolled_out(&harness.client, "agent", 2).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.pool_until("default", "holds the taint", is_held).await;
    let (status, _, message) = condition_text(&pool, "TaintsApplied").unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("DaemonSet default/agent (2 nodes)"), "{message}");
    let before: Vec<Option<String>> = pods_of_agent(&harness).await.iter().map(ResourceExt::uid).collect();
    restarted_with(&harness, "first", 2).await;
    let after = pods_of_agent(&harness).await;
    assert_eq!(after.len(), 2);
    assert!(after.iter().all(|pod| !before.contains(&pod.uid())), "they are new ones");
    assert_eq!(are_tainted(&harness).await, [false, false]);

    harness.apply_until_ready(json!({"taintPolicy": "TaintOnly"})).await;
    assert_eq!(are_tainted(&harness).await, [true, true]);
    assert_eq!(pods_of_agent(&harness).await.len(), 2, "the harm does not show yet");
    restarted_with(&harness, "second", 0).await;
    // Old pods go one by one, and the numbers do not count them.
    let none = async || Ok(pods_of_agent(&harness).await.is_empty().then_some(()));
    wait_for("DaemonSet agent has no pods", LIMIT, none).await.unwrap();
}

async fn are_tainted(harness: &Harness) -> Vec<bool> {
    let nodes = harness.nodes().list(&ListParams::default()).await.unwrap();
    nodes.iter().map(|node| has_taint(node, OS_WINDOWS)).collect()
}
