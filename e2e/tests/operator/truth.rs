//! Status is true, winpool tells repairs from conflicts, and it deletes a class only when it may.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use winpool_e2e::prelude::*;

use crate::denials::{deny, until_denied};

/// The prefix of capability labels, which only winpool sets.
const CAPABILITY: &str = "runs.winpool.dev/";

async fn with_a_node() -> Harness {
    let harness = Harness::new().await;
    harness.join("win").await;
    harness
}

#[tokio::test]
async fn a_pool_that_selects_no_node_counts_the_windows_nodes_of_the_cluster() {
    let harness = with_a_node().await;
    harness.join_node(SimulatedNode::linux().name("linux")).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({"nodeSelector": {"none": "such"}})).await;
    let says = |text: &'static str| {
        move |pool: &WindowsPool| {
            let (_, reason, message) = condition_text(pool, "Ready").unwrap_or_default();
            reason == "NoNodesSelected" && message.contains(text)
        }
    };
    harness.pool_until("default", "counts 1 Windows node", says("1 Windows node")).await;
    harness.join_node(SimulatedNode::server_2019("other")).await;
    harness.pool_until("default", "counts 2 Windows nodes", says("2 Windows nodes")).await;
}

#[tokio::test]
async fn a_node_that_reports_another_system_than_its_label_is_blocked_and_makes_no_class() {
    let harness = with_a_node().await;
    let nodes = harness.nodes();
    let reports = async |system: &str| {
        let report = json!({"status": {"nodeInfo": {"operatingSystem": system}}});
        let _: Node = merge_status(&nodes, "claims", report).await;
    };
    harness.join_node(SimulatedNode::server_2019("claims")).await;
    reports("linux").await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.nodes_until("default", "counts both nodes", |n| [n.converged, n.blocked] == [1, 1]).await;
    let problem = &pool.status.as_ref().unwrap().problems[0];
    assert_eq!((problem.reason.as_str(), problem.object.name.as_str()), ("OperatingSystemDiffers", "claims"));
    let (_, _, message) = condition_text(&pool, "Ready").unwrap();
    assert!(message.starts_with("1 of 2 nodes converged"), "{message}");
    assert!(harness.classes().get_opt("windows-2019").await.unwrap().is_none());
    assert_eq!(label(&harness.node("claims").await, POOL), None);

    reports("windows").await;
    let pool = harness.nodes_until("default", "has both nodes", |nodes| nodes.converged == 2).await;
    assert!(pool.status.unwrap().problems.is_empty());
    harness.class_until("windows-2019", "is there", |_| true).await;
}

#[tokio::test]
async fn ignored_nodes_and_a_policy_without_taints_are_said_as_they_are() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2022("ignored").annotation("winpool.dev/ignore", "true")).await;
    let _operator = harness.operator().await;
    let message = |pool: &WindowsPool, name: &str| condition_text(pool, name).unwrap_or_default().2;
    let pool = harness.apply_until_ready(json!({})).await;
    for name in ["NodesLabeled", "TaintsApplied"] {
        assert_eq!(message(&pool, name), "winpool ignores 1 node; the pool selects no other node");
    }
    harness.join("win").await;
    harness.apply_pool(json!({"taintPolicy": "Never"})).await;
    let pool = harness.nodes_until("default", "has its node", |nodes| nodes.converged == 1).await;
    assert_eq!(message(&pool, "Ready"), "1 of 2 nodes converged; winpool ignores 1 node");
    assert_eq!(message(&pool, "TaintsApplied"), "taintPolicy is Never: winpool adds no taint");
}

#[tokio::test]
async fn a_status_that_another_writer_replaces_is_written_again() {
    let harness = with_a_node().await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;
    let is_right = |pool: &WindowsPool| {
        let status = pool.status.clone().unwrap_or_default();
        status.nodes.converged == 1 && status.taints.iter().filter(|taint| taint.at_registration).count() == 1
    };
    harness.pool_until("default", "has its status", is_right).await;
    for change in [
        json!({"conditions": [], "nodes": null}),
        json!({"taints": []}),
        json!({"conditions": [], "taints": [], "nodes": null}),
    ] {
        let _: WindowsPool = merge_status(&harness.pools(), "default", json!({"status": change})).await;
        let is_back = |pool: &WindowsPool| is_right(pool) && condition(pool, "Ready") == Some("True");
        harness.pool_until("default", "has its status again", is_back).await;
    }
}

