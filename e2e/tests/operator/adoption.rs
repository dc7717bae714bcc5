//! RuntimeClasses that existed before winpool: adopted if they fit, or reported.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::api::{ClassState, Problem, RuntimeClassStatus, WindowsPool};
use winpool_e2e::harness::objects::{BUILD, condition, scheduling, tolerates, windows_class};
use winpool_e2e::harness::{Harness, OS_WINDOWS, POOL};
use winpool_e2e::nodes::simulated::SimulatedNode;

/// A class as in the Kubernetes documentation.
fn by_hand(name: &str, build: &str, metadata: &Value) -> Value {
    let mut class = windows_class(name, &json!({BUILD: build}));
    class["scheduling"]["tolerations"] =
        json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]);
    for (key, value) in metadata.as_object().unwrap() {
        class["metadata"][key] = value.clone();
    }
    class
}

/// The class without versions and managed fields.
fn face(class: &RuntimeClass) -> Value {
    let mut class = class.clone();
    class.metadata.managed_fields = None;
    class.metadata.resource_version = None;
    json!(class)
}

fn state_of<'a>(pool: &'a WindowsPool, name: &str) -> Option<&'a RuntimeClassStatus> {
    pool.status.as_ref()?.runtime_classes.iter().find(|class| class.name == name)
}

fn problem_of<'a>(pool: &'a WindowsPool, name: &str) -> Option<&'a Problem> {
    let object = format!("RuntimeClass {name}");
    pool.status.as_ref()?.problems.iter().find(|problem| problem.object.to_string() == object)
}

/// Waits until the pool reports this state of the class.
async fn reported(harness: &Harness, name: &str, state: ClassState) -> WindowsPool {
    let is = |pool: &WindowsPool| state_of(pool, name).is_some_and(|class| class.state == state);
    harness.pool_until("default", &format!("says {state:?} of {name}"), is).await
}

/// Starts a harness with one node each of Windows Server 2019 and 2022.
async fn with_nodes() -> Harness {
    let harness = Harness::new().await;
    for kernel in ["10.0.17763.6659", "10.0.20348.2655"] {
        harness.join_node(SimulatedNode::windows(kernel)).await;
    }
    harness
}

#[tokio::test]
async fn a_compatible_class_is_adopted_by_a_label_and_outlives_the_pool() {
    let harness = with_nodes().await;
    let metadata = json!({"labels": {"team": "web"}, "annotations": {"note": "made by hand"}});
    let before: RuntimeClass = harness.create(by_hand("windows-2022", "10.0.20348", &metadata)).await;
    let _operator = harness.operator().await;
    let pool = harness.apply_until_ready(json!({})).await;
    assert_eq!(state_of(&pool, "windows-2022").unwrap().state, ClassState::Adopted);
    assert_eq!(state_of(&pool, "windows-2019").unwrap().state, ClassState::Applied);

    let mut adopted = harness.classes().get("windows-2022").await.unwrap();
    let labels = adopted.metadata.labels.as_mut().unwrap();
    assert_eq!(labels.remove(POOL).as_deref(), Some("default"));
    assert_eq!(face(&adopted), face(&before), "nothing else changed");

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let released = harness.classes().get("windows-2022").await.unwrap();
    assert_eq!(face(&released), face(&before));
    assert_eq!(harness.classes().get_opt("windows-2019").await.unwrap(), None, "winpool's own goes");
}

