//! `runtimeClassHostMatch` changes to and fro while pods are created all the time, with a real scheduler.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{condition_text, label, node_of, problems, scheduling, unschedulable};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::nodes::kubelet::Kubelet;
use winpool_e2e::nodes::simulated::SimulatedNode;

use crate::denials::{deny, until_denied};

const CLASS: &str = "windows-2022";
const LABEL: &str = "runs.winpool.dev/10.0.20348";
/// The time between two pods.
const RATE: Duration = Duration::from_millis(100);

/// Creates a pod of the class again and again, and deletes it when it has a node. Returns the number of pods. Panics if
/// the scheduler ever finds no node for one of them.
async fn keep_creating(pods: Api<Pod>, stop: CancellationToken) -> usize {
    let (mut created, mut done) = (0, BTreeSet::new());
    let of_stream = ListParams::default().labels("app=stream");
    while !stop.is_cancelled() || done.len() < created {
        if !stop.is_cancelled() {
            let pod = json!({
                "metadata": {"name": format!("stream-{created}"), "labels": {"app": "stream"}},
                "spec": {"runtimeClassName": CLASS, "containers": [{"name": "c", "image": "servercore"}]},
            });
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
            created += 1;
        }
        for pod in pods.list(&of_stream).await.unwrap() {
            assert_eq!(unschedulable(&pod), None, "{:#}", json!(pod.spec));
            if node_of(&pod).is_some() && done.insert(pod.name_any()) {
                let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
            }
        }
        tokio::time::sleep(RATE).await;
    }
    created
}

fn by_label(class: &RuntimeClass) -> bool {
    scheduling(class)["nodeSelector"].get(LABEL).is_some()
}

async fn apply(harness: &Harness, host_match: &str) {
    harness.apply_pool(json!({"runtimeClassHostMatch": host_match})).await;
}

async fn labelled(harness: &Harness, node: &str) {
    harness.node_until(node, "has the label", |node| label(node, LABEL) == Some("true")).await;
}

async fn join(harness: &Harness, node: SimulatedNode) -> Kubelet {
    let kubelet = harness.join_node(node).await;
    harness.cluster().node_ready(kubelet.name()).await.unwrap();
    kubelet
}

fn refuses_label() -> Value {
    let label = format!("'{LABEL}' in object.metadata.labels");
    let expression = format!("object.metadata.name != 'refuses' || !({label})");
    json!({"expression": expression, "message": "no such labels here"})
}

#[tokio::test]
async fn no_pod_waits_while_the_hosts_of_its_class_change_to_and_fro() {
    let modern = |name| SimulatedNode::server_2025(name).container_runtime("containerd://1.7.19");
    let nodes = [SimulatedNode::server_2022("a"), SimulatedNode::server_2022("refuses"), modern("new")];
    let harness = Box::pin(Harness::with_nodes(nodes)).await;
    deny(&harness.client, "labels", &json!({"": ["nodes"]}), "UPDATE", refuses_label()).await;
    let refused = json!({"metadata": {"labels": {LABEL: "true"}}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let try_label = async || harness.nodes().patch("refuses", &dry_run, &Patch::Merge(&refused)).await.err();
    until_denied("labels", try_label).await;
    let _operator = Operator::impatient(harness.account.config.clone());
    harness.apply_until_ready(json!({})).await;
    let stop = CancellationToken::new();
    let stream = tokio::spawn(keep_creating(harness.pods(), stop.clone()));

    // A node that refuses the label holds the change.
    apply(&harness, "Compatible").await;
    labelled(&harness, "a").await;
    labelled(&harness, "new").await;
    let is_refused = |pool: &WindowsPool| {
        condition_text(pool, "NodesLabeled").is_some_and(|(status, reason, _)| {
            status == "False" && reason == "AdmissionDenied" && problems(pool).contains("WaitingForLabels")
        })
    };
    harness.pool_until("default", "says that the label is refused", is_refused).await;
    assert!(!by_label(&harness.classes().get(CLASS).await.unwrap()));
    let late = join(&harness, SimulatedNode::server_2022("late")).await;
    labelled(&harness, "late").await;

    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(harness.client.clone());
    bindings.delete("labels", &DeleteParams::default()).await.unwrap();
    harness.class_until(CLASS, "selects the label", by_label).await;
    assert!(label(&harness.node("refuses").await, LABEL).is_some());
    late.leave().await.unwrap();
    join(&harness, SimulatedNode::server_2022("later")).await;
    join(&harness, modern("newer")).await;

    for _ in 0..2 {
        apply(&harness, "Exact").await;
        harness.class_until(CLASS, "selects the build", |class| !by_label(class)).await;
        apply(&harness, "Compatible").await;
        harness.class_until(CLASS, "selects the label", by_label).await;
    }
    labelled(&harness, "newer").await;
    let pool = harness.ready("default").await;
    let (_, _, message) = condition_text(&pool, "RuntimeClassesApplied").unwrap();
    assert!(message.contains("by capability label: windows-2022"), "{message}");
    stop.cancel();
    let pods = stream.await.unwrap();
    println!("{pods} pods, and none waited");
    assert!(pods > 5, "{pods} pods");
}
