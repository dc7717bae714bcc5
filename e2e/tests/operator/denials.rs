//! Writes that a policy or a missing permission refuses: winpool does the rest, reports the refusal, and does not repeat
//! the request all the time.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::account::Right;
use winpool_e2e::harness::objects::{BUILD, NOT_READY, condition, label, taint, taints};
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL, merge_status};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::kubelet::Kubelet;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::audit::{AuditLog, USER};

const PATCH_NODES: Right<'_> = ("patch", "", "nodes");

#[tokio::test]
async fn a_refused_taint_delays_nothing_else_and_is_not_sent_again() {
    let (harness, log) = Harness::audited().await;
    // With a reason the response is 403, without one 422.
    for (node, reason) in [("forbidden", json!("Forbidden")), ("refused", Value::Null)] {
        join(&harness, node).await;
        let expression =
            format!("object.metadata.name != '{node}' || !object.spec.?taints.orValue([]).exists(t, t.key == 'os')");
        let validation =
            json!({"expression": expression, "message": format!("taints of {node} are not yours"), "reason": reason});
        deny(&harness.client, node, &json!({"": ["nodes"]}), "UPDATE", validation).await;
        let tainted = json!({"spec": {"taints": [taint("os:NoSchedule")]}});
        until_denied(node, async || try_node(&harness.client, node, &tainted).await.err()).await;
    }
    join(&harness, "free").await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.nodes_until("default", "has its blocked nodes", |nodes| nodes.blocked == 2).await;

    for name in ["forbidden", "refused"] {
        let node = harness.node(name).await;
        assert_eq!(label(&node, BUILD), Some("10.0.20348"), "{name}");
        assert_eq!(taints(&node), [NOT_READY], "{name}");
        assert_eq!((label(&node, POOL), node.annotations().get(APPLIED)), (None, None), "nothing to take off later");
        let problem = problem(&pool, &format!("Node {name}"));
        assert!(problem.contains(&format!("taints of {name} are not yours")), "{problem}");
        let event = event_about(&harness, &node).await;
        assert!(event.contains(&format!("taints of {name} are not yours")), "{event}");
    }
    let pool = harness.ready("default").await;
    assert_eq!(condition(&pool, "NodesLabeled"), Some("True"));
    assert_eq!(condition(&pool, "TaintsApplied"), Some("False"));
    assert_eq!(taints(&harness.node("free").await), [NOT_READY, OS_WINDOWS]);

    // The whole patch, the label alone, the rest.
    let sent = [patches(&log, "forbidden"), patches(&log, "refused")];
    assert_eq!(sent, [[403, 200, 403], [422, 200, 422]]);
    busy_time(&harness, &["forbidden", "refused"]).await;
    assert_eq!([patches(&log, "forbidden"), patches(&log, "refused")], sent);
}

#[tokio::test]
async fn a_missing_permission_is_named_until_it_is_granted() {
    let (harness, log) = Harness::audited().await;
    join(&harness, "win").await;
    harness.account.take(PATCH_NODES).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.nodes_until("default", "has its blocked node", |nodes| nodes.blocked == 1).await;
    let message = problem(&pool, "Node win");
    assert!(message.contains(&format!(r#"User "{USER}" cannot patch resource "nodes""#)), "{message}");
    let class = harness.classes().get("windows-2022").await.unwrap();
    assert_eq!(class.labels()[POOL], "default", "classes are written all the same");
    busy_time(&harness, &["win"]).await;
    assert_eq!(patches(&log, "win"), [403, 403, 403]);

    join(&harness, "second").await;
    let pool = harness.nodes_until("default", "has two blocked nodes", |nodes| nodes.blocked == 2).await;
    let problems = pool.status.unwrap().problems;
    assert!(problems.len() == 1 && problems[0].message.starts_with("2 nodes: "), "{problems:?}");
    harness.account.give_back(PATCH_NODES).await;

    harness.apply_pool(json!({"taints": [taint("windows=true:NoSchedule")]})).await;
    for name in ["win", "second"] {
        harness.node_until(name, "is right", |node| taints(node) == [NOT_READY, "windows=true:NoSchedule"]).await;
    }
    let pool = harness.ready("default").await;
    let status = pool.status.unwrap();
    assert_eq!((status.nodes.blocked, status.problems), (0, Vec::new()));
}

/// Registers a node without the build label.
async fn join(harness: &Harness, name: &str) -> Kubelet {
    let node = SimulatedNode::server_2022(name).without_label(BUILD);
    harness.join_node(node).await
}

/// Sends heartbeats and changes of these nodes. Returns when the operator has seen all of them.
async fn busy_time(harness: &Harness, nodes: &[&str]) {
    for round in 0..3 {
        for name in nodes {
            let images = json!({"status": {"images": [{"names": [format!("example.com/image:{round}")]}]}});
            merge_status(&harness.nodes(), name, images).await;
            harness.edit_node(name, json!({"metadata": {"labels": {"example.com/round": round.to_string()}}})).await;
        }
    }
    harness.node_events_are_seen().await;
}

/// The message of the problem of this object, which must be a refusal.
fn problem(pool: &WindowsPool, object: &str) -> String {
    let mut problems = pool.status.iter().flat_map(|status| &status.problems);
    let problem =
        problems.find(|problem| problem.object.to_string() == object).unwrap_or_else(|| panic!("{:?}", pool.status));
    assert_eq!(problem.reason, "AdmissionDenied");
    problem.message.clone()
}

async fn event_about(harness: &Harness, node: &Node) -> String {
    let about = |event: &Event| event.regarding.as_ref().is_some_and(|about| about.uid == node.uid());
    let event = harness.event_until("is about the node", about).await;
    assert_eq!((event.type_.as_deref(), event.reason.as_deref()), (Some("Warning"), Some("AdmissionDenied")));
    event.note.unwrap()
}

fn patches(log: &AuditLog, node: &str) -> Vec<u64> {
    log.patches(node).into_iter().map(|request| request.code).collect()
}

/// Installs a policy that refuses requests which fail the validation. `resources` are plural names by API group.
pub(super) async fn deny(client: &Client, name: &str, resources: &Value, operation: &str, validation: Value) {
    let rule = |(group, resources): (&String, &Value)| json!({"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": resources});
    let rules: Vec<Value> = resources.as_object().unwrap().iter().map(rule).collect();
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"matchConstraints": {"resourceRules": rules}, "validations": [validation]},
    }))
    .unwrap();
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    }))
    .unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &policy).await.unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.unwrap();
}

pub(super) async fn until_denied(policy: &str, attempt: impl AsyncFn() -> Option<kube::Error>) {
    let marker = format!("ValidatingAdmissionPolicy '{policy}'");
    let denied = async || Ok(attempt().await.filter(|error| error.to_string().contains(&marker)).map(|_| ()));
    wait_for(&format!("policy {policy} is in force"), LIMIT, denied).await.unwrap();
}

/// Sends this merge patch of the node in a dry run.
async fn try_node(client: &Client, name: &str, patch: &Value) -> kube::Result<Node> {
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    Api::<Node>::all(client.clone()).patch(name, &dry_run, &Patch::Merge(patch)).await
}
