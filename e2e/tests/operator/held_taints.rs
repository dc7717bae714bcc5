//! Only a `DaemonSet` holds a taint: it would make no pod for a node with a taint that its template does not tolerate.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde_json::json;
use winpool_core::api::{TaintStatus, WindowsPool};
use winpool_e2e::harness::objects::{BUILD, condition, condition_text, label};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{Harness, OS_WINDOWS, merge};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;

pub(super) const WEB: &str = "DaemonSet default/web";

/// The taints with which nodes may register in the pool `default`.
async fn at_registration(harness: &Harness) -> Vec<String> {
    let pool = harness.pools().get("default").await.unwrap();
    let listed = pool.status.unwrap_or_default().taints.into_iter().filter(|listed| listed.at_registration);
    listed.map(|listed| listed.taint).collect()
}

async fn join(harness: &Harness, name: &str) {
    harness.join_node(SimulatedNode::server_2022(name).label("team", name)).await;
}

/// Waits until winpool has seen that a `DaemonSet` makes no pods for nodes with the taint.
async fn is_seen(harness: &Harness) -> WindowsPool {
    let names_it = |pool: &WindowsPool| {
        let status = pool.status.clone().unwrap_or_default();
        status.taints.iter().any(|taint| !taint.without_pods.is_empty())
    };
    harness.pool_until("default", "names the DaemonSet", names_it).await
}

/// Waits until a `DaemonSet` that is created now is younger than the taints of the pool: both times have whole seconds.
async fn time_has_passed(harness: &Harness) {
    let later = async || {
        let status = harness.pools().get("default").await?.status.unwrap_or_default();
        let passed = |taint: &TaintStatus| taint.since.as_ref().is_some_and(|since| since.0.as_second() < now_second());
        Ok((!status.taints.is_empty() && status.taints.iter().all(passed)).then_some(()))
    };
    wait_for("a second has passed", LIMIT, later).await.unwrap();
}

fn now_second() -> i64 {
    Timestamp::now().as_second()
}

#[tokio::test]
async fn a_held_taint_delays_nothing_else_and_comes_when_its_daemon_set_tolerates_it() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2022("busy").without_label(BUILD)).await;
    harness.run_web("busy").await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.held(OS_WINDOWS, &["busy"], &["DaemonSet default/web (1 node)"]).await;
    let (_, _, message) = condition_text(&pool, "TaintsApplied").unwrap();
    assert!(message.contains("key: os,") && message.contains("taintPolicy: TaintOnly"), "{message}");
    assert_eq!(condition(&pool, "Ready"), Some("False"));
    harness.node_until("busy", "has its label", |node| label(node, BUILD).is_some()).await;
    harness.class_until("windows-2022", "is there", |_| true).await;

    let tolerations = json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]);
    let template = json!({"spec": {"template": {"spec": {"tolerations": tolerations}}}});
    let _: DaemonSet = merge(&Api::default_namespaced(harness.client.clone()), "web", template).await;
    harness.is_tainted("busy").await;
    harness.ready("default").await;
    assert_eq!(at_registration(&harness).await, [OS_WINDOWS]);

    // One that comes later and runs nowhere holds nothing. It is named.
    time_has_passed(&harness).await;
    harness.apply(workload("DaemonSet", "later", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}))).await;
    let [taint] = is_seen(&harness).await.status.unwrap().taints.try_into().unwrap();
    assert_eq!((taint.without_pods, taint.held_by.len()), (vec!["DaemonSet default/later".to_owned()], 0));
    join(&harness, "new").await;
    harness.is_tainted("new").await;
    assert_eq!(at_registration(&harness).await, [OS_WINDOWS]);
}
