//! The admission policy `advise` warns of what `check` says, and refuses nothing.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use winpool_analysis::lint::{Facts, advise, rule};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::scene::manifests;
use winpool_e2e::servers::cluster::start_controller_manager;
use winpool_e2e::servers::lending::{Lent, lend};

use super::{Answer, create, create_all, examples, facts, findings, generated, set, workload};

const WORKLOADS: usize = 2000;

/// A DaemonSet, Pod, … that breaks a rule, so that the policy for its kind has something to say.
fn probe(kind: &str) -> Value {
    workload(
        kind,
        &json!({
            "nodeSelector": {"kubernetes.io/os": "windows"}, "dnsPolicy": "ClusterFirstWithHostNet",
            "containers": [{"name": "c", "image": "example.com/app:1.0"}],
        }),
    )
}

const KINDS: [&str; 6] = ["Pod", "Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob"];

/// Installs the component and waits until it is in force for every kind.
async fn install(client: &Client) {
    let objects = manifests::component("advise").unwrap();
    manifests::apply(client, &objects).await.unwrap();
    for kind in KINDS {
        wait_for(&format!("a {kind} gets a warning"), LIMIT, async || {
            let answer = create(client, "default", &probe(kind)).await;
            Ok((!rules_in(&answer).is_empty()).then_some(()))
        })
        .await
        .unwrap();
    }
}

/// An API server with the component. The tests share it, because the API server needs seconds to compile the expressions, and
/// all but one create objects in dry runs.
async fn server() -> &'static Lent {
    static SERVER: OnceCell<Lent> = OnceCell::const_new();
    let server = SERVER.get_or_init(async || {
        let server = lend().await.unwrap();
        install(&server.client()).await;
        server
    });
    server.await
}

/// An administrator's client of it.
async fn advised() -> Client {
    server().await.connect().unwrap()
}

/// The rules of which the warnings speak. Kubernetes warns of things by itself too.
fn rules_in(answer: &Answer) -> BTreeSet<String> {
    let ours = answer.warnings.iter().filter(|warning| warning.contains("'winpool-advise-"));
    set(ours.map(|warning| {
        let text = warning.split("': ").nth(1).unwrap();
        let id = text.split(':').next().unwrap();
        rule(id).unwrap_or_else(|| panic!("{warning}")).id
    }))
}

/// The warnings that the policy must give. The API server drops empty lists before any policy sees them.
fn expected(object: &Value, facts: &Facts) -> BTreeSet<String> {
    let advised: BTreeSet<&str> = advise::expressions().map(|(rule, _)| rule.id).collect();
    let found = findings(&without_empty_lists(object.clone()), facts).into_iter().map(|finding| finding.rule);
    set(found.filter(|rule| advised.contains(rule.as_str())))
}

fn without_empty_lists(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| value != &json!([]))
            .map(|(key, value)| (key, without_empty_lists(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_empty_lists).collect(),
        other => other,
    }
}

#[tokio::test]
async fn warnings_are_what_check_says_for_thousands_of_generated_workloads() {
    let client = advised().await;
    let facts = facts().await;
    let mut runner = TestRunner::deterministic();
    let generated = (0..WORKLOADS).map(|_| generated::any(&mut runner)).chain(examples(|_| true)).enumerate();
    let objects = generated.map(|(n, pod)| workload(KINDS[n % KINDS.len()], &pod)).collect();
    let answers = create_all(&client, objects).await;
    let (mut accepted, mut warned, mut seen) = (0, 0, BTreeSet::new());
    for (object, answer) in &answers {
        assert_ne!(answer.code, 400, "{object}: {}", answer.body);
        if answer.code != 201 {
            // The API server refuses the object before the policy runs: it is invalid, or a Pod of a class that does not exist.
            let message = answer.body["message"].as_str().unwrap_or_default();
            let has_no_class = message.contains("RuntimeClass \"any\" not found");
            let code = if has_no_class { 403 } else { 422 };
            assert_eq!((answer.code.as_u16(), rules_in(answer)), (code, BTreeSet::new()), "{object}: {}", answer.body);
            continue;
        }
        let rules = rules_in(answer);
        assert_eq!(rules, expected(object, &facts), "{object}: {:?}", answer.warnings);
        accepted += 1;
        warned += usize::from(!rules.is_empty());
        seen.extend(rules);
    }
    println!("{accepted} of {} accepted, {warned} of them with warnings, of {} rules", answers.len(), seen.len());
    let rules = advise::expressions().map(|(rule, _)| rule);
    let all = set(rules.filter(|rule| rule.holds_for(facts.kubernetes)).map(|rule| rule.id));
    let unbroken: Vec<_> = all.difference(&seen).collect();
    assert!(unbroken.is_empty(), "no workload breaks {unbroken:?}: add their fields to fields.yaml");
    assert!(warned > WORKLOADS / 8 && accepted - warned > WORKLOADS / 8);
}

