//! Nothing to do means no request, told by the API server's audit log.

use serde_json::json;
use winpool_core::api::WindowsPool;
use winpool_e2e::{
    Request, SimulatedNode,
    harness::{BUILD, Harness, POOL, label},
};

fn writes(requests: &[Request]) -> Vec<&Request> {
    requests.iter().filter(|request| request.verb != "get" && request.resource != "events").collect()
}

#[tokio::test]
async fn a_node_that_is_right_already_gets_no_write_and_heartbeats_cause_no_request() {
    let (harness, audit) = Harness::audited().await;
    let node = SimulatedNode::windows("10.0.20348.2655").name("right").taint("os", "windows", "NoSchedule");
    let right = node.join(&harness.client).await.unwrap();
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    assert_eq!(label(&harness.node("right").await, POOL), None, "nothing was added, so nothing is claimed");
    let before = audit.requests();
    assert!(writes(&before).iter().all(|request| request.resource != "nodes"), "{before:#?}");

    for _ in 0..20 {
        right.heartbeat().await.unwrap();
    }
    // An event that does need a write passes the same stream: when it is done, the heartbeats have been seen too.
    SimulatedNode::windows("10.0.20348.2655").name("new").join(&harness.client).await.unwrap();
    harness.node_until("new", "is marked", |node| label(node, POOL).is_some()).await;
    harness.ready("default").await;
    let after = audit.requests();
    let about_right = after.iter().filter(|request| request.name == "right").count();
    assert_eq!(about_right, 0, "{after:#?}");
    let node_writes: Vec<_> = writes(&after).into_iter().filter(|request| request.resource == "nodes").collect();
    assert_eq!(node_writes.len(), 1, "one request makes a node right: {node_writes:#?}");
    operator.stop().await;
}

#[tokio::test]
async fn a_restart_writes_no_node_and_no_class() {
    let (harness, audit) = Harness::audited().await;
    for (name, version) in [("a", "10.0.17763.6659"), ("b", "10.0.20348.2655"), ("c", "10.0.26100.4061")] {
        let node = SimulatedNode::windows(version).name(name).without_label(BUILD);
        node.join(&harness.client).await.unwrap();
    }
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    operator.stop().await;
    let before = audit.requests().len();

    let operator = harness.operator().await;
    // A node that joins now is right only after the caches are filled and the policy is published.
    SimulatedNode::windows("10.0.20348.2655").name("d").join(&harness.client).await.unwrap();
    harness.node_until("d", "is marked", |node| label(node, POOL).is_some()).await;
    let settled = |pool: &WindowsPool| pool.status.as_ref().is_some_and(|s| s.nodes.converged == 4);
    harness.pool_until("default", "counts four nodes", settled).await;
    let requests = audit.requests().split_off(before);
    let written: Vec<_> = writes(&requests).iter().map(|r| (r.resource.as_str(), r.name.as_str())).collect();
    assert!(
        written.iter().all(|write| matches!(write, ("nodes", "d") | ("windowspools/status", "default"))),
        "{written:?}"
    );
    operator.stop().await;
}
