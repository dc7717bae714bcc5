//! The chart and `config/` install the same objects.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use winpool_e2e::machine::assets::Component;

use super::chart::{SERVED, differ, parse, template};
use super::scene::{CHART, CONFIG, NAMESPACE};

/// The component that the chart installs by default.
const DEFAULT: &str = "tolerate-windows";

/// Values of the chart, and the matching components of `config/` in addition to the default one.
const SAME: [(&[&str], &[&str]); 8] = [
    (&[], &[]),
    (&["networkPolicy.enabled=true"], &["network-policy"]),
    (&["policies.advise.enabled=true"], &["advise"]),
    (&["policies.assignClass.enabled=true"], &["assign-class"]),
    (&["policies.bornTainted.enabled=true"], &["born-tainted"]),
    (&["policies.guard.enabled=true"], &["guard"]),
    (&["policies.linuxByDefault.enabled=true"], &["linux-by-default"]),
    (
        &[
            "monitoring.podMonitor.enabled=true",
            "monitoring.prometheusRule.enabled=true",
            "monitoring.dashboard.enabled=true",
        ],
        &["monitoring"],
    ),
];

/// The components that are left out if the API server has none of these APIs.
const NOT_EVERYWHERE: [&str; 6] = [
    "policies.assignClass",
    "policies.bornTainted",
    "policies.linuxByDefault",
    "policies.tolerateWindows",
    "monitoring.podMonitor",
    "monitoring.prometheusRule",
];

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn the_chart_and_config_say_the_same() {
    let same = SAME.map(|(values, components)| (values, [components, &[DEFAULT]].concat()));
    let without = [(&["policies.tolerateWindows.enabled=false"][..], vec![])];
    for (values, components) in same.into_iter().chain(without) {
        let (chart, config) = (of_chart(values).await, of_config(&components).await);
        let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&chart), names(&config), "{values:?} and {components:?}");
        let mut differences = Vec::new();
        for (name, object) in &config {
            differ(name, object, &chart[name], &mut differences);
        }
        assert!(differences.is_empty(), "{values:?} and {components:?}:\n{}", differences.join("\n"));
    }
}

#[test]
fn chart_and_config_name_the_image_of_this_version() {
    let read = |file: &str| -> Value {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    };
    let (chart, config) = (read("charts/winpool/Chart.yaml"), read("config/kustomization.yaml"));
    let tag = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], tag);
    assert_eq!(config["images"][0]["newTag"], tag);
    let workflow = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/.github/workflows/release.yaml"));
    assert!(workflow.unwrap().contains(r#""docker://$image:$TAG""#), "the image is pushed with the tag of the release");
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn apis_that_the_server_does_not_serve_are_left_out_and_named() {
    let mut values = NOT_EVERYWHERE.map(|value| format!("{value}.enabled=true")).to_vec();
    values.push("policies.guard.enabled=true".to_owned());
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let (plain, without, with) = tokio::join!(
        template("winpool", NAMESPACE, &["policies.guard.enabled=true"], &[]),
        template("winpool", NAMESPACE, &values, &[]),
        template("winpool", NAMESPACE, &values, &SERVED),
    );
    assert!(without.keys().eq(plain.keys()), "{:?}", without.keys());
    assert!(without.contains_key("ValidatingAdmissionPolicy /winpool-guard-nodes"));
    // Four components of the first kind: two have a policy for pods and one for DaemonSets, and assign-class has two for pods.
    let count = |kind: &str| with.keys().filter(|name| name.split(' ').next() == Some(kind)).count();
    let kinds = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "PodMonitor", "PrometheusRule"];
    assert_eq!(kinds.map(count), [7, 7, 1, 1]);

    // Helm shows notes only for an installation, and assumes an API server without these APIs.
    let mut arguments = vec!["install", "winpool", CHART, "--namespace", NAMESPACE, "--dry-run=client"];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    let directory = tempfile::tempdir().unwrap();
    let shown = Component::Helm.run(&directory.path().join("none"), &arguments).await.unwrap();
    let named: Vec<&str> =
        shown.lines().filter_map(|line| line.split_once(" is LEFT OUT: ")).map(|(name, _)| name).collect();
    assert_eq!(named, NOT_EVERYWHERE);
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn an_api_server_that_is_too_old_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (version, accepted) in [("1.32.9", false), ("1.33.0", true), ("1.36.3-gke.1", true)] {
        let arguments = ["template", CHART, "--kube-version", version];
        let result = Component::Helm.run(&directory.path().join("none"), &arguments).await;
        assert_eq!(result.is_ok(), accepted, "{version}: {:?}", result.err());
    }
}

/// The object without the fields that only Helm adds: its labels, the resource policy, and the hook.
async fn of_chart(values: &[&str]) -> BTreeMap<String, Value> {
    let mut objects = template("winpool", NAMESPACE, values, &SERVED).await;
    objects.retain(|_, object| object["metadata"]["annotations"]["helm.sh/hook"].is_null());
    for object in objects.values_mut() {
        let labels = object["metadata"]["labels"].as_object_mut().unwrap();
        assert_eq!(labels.remove("app.kubernetes.io/managed-by").unwrap(), "Helm");
        for label in ["helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version"] {
            labels.remove(label).unwrap();
        }
        if object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" {
            object["metadata"].as_object_mut().unwrap().remove("annotations");
        }
    }
    objects
}

/// The object without differences by design: `--create-namespace` creates the namespace, and a hook cleans up before
/// anything is deleted, so no object needs a finalizer.
async fn of_config(components: &[&str]) -> BTreeMap<String, Value> {
    let directory = tempfile::tempdir().unwrap();
    let root = format!("{}{CONFIG}", "../".repeat(directory.path().components().count() - 1).trim_end_matches('/'));
    let components: Vec<String> = components.iter().map(|name| format!("{root}/components/{name}")).collect();
    let kustomization = json!({"resources": [root], "components": components});
    std::fs::write(directory.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let arguments = ["kustomize", directory.path().to_str().unwrap()];
    let mut objects = parse(&Component::Kubectl.run(&directory.path().join("none"), &arguments).await.unwrap());
    assert!(objects.remove(&format!("Namespace /{NAMESPACE}")).is_some());
    let mut held_back = Vec::new();
    for (name, object) in &mut objects {
        if object["metadata"].as_object_mut().unwrap().remove("finalizers").is_some() {
            held_back.push(name.split(' ').next().unwrap());
        }
    }
    assert_eq!(held_back, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"]);
    objects
}
