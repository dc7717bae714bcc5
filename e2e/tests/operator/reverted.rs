//! Admission that accepts winpool's writes and reverts them, so that the API server answers 200 and nothing changes.

use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{NOT_READY, condition, has_taint, problems, taints};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, schema};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::needs;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

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

/// Removes this label or annotation if the object has it.
fn without(map: &str, key: &str) -> String {
    let path = format!("/metadata/{map}/{}", key.replace('/', "~1"));
    let has = format!("object.metadata.?{map}['{key}'].hasValue()");
    format!(" + ({has} ? [JSONPatch{{op: 'remove', path: '{path}'}}] : [])")
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
