//! Changes of a pool's taints: winpool updates the class first, then each node with one request.

use winpool_e2e::{Request, prelude::*};

const NODES: [&str; 2] = ["win-a", "win-b"];

fn node_writes(requests: &[Request]) -> Vec<&str> {
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

async fn with_two_nodes(taint: Option<(&str, &str)>) -> (Harness, AuditLog) {
    let (harness, audit) = Harness::audited().await;
    for name in NODES {
        let mut node = SimulatedNode::server_2019(name);
        if let Some((key, value)) = taint {
            node = node.taint(key, value, "NoSchedule");
        }
        harness.join_node(node).await;
    }
    (harness, audit)
}

#[tokio::test]
async fn the_taint_of_a_pool_can_be_changed_by_key_and_by_value() {
    let (harness, audit) = with_two_nodes(None).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;

    for value in ["by-key", "by-value"] {
        let before = audit.requests().len();
        let changed = format!("node.kubernetes.io/os={value}:NoSchedule");
        harness.apply_until_ready(json!({"taints": [taint(&changed)]})).await;
        for name in NODES {
            assert_eq!(lasting_taints(&harness.node(name).await), [changed.as_str()]);
        }
        assert_class_came_first(&audit, before, value);
    }
    let class = harness.class_until("windows-2019", "tolerates the new taint only", |class| {
        !tolerates(&scheduling(class), "windows") && !tolerates(&scheduling(class), "by-key")
    });
    assert!(tolerates(&scheduling(&class.await), "by-value"));
    let pool = harness.ready("default").await;
    assert_eq!(
        pool.status.unwrap().managed_taints,
        [
            "node.kubernetes.io/os=by-key:NoSchedule",
            "node.kubernetes.io/os=by-value:NoSchedule",
            "os=windows:NoSchedule"
        ],
        "every taint that the pool ever put on"
    );
}

#[tokio::test]
async fn waiting_pods_with_outdated_tolerations_are_counted_and_named() {
    let (harness, _) = with_two_nodes(None).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    let nowhere = json!({"runtimeClassName": "windows-2019", "nodeSelector": {"example.com/no": "node"}});
    let waiting = harness.run_pod("waiting", nowhere).await;
    let tolerations = json!(waiting.spec.unwrap().tolerations).to_string();
    assert!(tolerations.contains(r#""value":"windows""#), "given by the class when it was created: {tolerations}");

    harness.apply_pool(json!({"taints": [taint("dedicated=windows-only:NoSchedule")]})).await;
    let early = |pool: &WindowsPool| {
        let mut problems = pool.status.iter().flat_map(|status| &status.problems);
        problems.any(|problem| problem.reason == "PodsCreatedTooEarly" && problem.message.contains("default/waiting"))
    };
    harness.pool_until("default", "names the pod", early).await;
    harness.ready("default").await;
}

#[tokio::test]
async fn a_retired_taint_is_replaced_in_one_request_after_its_class_changed() {
    let (harness, audit) = with_two_nodes(Some(("os", "Win1809"))).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    for name in NODES {
        assert_eq!(lasting_taints(&harness.node(name).await), ["os=Win1809:NoSchedule"], "a known spelling is kept");
    }

    // The existing class needs a toleration for the new key.
    let before = audit.requests().len();
    let both = json!([taint(OS_WINDOWS), taint("dedicated=windows-only:NoSchedule")]);
    harness.apply_until_ready(json!({"taints": both, "retiredTaints": [taint("os=Win1809:NoSchedule")]})).await;
    for name in NODES {
        assert_eq!(
            lasting_taints(&harness.node(name).await),
            ["os=windows:NoSchedule", "dedicated=windows-only:NoSchedule"]
        );
    }
    assert_class_came_first(&audit, before, "windows-only");
    let class = harness.classes().get("windows-2019").await.unwrap();
    assert!(tolerates(&scheduling(&class), "Win1809"), "as long as it is listed");

    harness.apply_pool(json!({"taints": both})).await;
    let is_dropped = |class: &RuntimeClass| !tolerates(&scheduling(class), "Win1809");
    harness.class_until("windows-2019", "no longer tolerates the retired taint", is_dropped).await;
}
