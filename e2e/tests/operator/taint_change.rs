//! Changes of a pool's taints: winpool updates the class first, then each node with one request.

use serde_json::{Value, json};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{lasting_taints, recorded_in, scheduling, taint};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::audit::{AuditLog, AuditedRequest};

const NODES: [&str; 2] = ["win-a", "win-b"];

fn node_writes(requests: &[AuditedRequest]) -> Vec<&str> {
    let patches = requests.iter().filter(|request| request.resource == "nodes" && request.verb == "patch");
    patches.map(|request| request.name.as_str()).collect()
}

fn tolerates(scheduling: &Value, value: &str) -> bool {
    scheduling["tolerations"].as_array().is_some_and(|all| all.iter().any(|toleration| toleration["value"] == value))
}

/// Checks that the class tolerated `value` before any node was written, and that each node was written once.
fn assert_class_came_first(audit: &AuditLog, before: usize, value: &str) {
    let requests = audit.requests().split_off(before);
    let mut names = node_writes(&requests);
    names.sort_unstable();
    assert_eq!(names, NODES, "one request a node: {requests:#?}");
    let class = requests.iter().position(|request| {
        request.resource == "runtimeclasses" && request.verb == "patch" && request.body.to_string().contains(value)
    });
    let node = requests.iter().position(|request| request.resource == "nodes");
    assert!(class.unwrap() < node.unwrap(), "{requests:#?}");
}

async fn with_two_nodes(node: impl Fn(&str) -> SimulatedNode) -> (Harness, AuditLog) {
    let (harness, audit) = Harness::audited().await;
    for name in NODES {
        harness.join_node(node(name)).await;
    }
    (harness, audit)
}

#[tokio::test]
async fn the_taint_of_a_pool_can_be_changed_by_key_and_by_value() {
    let (harness, audit) = with_two_nodes(SimulatedNode::server_2019).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;

    for value in ["win-by-key", "win-by-value"] {
        let before = audit.requests().len();
        let changed = format!("node.kubernetes.io/os={value}:NoSchedule");
        harness.apply_until_ready(json!({"taints": [taint(&changed)]})).await;
        for name in NODES {
            assert_eq!(lasting_taints(&harness.node(name).await), [changed.as_str()]);
        }
        assert_class_came_first(&audit, before, value);
    }
    let class = harness.class_until("windows-2019", "tolerates the new taint only", |class| {
        !tolerates(&scheduling(class), "windows") && !tolerates(&scheduling(class), "win-by-key")
    });
    assert!(tolerates(&scheduling(&class.await), "win-by-value"));
    let pool = harness.ready("default").await;
    assert_eq!(
        recorded_in(&pool.status.unwrap()),
        [
            "node.kubernetes.io/os=win-by-key:NoSchedule",
            "node.kubernetes.io/os=win-by-value:NoSchedule",
            "os=windows:NoSchedule"
        ],
        "every taint that the pool ever put on"
    );
}