#[tokio::test]
async fn a_warning_names_the_rule_and_the_remedy_and_nothing_is_refused() {
    let client = advised().await;
    let answer = create(&client, "default", &probe("Deployment")).await;
    assert_eq!(answer.code, 201);
    assert_eq!(answer.warnings.len(), 1);
    let text =
        "dns-policy-with-host-net: on Windows ClusterFirstWithHostNet means the same as ClusterFirst; use ClusterFirst";
    assert!(answer.warnings[0].contains(text), "{:?}", answer.warnings);
}

/// kube-controller-manager checks every expression with the schemas of the policy's kinds.
#[tokio::test]
async fn the_expressions_fit_the_kinds_that_they_are_for() {
    let server = server().await;
    // The other tests create no pods that a controller would see.
    let only = ["--controllers=validatingadmissionpolicy-status-controller"];
    let _manager = start_controller_manager(server, &only).await.unwrap();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(server.connect().unwrap());
    for name in ["winpool-advise-pods", "winpool-advise-workloads", "winpool-advise-cronjobs"] {
        let looked_at = async || {
            let status = policies.get(name).await?.status;
            Ok(status.filter(|status| status.observed_generation.is_some()))
        };
        let status = wait_for(&format!("{name} is looked at"), LIMIT, looked_at).await.unwrap();
        let warnings = status.type_checking.and_then(|checking| checking.expression_warnings).unwrap_or_default();
        assert_eq!(warnings, [], "{name}");
    }
}

#[tokio::test]
async fn users_who_cannot_fix_it_are_not_warned() {
    let client = advised().await;
    assert!(create(&client, "kube-system", &probe("Pod")).await.warnings.is_empty(), "namespaces that are left alone");
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let ours = serde_json::from_value(json!({"metadata": {"name": "winpool-system"}})).unwrap();
    namespaces.create(&PostParams::default(), &ours).await.unwrap();
    assert!(create(&client, "winpool-system", &probe("Pod")).await.warnings.is_empty());

    let mut controlled = probe("Pod");
    controlled["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    assert!(create(&client, "default", &controlled).await.warnings.is_empty(), "a controller reads no warnings");

    // An update that does not touch the template.
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let mut stored = probe("Deployment");
    stored["metadata"]["name"] = json!("stored");
    deployments.create(&PostParams::default(), &serde_json::from_value(stored).unwrap()).await.unwrap();
    for (change, warned) in [
        (json!({"spec": {"replicas": 3}}), false),
        (json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}}), true),
    ] {
        let request = kube::core::Request::new("/apis/apps/v1/namespaces/default/deployments");
        let request = request.patch("stored", &PatchParams::default(), &Patch::Merge(&change)).unwrap();
        let answer = client.send(request.map(kube::client::Body::from)).await.unwrap();
        assert_eq!(answer.headers().contains_key("Warning"), warned, "{change}");
    }
}

#[tokio::test]
async fn the_audit_event_names_every_rule() {
    let server = server().await;
    // The log has the requests of users with this prefix.
    let (audit, client) = (server.audit(), server.client_as("winpool-author", &["system:masters"]).unwrap());
    let mut object = probe("DaemonSet");
    object["spec"]["template"]["spec"]["securityContext"] = json!({"runAsUser": 0});
    object["metadata"]["name"] = json!("two-rules");
    assert_eq!(create(&client, "default", &object).await.warnings.len(), 2);
    let events = audit.events().into_iter().filter(|event| event["objectRef"]["name"] == "two-rules");
    let rules: Vec<Value> =
        events.map(|event| event["annotations"]["winpool-advise-workloads/rules"].clone()).collect();
    assert_eq!(rules, [json!("run-as-user dns-policy-with-host-net")]);
    let log = std::fs::read_to_string(server.directory().join("kube-apiserver.log")).unwrap();
    assert!(!log.contains("Failed to set admission audit annotation"));
}

/// The policies still warn for pods ten times larger than real ones. Over the cost limit of CEL they would be silent.
#[tokio::test]
async fn the_largest_pod_is_far_from_the_limits() {
    let client = advised().await;
    let mounts: Vec<Value> = (0..50).map(|n| json!({"name": format!("v{n}"), "mountPath": format!("/v{n}")})).collect();
    let mut containers: Vec<Value> = (0..100)
        .map(|n| json!({"name": format!("c{n}"), "image": "example.com/app:1.0", "volumeMounts": mounts}))
        .collect();
    containers[99]["volumeMounts"][49]["mountPropagation"] = json!("HostToContainer");
    let volumes: Vec<Value> = (0..50).map(|n| json!({"name": format!("v{n}"), "emptyDir": {}})).collect();
    let expression = |n: usize| json!({"matchExpressions": (0..20).map(|m| json!({"key": format!("k{n}-{m}"), "operator": "Exists"})).collect::<Vec<_>>()});
    let terms: Vec<Value> = (0..50).map(expression).collect();
    let object = workload(
        "Deployment",
        &json!({
            "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": containers, "volumes": volumes,
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        }),
    );
    let answer = create(&client, "default", &object).await;
    assert_eq!((answer.code.as_u16(), rules_in(&answer)), (201, set(["mount-propagation"])), "{:?}", answer.warnings);
}
