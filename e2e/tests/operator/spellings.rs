//! Windows taints in the spellings that clusters use.

use kube::ResourceExt;
use serde_json::json;
use winpool_core::windows::taint::SPELLINGS;
use winpool_e2e::{
    SimulatedNode,
    harness::{APPLIED, Harness, lasting_taints, scheduling},
};

#[tokio::test]
async fn a_node_with_a_known_spelling_keeps_it_and_its_class_tolerates_it() {
    let harness = Harness::new().await;
    for (index, spelling) in SPELLINGS.iter().enumerate() {
        let node = SimulatedNode::windows("10.0.20348.2655").name(&format!("win-{index}"));
        node.taint(spelling.key, spelling.value, "NoSchedule").join(&harness.client).await.unwrap();
    }
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;

    let class = harness.classes().get("windows-2022").await.unwrap();
    let scheduling = scheduling(&class);
    let tolerations = scheduling["tolerations"].as_array().unwrap();
    for (index, spelling) in SPELLINGS.iter().enumerate() {
        let node = harness.node(&format!("win-{index}")).await;
        let guard = format!("{}={}:NoSchedule", spelling.key, spelling.value);
        assert_eq!(lasting_taints(&node), [guard], "no second taint");
        assert!(!node.annotations().contains_key(APPLIED), "nothing was added, so nothing is claimed");
        let toleration =
            json!({"effect": "NoSchedule", "key": spelling.key, "operator": "Equal", "value": spelling.value});
        assert!(tolerations.contains(&toleration), "{toleration} in {tolerations:?}");
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_list_of_taints_is_exact() {
    let harness = Harness::new().await;
    let node = SimulatedNode::windows("10.0.20348.2655").name("openshift").taint("os", "Windows", "NoSchedule");
    node.join(&harness.client).await.unwrap();
    SimulatedNode::windows("10.0.20348.2655").name("plain").join(&harness.client).await.unwrap();
    let operator = harness.operator().await;
    harness
        .apply_pool(json!({"taints": [
            {"key": "node.kubernetes.io/os", "value": "windows", "effect": "NoSchedule"},
            {"key": "os", "value": "windows", "effect": "NoSchedule"},
        ]}))
        .await;
    let pool = harness.ready("default").await;

    assert_eq!(
        lasting_taints(&harness.node("plain").await),
        ["node.kubernetes.io/os=windows:NoSchedule", "os=windows:NoSchedule"]
    );
    // Kubernetes allows one taint for each key and effect: the other value is left alone and reported.
    assert_eq!(
        lasting_taints(&harness.node("openshift").await),
        ["os=Windows:NoSchedule", "node.kubernetes.io/os=windows:NoSchedule"]
    );
    let problems = pool.status.unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(
        (problems[0].reason.as_str(), problems[0].object.to_string().as_str()),
        ("TaintValueDiffers", "Node/openshift")
    );
    let class = harness.classes().get("windows-2022").await.unwrap();
    let toleration = json!({"effect": "NoSchedule", "key": "os", "operator": "Equal", "value": "Windows"});
    assert!(scheduling(&class)["tolerations"].as_array().unwrap().contains(&toleration));
    operator.stop().await;
}
