//! Changes of pods with a stolen token. `winpool-confine-pods` allows only those that the operator makes.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Validation,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{condition_text, has_taint};
use winpool_e2e::harness::operator::{Operator, alone};
use winpool_e2e::harness::{Harness, OS_WINDOWS, merge_status};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::scene::manifests;
use winpool_operator::Options;

use super::{Attempt, assert_all, assert_confined, patch, refusal, refusal_of};

const POLICY: &str = "winpool-confine-pods";

const WAITING: &str = "/api/v1/namespaces/default/pods/waiting";
const GATED: &str = "/api/v1/namespaces/default/pods/gated";
const RUNNING: &str = "/api/v1/namespaces/default/pods/running";
const AGENT: &str = "/api/v1/namespaces/kube-system/pods/agent";
/// A pod whose tolerations another writer manages, and nothing else.
const EDITED: &str = "/api/v1/namespaces/default/pods/edited";
const HELPED: [&str; 5] = [WAITING, GATED, RUNNING, AGENT, EDITED];

const OF_LINUX: &str = "/api/v1/namespaces/default/pods/of-linux";
const ON_LINUX: &str = "/api/v1/namespaces/default/pods/on-linux";
const ENDING: &str = "/api/v1/namespaces/default/pods/ending";
const NOT_HELPED: [&str; 3] = [OF_LINUX, ON_LINUX, ENDING];

/// Creates a pod at each of these paths. Each has a toleration of its own, and the two that the API server adds.
async fn create_pods(harness: &Harness) {
    let nothing = || json!({});
    let on = |system: &str| json!({"nodeSelector": {"kubernetes.io/os": system}});
    for (path, metadata, mut spec) in [
        (WAITING, nothing(), on("windows")),
        (GATED, nothing(), json!({"schedulingGates": [{"name": "example.com/later"}]})),
        (RUNNING, nothing(), json!({"nodeName": "win"})),
        (AGENT, nothing(), json!({"os": {"name": "windows"}})),
        (EDITED, nothing(), nothing()),
        (OF_LINUX, nothing(), json!({"os": {"name": "linux"}})),
        (ON_LINUX, nothing(), on("linux")),
        (ENDING, json!({"finalizers": ["example.com/stay"]}), nothing()),
    ] {
        let (pods, name) = of_path(&harness.client, path);
        spec["containers"] = json!([{"name": "c", "image": "servercore"}]);
        spec["tolerations"] = json!([{"key": "example.com/own", "operator": "Exists"}]);
        let mut pod = json!({"metadata": metadata, "spec": spec});
        pod["metadata"]["name"] = json!(name);
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    merge_status(&harness.pods(), "running", json!({"status": {"phase": "Running"}})).await;
    harness.pods().delete("ending", &DeleteParams::default()).await.unwrap();
    let mut tolerations = json!(harness.pods().get("edited").await.unwrap())["spec"]["tolerations"].take();
    tolerations.as_array_mut().unwrap().push(json!({"key": "example.com/more", "operator": "Exists"}));
    let editor = PatchParams { field_manager: Some("editor".to_owned()), ..PatchParams::default() };
    let edit = Patch::Merge(json!({"spec": {"tolerations": tolerations}}));
    harness.pods().patch("edited", &editor, &edit).await.unwrap();
}

/// The pods of the namespace in a path, and the name in it.
fn of_path<'a>(client: &Client, path: &'a str) -> (Api<Pod>, &'a str) {
    let parts: Vec<&str> = path.split('/').collect();
    let [.., namespace, _, name] = parts[..] else { panic!("{path} is not the path of a pod") };
    (Api::namespaced(client.clone(), namespace), name)
}

