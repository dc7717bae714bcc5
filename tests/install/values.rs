//! The values of the chart: their effects, schema and documentation.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use winpool_e2e::machine::assets::Component;

use super::chart::{SERVED, differ, template, template_by};
use super::scene::{CHART, NAMESPACE};

/// Kinds of objects that are copied from `config/components/`: snapshots have only their names.
const COPIES: [&str; 6] = [
    "ConfigMap",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "PrometheusRule",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
];

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn each_example_of_values_passes_helm_lint() {
    let default = template("winpool", NAMESPACE, &[], &SERVED).await;
    let examples = std::fs::read_dir(Path::new(CHART).join("ci")).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for example in examples {
        let path = example.to_str().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let lint = ["lint", "--strict", CHART, "--values", path];
        for helm in [Component::Helm, Component::Helm3] {
            helm.run(&directory.path().join("none"), &lint).await.unwrap();
        }
        let file = format!("--values={path}");
        let objects = template("winpool", NAMESPACE, &[&file], &SERVED).await;
        let by_helm_3 = template_by(Component::Helm3, "winpool", NAMESPACE, &[&file], &SERVED).await;
        assert!(objects == by_helm_3, "{path}: {}", changes(&objects, &by_helm_3));
        let name = example.file_stem().unwrap().to_str().unwrap().trim_end_matches("-values").to_owned();
        insta::assert_snapshot!(name, changes(&default, &objects));
        count += 1;
    }
    assert_eq!(count, 10);
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn the_chart_refuses_values_that_it_does_not_know() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("none");
    for (value, word) in [
        ("replica=3", "replica"),
        ("image.name=x", "name"),
        ("replicaCount=many", "replicaCount"),
        ("image.digest=sha256:1", "digest"),
        ("crds.keep=1", "keep"),
        ("helpPods=1", "helpPods"),
        ("policies.warn.enabled=true", "warn"),
        ("policies.guard.pool=default", "pool"),
        ("policies.guard.taintKeys={o's}", "taintKeys"),
        ("policies.guard.handlers={Runc}", "handlers"),
        ("policies.assignClass.excludedNamespaces=ci", "excludedNamespaces"),
        ("monitoring.dashboard=true", "dashboard"),
        ("monitoring.podMonitor.interval=often", "interval"),
        ("podDisruptionBudget.maxUnavailable=most", "maxUnavailable"),
    ] {
        let refused = Component::Helm.run(&kubeconfig, &["template", CHART, "--set", value]).await.unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("values don't meet the specifications") && refused.contains(word), "{refused}");
    }
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn values_reach_the_pods_and_another_release_name_reaches_all_objects() {
    let digest = "image.digest=sha256:".to_owned() + &"0".repeat(64);
    let objects =
        template("other", "elsewhere", &[&digest, "extraArgs={--log-format=json}", "replicaCount=1"], &[]).await;
    let deployment = &objects["Deployment elsewhere/other-winpool"];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("ghcr.io/winpool/winpool@sha256:{}", "0".repeat(64)));
    assert_eq!(container["args"], json!(["run", "--log-format=json"]));
    assert_eq!(container["env"][0]["value"], "other-winpool");
    for name in ["other-winpool", "other-winpool-help-pods"] {
        let binding = &objects[&format!("ClusterRoleBinding /{name}")];
        assert_eq!(binding["roleRef"]["name"], name);
        let subject = json!([{"kind": "ServiceAccount", "name": "other-winpool", "namespace": "elsewhere"}]);
        assert_eq!(binding["subjects"], subject);
    }
    for name in ["events", "nodes", "permissions", "pods", "pools", "runtimeclasses"] {
        let policy = &objects[&format!("ValidatingAdmissionPolicy /other-winpool-confine-{name}")];
        let account = "request.userInfo.username == 'system:serviceaccount:elsewhere:other-winpool'";
        assert_eq!(policy["spec"]["matchConditions"][0]["expression"], account);
    }
    assert!(!objects.keys().any(|name| name.starts_with("PodDisruptionBudget")), "one replica may be evicted");
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn values_reach_the_policies_and_what_a_prometheus_selects_by() {
    let values = [
        "policies.assignClass.enabled=true",
        "policies.assignClass.pool=legacy",
        "policies.tolerateWindows.excludedNamespaces={ci}",
        "policies.guard.enabled=true",
        "policies.guard.taintKeys={os,example.com/windows}",
        "policies.guard.handlers={runc}",
        "monitoring.podMonitor.enabled=true",
        "monitoring.podMonitor.labels.release=prometheus",
    ];
    let objects = template("other", "elsewhere", &values, &SERVED).await;
    let of = |name: &str, pointer: &str| objects[name].pointer(pointer).unwrap_or_else(|| panic!("{name} {pointer}"));
    let (namespaces, variable, user) = (
        "/spec/matchConstraints/namespaceSelector/matchExpressions/0/values",
        "/spec/variables/0/expression",
        "request.userInfo.username == 'system:serviceaccount:elsewhere:other-winpool'",
    );
    let mutating = |name: &str| format!("MutatingAdmissionPolicy /winpool-{name}");
    assert_eq!(of("MutatingAdmissionPolicyBinding /winpool-assign-class", "/spec/paramRef/name"), "legacy");
    assert_eq!(of(&mutating("assign-class"), namespaces), &json!(["kube-system", "elsewhere"]));
    for name in ["tolerate-windows-pods", "tolerate-windows-daemonsets"] {
        assert_eq!(of(&mutating(name), namespaces), &json!(["ci"]));
    }
    for name in ["nodes", "runtimeclasses"] {
        let policy = format!("ValidatingAdmissionPolicy /winpool-guard-{name}");
        assert_eq!(of(&policy, "/spec/matchConditions/0/expression"), user);
    }
    assert_eq!(of("ValidatingAdmissionPolicy /winpool-guard-nodes", variable), "['os', 'example.com/windows']");
    assert_eq!(of("ValidatingAdmissionPolicy /winpool-guard-runtimeclasses", variable), "['runc']");
    assert_eq!(of("PodMonitor elsewhere/other-winpool", "/metadata/labels/release"), "prometheus");
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn without_help_pods_winpool_may_not_patch_pods() {
    let (with, without) = tokio::join!(
        template("winpool", NAMESPACE, &[], &SERVED),
        template("winpool", NAMESPACE, &["helpPods=false"], &SERVED),
    );
    let left_out = [
        "- ClusterRole /winpool-help-pods",
        "- ClusterRoleBinding /winpool-help-pods",
        "- ValidatingAdmissionPolicy /winpool-confine-pods",
        "- ValidatingAdmissionPolicyBinding /winpool-confine-pods",
    ];
    assert_eq!(changes(&with, &without), left_out.join("\n"));
    let may_patch_pods = |object: &Value| {
        let mut rules = object["rules"].as_array().into_iter().flatten();
        let has = |list: &Value, word: &str| list.as_array().unwrap().contains(&json!(word));
        rules.any(|rule| has(&rule["resources"], "pods") && has(&rule["verbs"], "patch"))
    };
    let may = |objects: &BTreeMap<String, Value>| objects.values().any(may_patch_pods);
    assert_eq!((may(&with), may(&without)), (true, false));
}

/// The objects that are removed, changed, renamed and added.
fn changes(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> String {
    let kind = |name: &str| name.split(' ').next().unwrap().to_owned();
    let mut gone: Vec<&String> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    let mut lines = Vec::new();
    for (name, object) in after {
        if let Some(before) = before.get(name) {
            differ(name, before, object, &mut lines);
        } else if let Some(index) = gone.iter().position(|gone| kind(gone) == kind(name)) {
            let former = gone.remove(index);
            lines.push(format!("{former} is now {name}"));
            differ(name, &before[former], object, &mut lines);
        } else {
            lines.push(format!("+ {name}"));
            if !COPIES.contains(&kind(name).as_str()) {
                lines.push(serde_yaml::to_string(object).unwrap());
            }
        }
    }
    gone.iter().map(|name| format!("- {name}")).chain(lines).collect::<Vec<_>>().join("\n")
}
