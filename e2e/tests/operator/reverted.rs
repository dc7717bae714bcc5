//! Admission that accepts winpool's writes and reverts them, so that the API server answers 200 and nothing changes.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, NOT_READY, condition, has_taint, label, problems, taint, taints};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, schema};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

const WORDS: &str = "a mutating webhook or admission policy reverts it";
const VERSION: &str = "admissionregistration.k8s.io/v1";

/// A policy that changes updates of these resources. `condition` and `mutation` are CEL.
async fn changes_updates(harness: &Harness, [group, resource]: [&str; 2], condition: &str, mutation: &str) {
    let rule = json!({"apiGroups": [group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": [resource]});
    let policy = json!({
        "apiVersion": VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": "reverts"},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "is-winpools", "expression": condition}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": mutation}}],
        },
    });
    harness.apply(policy).await;
    let binding = json!({
        "apiVersion": VERSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "reverts"},
        "spec": {"policyName": "reverts"},
    });
    harness.apply(binding).await;
}

/// Waits until the policy is in force, or no longer. `reverts` tells if a dry run is reverted.
async fn until_in_force(is_in_force: bool, reverts: impl AsyncFn() -> kube::Result<bool>) {
    let what = if is_in_force { "the policy is in force" } else { "the policy is gone" };
    let as_expected = async || match reverts().await {
        Ok(reverts) => Ok((reverts == is_in_force).then_some(())),
        // A policy can change objects of a new definition some time after the API server serves them.
        Err(kube::Error::Api(status)) if status.code == 503 => Ok(None),
        Err(error) => Err(error.into()),
    };
    wait_for(what, LIMIT, as_expected).await.unwrap();
}

/// Removes the policy.
async fn remove_policy(harness: &Harness) {
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding");
    let bindings: Api<DynamicObject> = Api::all_with(harness.client.clone(), &ApiResource::from_gvk(&kind));
    bindings.delete("reverts", &DeleteParams::default()).await.unwrap();
}

fn dry_run() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

const HAS_TAINT: &str = "spec.?taints.orValue([]).exists(t, t.key == 'os')";
/// The taint is the last one.
const WITHOUT_TAINT: &str = "[JSONPatch{op: 'remove', path: '/spec/taints/' + string(size(object.spec.taints) - 1)}]";

/// Removes this label or annotation if the object has it.
fn without(map: &str, key: &str) -> String {
    let path = format!("/metadata/{map}/{}", key.replace('/', "~1"));
    let has = format!("object.metadata.?{map}['{key}'].hasValue()");
    format!(" + ({has} ? [JSONPatch{{op: 'remove', path: '{path}'}}] : [])")
}

/// A node without the build label, and a policy that reverts its taint.
async fn taint_is_reverted(harness: &Harness) {
    let node = SimulatedNode::server_2022("win").without_label(BUILD);
    harness.join_node(node).await;
    let condition = format!("object.{HAS_TAINT} && !oldObject.{HAS_TAINT}");
    changes_updates(harness, ["", "nodes"], &condition, WITHOUT_TAINT).await;
    until_in_force(true, async || is_taint_reverted(harness).await).await;
}

async fn is_taint_reverted(harness: &Harness) -> kube::Result<bool> {
    let tainted = Patch::Merge(json!({"spec": {"taints": [taint("os:NoSchedule")]}}));
    let node = harness.nodes().patch("win", &dry_run(), &tainted).await?;
    Ok(!has_taint(&node, "os:NoSchedule"))
}

#[tokio::test]
async fn a_taint_that_admission_reverts_blocks_the_node_and_is_not_sent_again() {
    needs!(MUTATING_ADMISSION_POLICY);
    let (harness, log) = Harness::audited().await;
    taint_is_reverted(&harness).await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.nodes_until("default", "has its blocked node", |nodes| nodes.blocked == 1).await;
    let problem = &pool.status.as_ref().unwrap().problems[0];
    assert_eq!((problem.reason.as_str(), problem.object.to_string().as_str()), ("AdmissionDenied", "Node win"));
    assert!(problem.message.contains(WORDS), "{problem:?}");
    let node = harness.node("win").await;
    assert_eq!((label(&node, BUILD), taints(&node)), (Some("10.0.20348"), vec![NOT_READY.to_owned()]));
    let says_so = |event: &Event| {
        let is_about_it = event.regarding.as_ref().is_some_and(|about| about.uid == node.uid());
        is_about_it && event.note.as_ref().is_some_and(|note| note.contains(WORDS))
    };
    harness.event_until("says what reverts the taint", says_so).await;

    let sent = log.patches("win").len();
    for round in 0..3 {
        harness.edit_node("win", json!({"metadata": {"labels": {"example.com/round": round.to_string()}}})).await;
    }
    harness.node_events_are_seen().await;
    assert_eq!(log.patches("win").len(), sent);
    assert!(sent <= 5, "{sent} patches");
    node_is_right_without_the_policy(&harness, operator).await;
}