fn tolerates(key: &str, value: &str) -> Value {
    json!({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"})
}

/// Adds a toleration, whatever the pod has.
fn add(toleration: &Value) -> Value {
    json!({"op": "add", "path": "/spec/tolerations/-", "value": toleration})
}

/// Adds the toleration as the operator does.
async fn honest(client: &Client, path: &'static str, toleration: &Value) -> Attempt {
    let (pods, name) = of_path(client, path);
    let pod = json!(pods.get(name).await.unwrap());
    let seen = &pod["spec"]["tolerations"];
    let mut tolerations = seen.clone();
    tolerations.as_array_mut().unwrap().push(toleration.clone());
    let operations = json!([
        {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
        {"op": "test", "path": "/spec/tolerations", "value": seen},
        {"op": "add", "path": "/spec/tolerations", "value": tolerations},
    ]);
    patch(path, operations)
}

/// Changes that RBAC and the API server allow for any pod.
fn misuses(path: &'static str) -> Vec<Attempt> {
    let windows = tolerates("os", "windows");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "none"}]);
    let manager = json!([{
        "manager": "nobody", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:restartPolicy": {}}},
    }]);
    let changes = [
        json!({"spec": {"containers": [{"name": "c", "image": "theirs"}]}}),
        json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "theirs"}]),
        json!({"spec": {"activeDeadlineSeconds": 1}}),
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"finalizers": ["example.com/more"]}}),
        json!({"metadata": {"ownerReferences": owner}}),
        json!({"metadata": {"generateName": "other-"}}),
        json!({"metadata": {"managedFields": [{}]}}),
        json!({"metadata": {"managedFields": manager}}),
        json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}, add(&windows)]),
        json!([add(&windows), add(&windows)]),
        json!([{"op": "copy", "from": "/spec/tolerations/0", "path": "/spec/tolerations/-"}]),
        json!([{"op": "replace", "path": "/spec/tolerations/1/tolerationSeconds", "value": 1}]),
    ];
    let tolerations = [
        tolerates("team", "windows"),
        tolerates("maintenance", "windows"),
        tolerates("example.com/team", "windows"),
        tolerates("photos", "windows"),
        tolerates("os", "linux"),
        tolerates("os", ""),
        json!({"key": "os", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"operator": "Exists"}),
        json!({"key": "os", "value": "windows", "effect": "NoExecute"}),
        json!({"key": "os", "value": "windows", "effect": "NoExecute", "tolerationSeconds": 5}),
        json!({"key": "os", "value": "windows"}),
    ];
    let too_many = (0..30).map(|number| add(&tolerates("os", &format!("windows-{number}")))).collect();
    let added = tolerations.iter().map(|toleration| json!([add(toleration)]));
    changes.into_iter().chain(added).chain([Value::Array(too_many)]).map(|body| patch(path, body)).collect()
}

/// Changes that the API server allows while no node may be chosen for the pod.
fn misuses_of_a_gated_pod() -> [Attempt; 3] {
    let terms = json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]);
    let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    [
        patch(GATED, json!({"spec": {"schedulingGates": null}})),
        patch(GATED, json!({"spec": {"nodeSelector": {"a": "b"}}})),
        patch(GATED, json!({"spec": {"affinity": {"nodeAffinity": affinity}}})),
    ]
}

#[tokio::test]
async fn with_a_stolen_token_pods_can_get_windows_tolerations_and_no_other_change() {
    let harness = Harness::new().await;
    create_pods(&harness).await;
    let admin = &harness.client;
    let thief = Client::try_from(harness.account.config.clone()).unwrap();

    let mut attempts: Vec<Attempt> = HELPED.into_iter().flat_map(misuses).chain(misuses_of_a_gated_pod()).collect();
    attempts.push(patch(ENDING, json!({"metadata": {"finalizers": null}})));
    for path in NOT_HELPED {
        attempts.push(honest(admin, path, &tolerates("os", "windows")).await);
    }
    assert_confined(&thief, POLICY, attempts.clone()).await;
    assert_all(admin, attempts, false).await;

    let image = patch(WAITING, json!({"spec": {"containers": [{"name": "c", "image": "theirs"}]}}));
    let strategic = "application/strategic-merge-patch+json";
    let refused = refusal_of(&thief, &image, strategic).await.unwrap();
    assert!(refused.code == 403 && refused.message.contains(POLICY), "{refused:?}");
    assert!(refusal_of(admin, &image, strategic).await.is_none());

    // These the API server may refuse before it asks the policy, or because the policy costs too much.
    let flood: Vec<Value> = (0..3_000).map(|_| add(&tolerates("os", "windows"))).collect();
    for operations in [json!([{"op": "remove", "path": "/spec/tolerations/0"}]), Value::Array(flood)] {
        let refused = refusal(&thief, &patch(WAITING, operations)).await.unwrap();
        assert!([403, 422].contains(&refused.code), "{refused:?}");
    }
}

#[tokio::test]
async fn winpool_may_add_windows_tolerations_to_waiting_gated_and_running_pods_in_all_namespaces() {
    let harness = Harness::new().await;
    create_pods(&harness).await;
    let client = Client::try_from(harness.account.config.clone()).unwrap();
    let refused = patch(WAITING, json!({"metadata": {"labels": {"a": "b"}}}));
    assert_confined(&client, POLICY, vec![refused]).await;
    let taints = [("os", "windows"), ("os", "Win2019"), ("node.kubernetes.io/os", "win1809"), ("windows", "true")];
    for path in HELPED {
        for (key, value) in taints {
            let attempt = honest(&harness.client, path, &tolerates(key, value)).await;
            assert_all(&client, vec![attempt], false).await;
        }
    }
}

