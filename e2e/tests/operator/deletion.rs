//! Releasing nodes and classes: deleted pools, narrower selectors, classes that leave the spec.

use winpool_e2e::prelude::*;

async fn run_pod(harness: &Harness, name: &str, node: &str, class: &str) {
    harness.run_pod(name, json!({"nodeName": node, "runtimeClassName": class})).await;
}

#[tokio::test]
async fn deleting_a_pool_restores_its_nodes_and_breaks_no_running_pod() {
    let harness = Harness::new().await;
    let spot = ("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule");
    harness.join_node(SimulatedNode::server_2019("used").taint(spot.0, spot.1, spot.2)).await;
    let node = SimulatedNode::server_2022("guarded").taint("os", "windows", "NoSchedule");
    harness.join_node(node.without_label(BUILD)).await;
    harness.join_node(SimulatedNode::server_2025("plain")).await;
    let names = ["used", "guarded", "plain"];
    let mut before = Vec::new();
    for name in names {
        before.push(face(&harness.node(name).await));
    }

    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    assert_ne!(face(&harness.node("used").await), before[0]);
    run_pod(&harness, "app", "used", "windows-2019").await;

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    for (name, before) in names.into_iter().zip(before) {
        assert_eq!(face(&harness.node(name).await), before, "{name}");
    }
    let class = harness.classes().get("windows-2019").await.unwrap();
    assert_eq!(class.labels().get(POOL), None, "the class in use stays, and no pool owns it");
    assert_eq!(harness.classes().get_opt("windows-2022").await.unwrap(), None);
    assert_eq!(harness.classes().get_opt("windows-2025").await.unwrap(), None);
}

#[tokio::test]
async fn a_pool_stays_until_the_next_one_has_taken_its_nodes_over() {
    // The guard refuses to adopt a class that does not fit.
    let harness = Harness::unguarded().await;
    harness.join("win").await;
    let _operator = harness.operator().await;
    harness.apply_pool_named("a-older", json!({"taints": [taint("older:NoSchedule")]})).await;
    harness.ready("a-older").await;
    // The class of the next pool needs another toleration first, so that pool's nodes have to wait.
    harness.apply_pool_that_waits_for_its_class("b-younger").await;
    harness.class_until("mine", "is adopted", |class| class.labels().contains_key(POOL)).await;
    harness.delete_pool("a-older").await;
    let taken_over = |node: &Node| {
        let taints = taints(node);
        taints.contains(&"younger:NoSchedule".to_owned()) && !taints.contains(&"older:NoSchedule".to_owned())
    };
    harness.node_until("win", "has the taint of the next pool only", taken_over).await;
    harness.pool_is_gone("a-older").await;
}

#[tokio::test]
async fn a_pool_deleted_while_no_operator_runs_is_cleaned_up_by_the_next_one() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2019("win")).await;
    let ignored = harness.join_node(SimulatedNode::server_2019("ignored")).await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    operator.stop().await;
    harness.edit_node(ignored.name(), json!({"metadata": {"annotations": {"winpool.dev/ignore": "true"}}})).await;
    harness.delete_pool("default").await;
    assert!(harness.pools().get("default").await.unwrap().metadata.deletion_timestamp.is_some(), "it waits");

    let _operator = harness.operator().await;
    harness.pool_is_gone("default").await;
    assert!(!has_taint(&harness.node("win").await, OS_WINDOWS));
    assert!(has_taint(&harness.node("ignored").await, OS_WINDOWS), "an ignored node keeps its marks");
}

#[tokio::test]
async fn a_node_that_its_pool_no_longer_selects_is_released() {
    let harness = Harness::new().await;
    for name in ["a", "b"] {
        harness.join_node(SimulatedNode::server_2019(name).label("team", name)).await;
    }
    let before = face(&harness.node("b").await);
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    harness.apply_pool(json!({"nodeSelector": {"team": "a"}})).await;
    let node = harness.node_until("b", "is released", |node| label(node, POOL).is_none()).await;
    assert_eq!(face(&node), before);
    assert!(has_taint(&harness.node("a").await, OS_WINDOWS));
}

#[tokio::test]
async fn a_taint_that_a_kubelet_forged_into_the_annotation_is_never_removed() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2019("win").taint("precious", "x", "NoSchedule")).await;
    let forged = r#"{"pool":"default","taints":["precious=x:NoSchedule","node.kubernetes.io/not-ready:NoSchedule"]}"#;
    harness
        .edit_node("win", json!({"metadata": {"annotations": {APPLIED: forged}, "labels": {POOL: "default"}}}))
        .await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let node = harness.node("win").await;
    assert_eq!(taints(&node), ["precious=x:NoSchedule", "node.kubernetes.io/not-ready:NoSchedule"]);
    assert_eq!(node.annotations().get(APPLIED), None);
}

#[tokio::test]
async fn a_class_removed_from_the_spec_is_deleted_unless_pods_use_it() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2019("win")).await;
    let _operator = harness.operator().await;
    harness
        .apply_until_ready(
            json!({"runtimeClasses": [{"name": "unused", "version": "2019"}, {"name": "used", "version": "2019"}]}),
        )
        .await;
    run_pod(&harness, "app", "win", "used").await;
    harness.apply_pool(json!({})).await;
    let classes = harness.classes();
    let gone = async || Ok(classes.get_opt("unused").await?.is_none().then_some(()));
    wait_for("the unused class is gone", LIMIT, gone).await.unwrap();
    let used = harness.class_until("used", "is released", |class| class.labels().get(POOL).is_none()).await;
    assert_eq!(used.labels().get("app.kubernetes.io/managed-by"), None);
    assert!(harness.classes().get_opt("windows-2019").await.unwrap().is_some());
}

#[tokio::test]
async fn a_deletion_completes_without_permission_to_list_pods() {
    let harness = Harness::new().await;
    harness.account.take(("list", "", "pods")).await;
    harness.join_node(SimulatedNode::server_2019("win")).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.pool_until("default", "holds the taint", is_held).await;
    let (_, _, message) = condition_text(&pool, "TaintsApplied").unwrap();
    assert!(message.contains("pods is forbidden") && message.contains("taintPolicy: Always"), "{message}");

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let class = harness.classes().get("windows-2019").await.unwrap();
    assert_eq!(class.labels().get(POOL), None);
}