#[tokio::test]
async fn classes_of_others_are_never_written() {
    let harness = with_nodes().await;
    harness.join_node(SimulatedNode::server_2025("win-2025")).await;
    let helm = json!({
        "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "windows"},
    });
    let argo =
        json!({"annotations": {"argocd.argoproj.io/tracking-id": "infra:node.k8s.io/RuntimeClass:/windows-2019"}});
    let right: RuntimeClass = harness.create(by_hand("windows-2022", "10.0.20348", &helm)).await;
    let mut wrong = by_hand("windows-2019", "10.0.17763", &argo);
    wrong["scheduling"]["tolerations"] = json!([]);
    let wrong: RuntimeClass = harness.create(wrong).await;
    // Like an example of the Kubernetes documentation, it selects another Windows than its name says.
    let misleading: RuntimeClass = harness.create(by_hand("windows-2025", "10.0.20348", &json!({}))).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;

    let pool = reported(&harness, "windows-2019", ClassState::Conflict).await;
    assert_eq!(state_of(&pool, "windows-2022").unwrap().state, ClassState::Satisfied);
    assert_eq!(condition(&pool, "Ready"), Some("False"));
    let message = &problem_of(&pool, "windows-2019").unwrap().message;
    assert!(message.contains("Argo CD"), "{message}");
    // The manifest to commit to Git.
    let yaml = message.split_once("correct it at its source: ").unwrap().1;
    let (yaml, rest) = yaml.split_once("; or let winpool correct its scheduling: ").unwrap();
    assert!(rest.starts_with("kubectl label runtimeclass windows-2019 winpool.dev/pool=default;"), "{message}");
    let yaml: Value = serde_yaml::from_str(yaml).unwrap();
    assert_eq!(yaml["scheduling"], by_hand("windows-2019", "10.0.17763", &json!({}))["scheduling"]);
    assert_eq!(state_of(&pool, "windows-2025").unwrap().state, ClassState::Conflict);
    let message = &problem_of(&pool, "windows-2025").unwrap().message;
    assert!(message.contains("10.0.20348 (Windows Server 2022) instead of 10.0.26100"), "{message}");
    assert_eq!(condition(&pool, "RuntimeClassesApplied"), Some("False"));

    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    for class in [right, wrong, misleading] {
        let now = harness.classes().get(&class.name_any()).await.unwrap();
        assert_eq!(now.resource_version(), class.resource_version(), "{} was never written", class.name_any());
    }
}

#[tokio::test]
async fn a_class_that_was_handed_over_gets_what_it_lacks_and_keeps_what_it_has() {
    let harness = with_nodes().await;
    let metadata = json!({"labels": {POOL: "default"}});
    let mut lacking = by_hand("windows-2022", "10.0.20348", &metadata);
    // Without an operator it means Equal. The API server stores it as it is written.
    lacking["scheduling"]["tolerations"] = json!([{"key": "z", "value": "b"}, {"key": "a", "operator": "Exists"}]);
    lacking["overhead"] = json!({"podFixed": {"cpu": "1"}});
    let _: RuntimeClass = harness.create(lacking).await;
    let wrong: RuntimeClass = harness.create(by_hand("windows-2019", "10.0.20348", &metadata)).await;
    let given = json!({"labels": {"app.kubernetes.io/managed-by": "winpool"}});
    let _: RuntimeClass = harness.create(by_hand("given", "10.0.20348", &given)).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({"runtimeClasses": [{"name": "given", "version": "2019"}]})).await;
    let tolerates_taint = |class: &RuntimeClass| tolerates(class, OS_WINDOWS);
    let class = harness.class_until("windows-2022", "has the toleration", tolerates_taint).await;
    assert_eq!(scheduling(&class)["tolerations"].as_array().unwrap().len(), 3);
    assert_eq!(scheduling(&class)["nodeSelector"][BUILD], "10.0.20348");
    assert_eq!(json!(class.overhead), json!({"podFixed": {"cpu": "1"}}));

    // winpool would have to change what is there.
    let refused = |pool: &WindowsPool| {
        problem_of(pool, "windows-2019").is_some_and(|problem| problem.message.contains("only add to the scheduling"))
    };
    harness.pool_until("default", "says that the policy refuses the change", refused).await;
    assert_eq!(face(&harness.classes().get("windows-2019").await.unwrap()), face(&wrong));
    // An administrator gave this one to winpool for good.
    let corrected = |class: &RuntimeClass| scheduling(class)["nodeSelector"][BUILD] == "10.0.17763";
    harness.class_until("given", "selects its build", corrected).await;
}