/// Removes the policy, and replaces the operator, which makes a pause.
async fn node_is_right_without_the_policy(harness: &Harness, operator: Operator) {
    operator.stop().await;
    remove_policy(harness).await;
    until_in_force(false, async || is_taint_reverted(harness).await).await;
    let _operator = harness.operator().await;
    harness.node_until("win", "is right", |node| taints(node) == [NOT_READY, OS_WINDOWS]).await;
    harness.ready("default").await;
}

/// The annotation is winpool's record of the taints that it added.
#[tokio::test]
async fn a_taint_whose_record_admission_removes_is_named_and_leaves_with_the_pool() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    harness.join("win").await;
    let has = format!("object.metadata.?annotations['{APPLIED}'].hasValue()");
    let mutation = format!("[]{}", without("annotations", APPLIED));
    changes_updates(&harness, ["", "nodes"], &has, &mutation).await;
    let recorded = Patch::Merge(json!({"metadata": {"annotations": {APPLIED: "{}"}}}));
    let strips = async || {
        let node = harness.nodes().patch("win", &dry_run(), &recorded).await?;
        Ok(!node.annotations().contains_key(APPLIED))
    };
    until_in_force(true, &strips).await;
    let _operator = Operator::impatient(harness.account.config.clone());
    harness.apply_pool(json!({})).await;
    let words = "removes the annotation winpool.dev/applied";
    let says_so = |pool: &WindowsPool| problems(pool).contains("RecordRemoved") && problems(pool).contains(words);
    let pool = harness.pool_until("default", "names the refusal", says_so).await;
    assert_eq!(condition(&pool, "Ready"), Some("False"), "{}", problems(&pool));
    assert!(has_taint(&harness.node("win").await, OS_WINDOWS));

    remove_policy(&harness).await;
    harness.ready("default").await;
    let record = harness.node("win").await.annotations()[APPLIED].clone();
    assert!(record.contains(OS_WINDOWS), "{record}");
    // The same by hand.
    for other in [Value::Null, r#"{"pool":"default","taints":[]}"#.into(), r#"{"pool":"other"}"#.into()] {
        harness.edit_node("win", json!({"metadata": {"annotations": {APPLIED: other}}})).await;
        let is_back = |node: &Node| node.annotations().get(APPLIED) == Some(&record);
        harness.node_until("win", "has its record again", is_back).await;
    }
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    assert_eq!(taints(&harness.node("win").await), [NOT_READY]);
}

#[tokio::test]
async fn a_custom_resource_definition_that_is_older_than_winpool_is_named() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let older = |schema: &mut Value| {
        schema::without_rules(schema);
        schema["properties"]["status"]["properties"].as_object_mut().unwrap().remove("taints");
    };
    schema::with_schema(&harness.client, &json!({"taints": []}), true, older).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let says_so = |pool: &WindowsPool| problems(pool).contains("StatusNotStored");
    let pool = harness.pool_until("default", "names the CustomResourceDefinition", says_so).await;
    assert_eq!(condition(&pool, "Ready"), Some("False"));
    assert_eq!(taints(&harness.node("win").await), [NOT_READY]);
    schema::with_schema(&harness.client, &json!({"taints": []}), false, |_| {}).await;
    wait_for("the pool is ready with the newer CustomResourceDefinition", 3 * LIMIT, async || {
        let pool = harness.pools().get("default").await?;
        Ok((condition(&pool, "Ready") == Some("True")).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(taints(&harness.node("win").await), [NOT_READY, OS_WINDOWS]);
}
