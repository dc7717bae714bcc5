//! Pools in `DryRun` mode.

use kube::ResourceExt;
use serde_json::json;
use winpool_core::api::{ClassState, WindowsPool};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{BUILD, condition, label, taints};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::audit::AuditLog;

#[tokio::test]
async fn a_dry_run_writes_nothing_but_status_and_enforce_does_what_it_said() {
    let (harness, log) = Harness::audited().await;
    let bare = SimulatedNode::server_2019("bare").without_label(BUILD);
    harness.join_node(bare).await;
    let right = SimulatedNode::server_2022("right").taint("os", "windows", "NoSchedule");
    harness.join_node(right).await;
    let _operator = harness.operator().await;
    let pool = harness.apply_until_ready(json!({"mode": "DryRun"})).await;

    let status = pool.status.as_ref().unwrap();
    assert_eq!((status.nodes.selected, status.nodes.pending, status.nodes.converged), (2, 1, 1));
    assert_eq!(status.taints, [], "none was put on");
    let would_change: Vec<_> =
        status.problems.iter().filter(|p| p.reason == "WouldChange").map(|p| p.object.to_string()).collect();
    assert_eq!(would_change, ["RuntimeClass windows-2019", "RuntimeClass windows-2022", "Node bare"]);
    let classes: Vec<_> = status.runtime_classes.iter().map(|class| (class.name.as_str(), class.state)).collect();
    assert_eq!(classes, [("windows-2019", ClassState::Pending), ("windows-2022", ClassState::Pending)]);
    harness.node_events_are_seen().await;
    assert_eq!(writes(&log), ["windowspools/status"]);
    assert_eq!(taints(&harness.node("bare").await), ["node.kubernetes.io/not-ready:NoSchedule"]);

    harness.apply_pool(json!({"mode": "Enforce"})).await;
    let enforced = |pool: &WindowsPool| condition(pool, "Ready") == Some("True") && nodes(pool) == (2, 0, 2);
    let pool = harness.pool_until("default", "is enforced", enforced).await;
    assert_eq!(pool.status.unwrap().problems, []);
    let marked = harness.node("bare").await;
    assert_eq!(taints(&marked), ["node.kubernetes.io/not-ready:NoSchedule", "os=windows:NoSchedule"]);
    assert_eq!(label(&marked, BUILD), Some("10.0.17763"));
    harness.classes().get("windows-2019").await.unwrap();
    assert_eq!(writes(&log), ["nodes", "runtimeclasses", "windowspools", "windowspools/status"]);

    harness.apply_until_ready(json!({"mode": "DryRun"})).await;
    harness.node_events_are_seen().await;
    assert_eq!(harness.node("bare").await.resource_version(), marked.resource_version(), "what was done stays");
}

fn nodes(pool: &WindowsPool) -> (i64, i64, i64) {
    let nodes = pool.status.as_ref().map(|status| status.nodes).unwrap_or_default();
    (nodes.selected, nodes.pending, nodes.converged)
}

/// The kinds that the operator wrote until now, without Events.
fn writes(log: &AuditLog) -> Vec<String> {
    let requests = log.requests().into_iter().filter(|request| request.verb != "get" && request.resource != "events");
    let mut kinds: Vec<_> = requests.map(|request| request.resource).collect();
    kinds.sort();
    kinds.dedup();
    kinds
}