/// A cluster with a Windows node and winpool's own pod, and the configuration with which winpool finds that pod.
async fn with_own_pod() -> (Harness, Config) {
    let harness = Harness::new().await;
    harness.join("win").await;
    let mut config = harness.account.config.clone();
    "default".clone_into(&mut config.default_namespace);
    harness.run_pod("own", json!({})).await;
    (harness, config)
}

fn of_own_pod(config: Config) -> Operator {
    Operator::start_with(config, Options { pod: Some("own".to_owned()), ..alone() })
}

#[tokio::test]
async fn no_taint_is_added_while_no_policy_confines_what_winpool_may_do_with_pods() {
    let (harness, config) = with_own_pod().await;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(harness.client.clone());
    bindings.delete(POLICY, &DeleteParams::default()).await.unwrap();
    let client = Client::try_from(config.clone()).unwrap();
    let label = patch("/api/v1/namespaces/default/pods/own", json!({"metadata": {"labels": {"a": "b"}}}));
    let allowed = async || Ok(refusal(&client, &label).await.is_none().then_some(()));
    wait_for("the policy is not in force", LIMIT, allowed).await.unwrap();

    let operator = of_own_pod(config);
    harness.apply_pool(json!({})).await;
    let message = says_that_it_is_not_confined(&harness).await;
    assert!(message.contains("labels") && message.contains("config/rbac/confine_pods.yaml"), "{message}");
    assert!(!has_taint(&harness.node("win").await, OS_WINDOWS));

    manifests::apply(&harness.client, &manifests::rbac("confine_pods.yaml").unwrap()).await.unwrap();
    harness.is_tainted("win").await;
    harness.ready("default").await;
    operator.stop().await;
}

/// Waits until the pool says that winpool is not confined. Returns the message.
async fn says_that_it_is_not_confined(harness: &Harness) -> String {
    let says = |pool: &WindowsPool| {
        condition_text(pool, "TaintsApplied").is_some_and(|(_, reason, _)| reason == "NotConfined")
    };
    let pool = harness.pool_until("default", "says that winpool is not confined", says).await;
    condition_text(&pool, "TaintsApplied").unwrap().2
}

#[tokio::test]
async fn no_taint_is_added_while_the_policy_allows_more_than_that_of_this_release() {
    let (harness, config) = with_own_pod().await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(harness.client.clone());
    let mut weak = policies.get(POLICY).await.unwrap();
    let validations = weak.spec.as_mut().unwrap().validations.as_mut().unwrap();
    let is_about_spec = |validation: &Validation| validation.message.as_ref().unwrap().contains("in the spec of a pod");
    validations.retain(|validation| !is_about_spec(validation));
    policies.replace(POLICY, &PostParams::default(), &weak).await.unwrap();
    // What winpool tries, the policy refuses as before.
    let client = Client::try_from(config.clone()).unwrap();
    let [label, image] = [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"spec": {"containers": [{"name": "c", "image": "theirs"}]}}),
    ]
    .map(|change| patch("/api/v1/namespaces/default/pods/own", change));
    let strategic = "application/strategic-merge-patch+json";
    let allowed = async || Ok(refusal_of(&client, &image, strategic).await.is_none().then_some(()));
    wait_for("the weak policy is in force", LIMIT, allowed).await.unwrap();
    assert!(refusal(&client, &label).await.is_some_and(|refused| refused.message.contains(POLICY)));

    let operator = of_own_pod(config);
    harness.apply_pool(json!({})).await;
    let message = says_that_it_is_not_confined(&harness).await;
    assert!(message.contains("validations of winpool-confine-pods"), "{message}");
    assert!(!has_taint(&harness.node("win").await, OS_WINDOWS));

    policies.delete(POLICY, &DeleteParams::default()).await.unwrap();
    manifests::apply(&harness.client, &manifests::rbac("confine_pods.yaml").unwrap()).await.unwrap();
    harness.is_tainted("win").await;
    operator.stop().await;
}

#[tokio::test]
async fn without_the_permission_to_read_the_policy_only_its_effect_counts() {
    let (harness, config) = with_own_pod().await;
    harness.account.take(("get", "admissionregistration.k8s.io", "validatingadmissionpolicies")).await;
    let operator = of_own_pod(config);
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;
    operator.stop().await;
}
