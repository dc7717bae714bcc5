//! Without anything to do, winpool sends no request but one a pool every ten minutes, which says that it runs. The audit log of
//! the API server shows it.

use serde_json::json;
use winpool_e2e::harness::objects::{BUILD, label};
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::audit::AuditedRequest;

fn writes(requests: &[AuditedRequest]) -> Vec<&AuditedRequest> {
    requests.iter().filter(|request| request.verb != "get" && request.resource != "events").collect()
}

#[tokio::test]
async fn a_converged_node_gets_no_write_and_heartbeats_cause_no_request() {
    let (harness, audit) = Harness::audited().await;
    let node = SimulatedNode::server_2022("right").taint("os", "windows", "NoSchedule");
    let right = harness.join_node(node).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    assert_eq!(label(&harness.node("right").await, POOL), None, "nothing was added, so nothing is claimed");
    let before = audit.requests();
    assert!(writes(&before).iter().all(|request| request.resource != "nodes"), "{before:#?}");

    for _ in 0..20 {
        right.heartbeat().await.unwrap();
    }
    // An event in the same watch that needs a write: after that write, winpool has seen the heartbeats too.
    harness.join("new").await;
    harness.is_marked("new").await;
    harness.ready("default").await;
    let after = audit.requests();
    let about_right = after.iter().filter(|request| request.name == "right").count();
    assert_eq!(about_right, 0, "{after:#?}");
    let node_writes: Vec<_> = writes(&after).into_iter().filter(|request| request.resource == "nodes").collect();
    assert_eq!(node_writes.len(), 1, "one request makes a node right: {node_writes:#?}");
}

#[tokio::test]
async fn a_restart_writes_no_node_and_no_class() {
    let (harness, audit) = Harness::audited().await;
    for (name, version) in [("a", "10.0.17763.6659"), ("b", "10.0.20348.2655"), ("c", "10.0.26100.4061")] {
        harness.join_node(SimulatedNode::windows(version).name(name).without_label(BUILD)).await;
    }
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    operator.stop().await;
    let before = audit.requests().len();

    let _operator = harness.operator().await;
    // A node that joins now converges only after the caches are filled and the policy is published.
    harness.join("d").await;
    harness.is_marked("d").await;
    harness.nodes_until("default", "counts four nodes", |nodes| nodes.converged == 4).await;
    let requests = audit.requests().split_off(before);
    let written: Vec<_> = writes(&requests).iter().map(|r| (r.resource.as_str(), r.name.as_str())).collect();
    assert!(
        written.iter().all(|write| matches!(write, ("nodes", "d") | ("windowspools/status", "default"))),
        "{written:?}"
    );
}