/// Changes the node `win` again and again, and waits until winpool reports the conflict instead of another repair.
async fn is_reported_as_a_conflict(change: impl Fn(usize) -> Value) {
    const ROUNDS: usize = 10;
    let harness = with_a_node().await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    let is_repaired = |node: &Node| {
        let invented = node.labels().keys().any(|key| key.starts_with(CAPABILITY));
        label(node, BUILD) == Some("10.0.20348") && has_taint(node, OS_WINDOWS) && !invented
    };
    let (nodes, pools) = (harness.nodes(), harness.pools());
    for round in 0..ROUNDS {
        harness.edit_node("win", change(round)).await;
        let reported = wait_for("the change is undone or the conflict is reported", LIMIT, async || {
            let pool = pools.get("default").await?;
            if pool.status.as_ref().is_some_and(|status| status.nodes.contested == 1) {
                return Ok(Some(Some(pool)));
            }
            Ok(is_repaired(&nodes.get("win").await?).then_some(None))
        });
        if let Some(pool) = reported.await.unwrap() {
            assert!(problems(&pool).contains("win"), "{}", problems(&pool));
            operator.stop().await;
            return;
        }
    }
    panic!("{ROUNDS} changes in a row were undone, and no conflict was reported");
}

#[tokio::test]
async fn ever_new_labels_from_a_kubelet_are_reported_as_a_conflict() {
    let invent = |round| json!({"metadata": {"labels": {format!("{CAPABILITY}invented-{round}"): "true"}}});
    Box::pin(is_reported_as_a_conflict(invent)).await;
}

#[tokio::test]
async fn different_ways_to_undo_one_change_are_reported_as_a_conflict() {
    let undo = |round| match round % 2 {
        0 => json!({"spec": {"taints": null}}),
        _ => json!({"metadata": {"labels": {BUILD: format!("10.0.{round}")}}}),
    };
    Box::pin(is_reported_as_a_conflict(undo)).await;
}

#[tokio::test]
async fn a_kubelet_that_toggles_what_it_reports_causes_three_writes_of_its_node_at_most() {
    let (harness, log) = Harness::audited().await;
    harness.join("win").await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({"runtimeClassHostMatch": "Compatible"})).await;
    harness.is_tainted("win").await;
    let patches = || log.of("patch", "nodes").iter().filter(|request| request.name == "win").count();
    let (before, nodes) = (patches(), harness.nodes());
    let report = async |version: &str| {
        let report = json!({"status": {"nodeInfo": {"kernelVersion": version, "containerRuntimeVersion": "containerd://2.0.4"}}});
        let _: Node = merge_status(&nodes, "win", report).await;
    };
    for _ in 0..50 {
        report("10.0.26100.1").await;
        report("10.0.20348.2655").await;
    }
    report("10.0.26100.1").await;
    let is_of_2025 = |node: &Node| node.labels().get(BUILD).is_some_and(|build| build == "10.0.26100");
    harness.node_until("win", "has the label of what its kubelet reported last", is_of_2025).await;
    let writes = patches() - before;
    assert!(writes <= 3, "{writes} writes");
}

