//! Writers that revert winpool's changes.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, condition, label, scheduling};
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::program::program;

/// The output of `winpool status -o json`.
async fn status(harness: &Harness, program: &Path) -> Value {
    let mut command = Command::new(program);
    command.args(["status", "-o", "json"]).env("KUBECONFIG", harness.server.kubeconfig());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    // This operator runs in the test, and not as a Deployment, which counts as a problem of the installation.
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_writer_that_keeps_reverting_a_node_is_named_and_winpool_backs_off() {
    let program = program("winpool").await.unwrap();
    let (harness, audit) = Harness::audited().await;
    harness.join_node(SimulatedNode::server_2022("aks").label("kubernetes.azure.com/agentpool", "win")).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;

    let undo = json!([{"op": "replace", "path": "/spec/taints", "value": [
        {"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"},
    ]}]);
    let undo: Patch<()> = Patch::Json(serde_json::from_value(undo).unwrap());
    let parameters = PatchParams { field_manager: Some("node-pool-api".to_owned()), ..PatchParams::default() };
    for _ in 0..3 {
        harness.is_tainted("aks").await;
        harness.nodes().patch("aks", &parameters, &undo).await.unwrap();
    }
    let pool = harness.nodes_until("default", "says that the node is contested", |nodes| nodes.contested == 1).await;
    assert_eq!(condition(&pool, "Ready"), Some("False"));
    let problem = &pool.status.as_ref().unwrap().problems[0];
    assert_eq!((problem.reason.as_str(), problem.object.to_string().as_str()), ("Contested", "Node aks"));
    assert!(problem.message.contains("node-pool-api") && problem.message.contains("AKS node pool"), "{problem:?}");
    let patches = audit.of("patch", "nodes").len();
    assert_eq!(patches, 3, "three writes are enough");
    let shown = status(&harness, &program).await;
    assert_eq!(shown["nodesByState"], json!({"contested": 1}));
}

#[tokio::test]
async fn a_node_that_is_moved_from_pool_to_pool_is_not_contested() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::server_2022("win").label("team", "a")).await;
    let _operator = harness.operator().await;
    for team in ["a", "b"] {
        let spec = json!({"nodeSelector": {"team": team}, "runtimeClassNameFormat": "{pool}-{version}"});
        harness.apply_pool_named(team, spec).await;
        harness.ready(team).await;
    }
    for team in ["b", "a", "b", "a", "b", "a", "b", "a"] {
        harness.node_until("win", "is marked", |node| label(node, POOL).is_some_and(|pool| pool != team)).await;
        harness.edit_node("win", json!({"metadata": {"labels": {"team": team}}})).await;
        harness.node_until("win", "is moved", |node| label(node, POOL) == Some(team)).await;
    }
    let events: Api<Event> = Api::namespaced(harness.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    let contested: Vec<_> = events.iter().filter(|event| event.reason.as_deref() == Some("Contested")).collect();
    assert!(contested.is_empty(), "{contested:#?}");
}

#[tokio::test]
async fn a_writer_that_keeps_reverting_a_class_is_named_and_winpool_backs_off() {
    let program = program("winpool").await.unwrap();
    let (harness, audit) = Harness::audited().await;
    harness.join("win").await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;

    let undo = Patch::Merge(json!({"scheduling": {"nodeSelector": {BUILD: "10.0.17763"}}}));
    let parameters = PatchParams { field_manager: Some("gitops".to_owned()), ..PatchParams::default() };
    for _ in 0..3 {
        let right = |class: &RuntimeClass| scheduling(class)["nodeSelector"][BUILD] == "10.0.20348";
        harness.class_until("windows-2022", "is right", right).await;
        harness.classes().patch("windows-2022", &parameters, &undo).await.unwrap();
    }
    let contested = |pool: &WindowsPool| condition(pool, "Ready") == Some("False");
    let pool = harness.pool_until("default", "is not Ready", contested).await;
    let status = pool.status.unwrap();
    let problem = &status.problems[0];
    assert_eq!(
        (problem.reason.as_str(), problem.object.to_string().as_str()),
        ("Contested", "RuntimeClass windows-2022")
    );
    assert!(problem.message.contains("gitops"), "{problem:?}");
    let writes = (audit.of("create", "runtimeclasses").len(), audit.of("patch", "runtimeclasses").len());
    assert_eq!(writes, (1, 2), "three writes are enough");
    assert_eq!(self::status(&harness, &program).await["runtimeClasses"][0]["state"], "Contested");
}
