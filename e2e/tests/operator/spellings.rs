//! Windows taints in the spellings of existing clusters.

use winpool_core::windows::taint::SPELLINGS;
use winpool_e2e::prelude::*;

const NODE_OS: &str = "node.kubernetes.io/os=windows:NoSchedule";

#[tokio::test]
async fn a_node_keeps_a_known_spelling_until_the_pool_retires_it() {
    let harness = Harness::new().await;
    for (number, spelling) in SPELLINGS.iter().enumerate() {
        let node = SimulatedNode::server_2022(&format!("win-{number}"));
        harness.join_node(node.taint(spelling.key, spelling.value, "NoSchedule")).await;
    }
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    let class = harness.classes().get("windows-2022").await.unwrap();
    for (number, spelling) in SPELLINGS.iter().enumerate() {
        let node = harness.node(&format!("win-{number}")).await;
        let taint = format!("{}={}:NoSchedule", spelling.key, spelling.value);
        assert!(tolerates(&class, &taint), "{taint}");
        assert_eq!(lasting_taints(&node), [taint], "no second taint");
        assert!(!node.annotations().contains_key(APPLIED), "winpool added nothing, so it claims nothing");
    }

    // The first one is the pool's own taint.
    let retired: Value =
        SPELLINGS.iter().skip(1).map(|s| taint(&format!("{}={}:NoSchedule", s.key, s.value))).collect();
    harness.apply_until_ready(json!({"retiredTaints": retired})).await;
    for number in 0..SPELLINGS.len() {
        assert_eq!(lasting_taints(&harness.node(&format!("win-{number}")).await), [OS_WINDOWS], "win-{number}");
    }
    harness.apply_pool(json!({})).await;
    let only_one = |class: &RuntimeClass| scheduling(class)["tolerations"].as_array().is_some_and(|all| all.len() == 1);
    harness.class_until("windows-2022", "tolerates the pool's taint only", only_one).await;
}

#[tokio::test]
async fn a_list_of_taints_is_applied_exactly() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2022("openshift").taint("os", "Windows", "NoSchedule")).await;
    harness.join("plain").await;
    let _operator = harness.operator().await;
    let pool = harness.apply_until_ready(json!({"taints": [taint(NODE_OS), taint(OS_WINDOWS)]})).await;
    assert_eq!(lasting_taints(&harness.node("plain").await), [NODE_OS, OS_WINDOWS]);
    // Kubernetes allows one taint for each key and effect: the other value is left alone and reported.
    assert_eq!(lasting_taints(&harness.node("openshift").await), ["os=Windows:NoSchedule", NODE_OS]);
    let problems = pool.status.unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(
        (problems[0].reason.as_str(), problems[0].object.to_string().as_str()),
        ("TaintValueDiffers", "Node/openshift")
    );
    let class = harness.classes().get("windows-2022").await.unwrap();
    let toleration = json!({"effect": "NoSchedule", "key": "os", "operator": "Equal", "value": "Windows"});
    assert!(scheduling(&class)["tolerations"].as_array().unwrap().contains(&toleration));
}
