//! A kubelet that starts while a pod on its node selects a capability label.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::{BUILD, label, scheduling};
use winpool_e2e::harness::operator::{Operator, options};
use winpool_e2e::wine::windows::{WINDOWS_2022, WINDOWS_2025};

use super::stage::{
    event, kernel_version, machine, node_until, phase, pod_until, ready, run, runs, stage, stage_with_pool,
};

const LABEL: &str = "runs.winpool.dev/10.0.20348";

fn spec(host_match: &str) -> Value {
    let classes = json!([{"name": "any", "version": "2022", "hostMatch": host_match}]);
    json!({"runtimeClassDiscovery": "Disabled", "runtimeClasses": classes})
}

/// Catches winpool removing a label that a running pod selects: the kubelet ends the pod at its next start.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_pod_outlives_a_restart_of_its_kubelet_after_its_class_and_its_pool_are_gone() {
    let harness = Box::pin(stage()).await;
    let mut installed = options();
    installed.installation = Some("winpool".to_owned());
    let operator = Operator::start_with(harness.account.config.clone(), installed);
    harness.apply_pool(spec("Compatible")).await;
    let mut machine = machine(&harness, "win", WINDOWS_2022, &[]).await;
    ready(&harness, &machine).await;
    harness.ready("default").await;
    run(&harness, "app", "example.com/app:1", json!({"runtimeClassName": "any"})).await;
    let before = runs(&harness, "app").await;

    harness.apply_pool(spec("Exact")).await;
    let by_build = |class: &RuntimeClass| scheduling(class)["nodeSelector"].get(BUILD).is_some();
    harness.class_until("any", "selects the build again", by_build).await;
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    harness.classes().delete("any", &DeleteParams::default()).await.unwrap();
    harness.account.uninstall().await;
    operator.ended().await;
    machine.start_kubelet(&[]).unwrap();
    // The kubelet has admitted the pods on its node before it runs another one.
    run(&harness, "later", "example.com/app:1", json!({"nodeSelector": {LABEL: "true"}})).await;
    runs(&harness, "later").await;
    let after = runs(&harness, "app").await;
    assert_eq!(after.uid(), before.uid());

    // Without the label the same start ends the pod.
    harness.edit_node("win", json!({"metadata": {"labels": {LABEL: null}}})).await;
    machine.start_kubelet(&[]).unwrap();
    let (reason, _) = event(&harness, "app", "didn't match Pod's node affinity/selector").await;
    assert_eq!(reason, "NodeAffinity");
    pod_until(&harness, "app", "is ended", |pod| phase(pod) != "Running").await;
}

/// Catches an upgrade in place that ends pods although the new Windows runs their images: their class has to select a
/// label that stays on the node.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_pod_of_a_compatible_class_outlives_an_upgrade_in_place() {
    let (harness, _operator, mut machine) = stage_with_pool(WINDOWS_2022).await;
    harness.apply_pool(json!({"runtimeClassHostMatch": "Compatible"})).await;
    let by_label = |class: &RuntimeClass| scheduling(class)["nodeSelector"].get(LABEL).is_some();
    harness.class_until("windows-2022", "selects the label", by_label).await;
    run(&harness, "app", "example.com/app:1", json!({"runtimeClassName": "windows-2022"})).await;
    let before = runs(&harness, "app").await;

    machine.upgrade(WINDOWS_2025, &[]).await.unwrap();
    let upgraded = |node: &Node| kernel_version(node) == Some(&*WINDOWS_2025.kernel_version());
    let node = node_until(&harness, &machine, "reports its new Windows", upgraded).await;
    assert_eq!(label(&node, LABEL), Some("true"));
    run(&harness, "later", "example.com/app:1", json!({"runtimeClassName": "windows-2022"})).await;
    runs(&harness, "later").await;
    assert_eq!(runs(&harness, "app").await.uid(), before.uid());
}