/// Changes the handler of a class while the API server refuses the new one, and checks that the class stays. `refuse`
/// installs what refuses it and waits until that is in force.
async fn keeps_its_class(refuse: impl AsyncFn(&Harness)) -> Harness {
    let harness = with_a_node().await;
    let declared = |handler: &str| json!({"runtimeClasses": [{"name": "mine", "version": "2022", "handler": handler}]});
    let _operator = harness.operator().await;
    harness.apply_until_ready(declared("first")).await;
    let first = harness.classes().get("mine").await.unwrap().uid();
    refuse(&harness).await;
    harness.apply_pool(declared("second")).await;
    wait_for("the pool says that its class is refused", LIMIT, async || {
        let class = harness.classes().get_opt("mine").await?;
        assert_eq!(class.and_then(|class| class.uid()), first, "the class was deleted before the new one is allowed");
        let pool = harness.pools().get("default").await?;
        let current = pool.status.as_ref().and_then(|s| s.observed_generation) == pool.metadata.generation;
        let refused = condition(&pool, "RuntimeClassesApplied") == Some("False") && problems(&pool).contains("mine");
        Ok((current && refused).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(harness.classes().get("mine").await.unwrap().uid(), first);
    harness
}

/// The error that the API server gives to a client that creates a class with the handler `second`.
async fn creation_of_second(harness: &Harness) -> Option<kube::Error> {
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let class = serde_json::from_value(json!({"metadata": {"name": "probe"}, "handler": "second"})).unwrap();
    harness.classes().create(&dry_run, &class).await.err()
}

#[tokio::test]
async fn a_class_stays_while_a_policy_refuses_its_new_handler() {
    keeps_its_class(async |harness| {
        let validation = json!({"expression": "object.handler != 'second'", "message": "no second handler"});
        let resources = json!({"node.k8s.io": ["runtimeclasses"]});
        deny(&harness.client, "handlers", &resources, "CREATE", validation).await;
        until_denied("handlers", async || creation_of_second(harness).await).await;
    })
    .await;
}

#[tokio::test]
async fn a_class_stays_while_a_webhook_for_its_new_handler_is_broken() {
    let harness = keeps_its_class(async |harness| {
        let rule = json!({
            "apiGroups": ["node.k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["runtimeclasses"],
        });
        let webhook = json!({
            "name": "broken.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": [rule],
            "matchConditions": [{"name": "second", "expression": "object.handler == 'second'"}],
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 2,
        });
        let _: ValidatingWebhookConfiguration =
            harness.create(json!({"metadata": {"name": "broken"}, "webhooks": [webhook]})).await;
        let is_broken =
            async || Ok(creation_of_second(harness).await.filter(|e| e.to_string().contains("webhook")).map(|_| ()));
        wait_for("the webhook is in force", LIMIT, is_broken).await.unwrap();
    })
    .await;
    // An API server with webhooks is not lent again.
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(harness.client.clone());
    webhooks.delete("broken", &DeleteParams::default()).await.unwrap();
    let is_gone = async || Ok(creation_of_second(&harness).await.is_none().then_some(()));
    wait_for("the webhook is out of force", LIMIT, is_gone).await.unwrap();
}

/// The state of the class `windows-2022` in the status of the pool.
fn state(pool: &WindowsPool) -> Option<ClassState> {
    let mut classes = pool.status.iter().flat_map(|status| &status.runtime_classes);
    classes.find(|class| class.name == "windows-2022").map(|class| class.state)
}

#[tokio::test]
async fn a_foreign_class_that_selects_none_of_the_pools_nodes_is_a_conflict() {
    let harness = with_a_node().await;
    let toleration = json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
    let mut class = windows_class("windows-2022", &json!({BUILD: "10.0.20348", "team": "another"}));
    class["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
    class["scheduling"]["tolerations"] = json!([toleration]);
    let _: RuntimeClass = harness.create(class).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.pool_until("default", "judges the class", |pool| state(pool).is_some()).await;
    assert_eq!(state(&pool), Some(ClassState::Conflict));
    assert_eq!(condition(&pool, "RuntimeClassesApplied"), Some("False"));
}

#[tokio::test]
async fn a_pool_that_selects_an_architecture_gets_classes_of_that_architecture() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2025("arm").architecture("arm64")).await;
    let _operator = harness.operator().await;
    let declared = json!([{"name": "mine", "version": "2025"}]);
    harness.apply_pool(json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}, "runtimeClasses": declared})).await;
    for name in ["windows-2025", "mine"] {
        let class = harness.class_until(name, "is there", |_| true).await;
        assert_eq!(scheduling(&class)["nodeSelector"]["kubernetes.io/arch"], "arm64", "{name}");
    }
}
