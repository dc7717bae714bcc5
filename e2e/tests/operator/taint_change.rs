//! Changes of a pool's taints: winpool updates the class first, then each node with one request.

use winpool_e2e::{AuditedRequest, prelude::*};

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

#[tokio::test]
async fn a_retired_taint_is_replaced_in_one_request_after_its_class_changed() {
    let (harness, audit) =
        with_two_nodes(|name| SimulatedNode::server_2019(name).taint("os", "Win1809", "NoSchedule")).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    for name in NODES {
        assert_eq!(lasting_taints(&harness.node(name).await), ["os=Win1809:NoSchedule"], "a known spelling is kept");
    }

    // The existing class needs a toleration for the new key.
    let before = audit.requests().len();
    let both = json!([taint(OS_WINDOWS), taint("dedicated/os=windows-only:NoSchedule")]);
    harness.apply_until_ready(json!({"taints": both, "retiredTaints": [taint("os=Win1809:NoSchedule")]})).await;
    for name in NODES {
        assert_eq!(
            lasting_taints(&harness.node(name).await),
            ["os=windows:NoSchedule", "dedicated/os=windows-only:NoSchedule"]
        );
    }
    assert_class_came_first(&audit, before, "windows-only");
    let class = harness.classes().get("windows-2019").await.unwrap();
    assert!(tolerates(&scheduling(&class), "Win1809"), "as long as it is listed");

    harness.apply_pool(json!({"taints": both})).await;
    let is_dropped = |class: &RuntimeClass| !tolerates(&scheduling(class), "Win1809");
    harness.class_until("windows-2019", "no longer tolerates the retired taint", is_dropped).await;
}

#[tokio::test]
async fn a_list_of_taints_is_applied_exactly() {
    let node_os = "node.kubernetes.io/os=windows:NoSchedule";
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2022("openshift").taint("os", "Windows", "NoSchedule")).await;
    harness.join("plain").await;
    let _operator = harness.operator().await;
    let pool = harness.apply_until_ready(json!({"taints": [taint(node_os), taint(OS_WINDOWS)]})).await;
    assert_eq!(lasting_taints(&harness.node("plain").await), [node_os, OS_WINDOWS]);
    // Kubernetes allows one taint for each key and effect: the other value is left alone and reported.
    assert_eq!(lasting_taints(&harness.node("openshift").await), ["os=Windows:NoSchedule", node_os]);
    let problems = pool.status.unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(
        (problems[0].reason.as_str(), problems[0].object.to_string().as_str()),
        ("TaintValueDiffers", "Node openshift")
    );
    let class = harness.classes().get("windows-2022").await.unwrap();
    let toleration = json!({"effect": "NoSchedule", "key": "os", "operator": "Equal", "value": "Windows"});
    assert!(scheduling(&class)["tolerations"].as_array().unwrap().contains(&toleration));
}
