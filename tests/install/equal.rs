//! The chart and `config/` are written twice and say the same.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use winpool_e2e::Component;

use crate::scene::{CHART, CONFIG};

/// Values of the chart, and the components of `config/` that are the same.
const SAME: [(&[&str], &[&str]); 2] = [(&[], &[]), (&["networkPolicy.enabled=true"], &["network-policy"])];

#[tokio::test]
async fn the_chart_and_config_say_the_same() {
    for (values, components) in SAME {
        let (chart, config) = (of_chart(values).await, of_config(components).await);
        let names = |objects: &BTreeMap<String, Value>| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&chart), names(&config), "{values:?} and {components:?}");
        let mut differences = Vec::new();
        for (name, object) in &config {
            differ(name, object, &chart[name], &mut differences);
        }
        assert!(differences.is_empty(), "{values:?} and {components:?}:\n{}", differences.join("\n"));
    }
}

#[tokio::test]
async fn the_chart_passes_helms_own_check_and_refuses_values_that_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("none");
    Component::Helm.run(&kubeconfig, &["lint", "--strict", CHART]).await.unwrap();
    for (value, word) in [
        ("replica=3", "replica"),
        ("image.name=x", "name"),
        ("replicas=many", "replicas"),
        ("image.digest=sha256:1", "digest"),
        ("crds.keep=1", "keep"),
    ] {
        let refused = Component::Helm.run(&kubeconfig, &["template", CHART, "--set", value]).await.unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("values don't meet the specifications") && refused.contains(word), "{refused}");
    }
}

#[tokio::test]
async fn values_reach_the_pods_and_another_release_name_reaches_all_objects() {
    let values =
        ["image.digest=sha256:".to_owned() + &"0".repeat(64), "args={--log-format=json}".into(), "replicas=1".into()];
    let mut arguments = vec!["template", "other", CHART, "--namespace", "elsewhere"];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    let folder = tempfile::tempdir().unwrap();
    let objects = parse(&Component::Helm.run(&folder.path().join("none"), &arguments).await.unwrap());
    let deployment = &objects["Deployment elsewhere/other-winpool"];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("ghcr.io/winpool/winpool@sha256:{}", "0".repeat(64)));
    assert_eq!(container["args"], serde_json::json!(["run", "--log-format=json"]));
    assert_eq!(container["env"][0]["value"], "other-winpool");
    assert_eq!(objects["ClusterRoleBinding /other-winpool"]["subjects"][0]["namespace"], "elsewhere");
    assert!(!objects.keys().any(|name| name.starts_with("PodDisruptionBudget")), "one replica may be evicted");
}

#[test]
fn the_definition_in_the_chart_is_that_in_crds() {
    let read = |path: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
    let file = "winpool.dev_windowspools.yaml";
    assert!(read(&format!("charts/winpool/files/{file}")) == read(&format!("crds/{file}")), "run `make crd`");
}

/// Without what only Helm knows: its labels, whether an object stays, and the hook.
async fn of_chart(values: &[&str]) -> BTreeMap<String, Value> {
    let mut arguments = vec!["template", "winpool", CHART, "--namespace", "winpool-system"];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    let folder = tempfile::tempdir().unwrap();
    let mut objects = parse(&Component::Helm.run(&folder.path().join("none"), &arguments).await.unwrap());
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

/// Without what Helm does in other ways: the namespace is made by `--create-namespace`, and the hook cleans up before
/// anything is deleted, so nothing has to be held back.
async fn of_config(components: &[&str]) -> BTreeMap<String, Value> {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("{}{CONFIG}", "../".repeat(folder.path().components().count() - 1).trim_end_matches('/'));
    let components: Vec<String> = components.iter().map(|name| format!("{root}/components/{name}")).collect();
    let kustomization = serde_json::json!({"resources": [root], "components": components});
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let arguments = ["kustomize", folder.path().to_str().unwrap()];
    let mut objects = parse(&Component::Kubectl.run(&folder.path().join("none"), &arguments).await.unwrap());
    assert!(objects.remove("Namespace /winpool-system").is_some());
    let mut held_back = Vec::new();
    for (name, object) in &mut objects {
        if object["metadata"].as_object_mut().unwrap().remove("finalizers").is_some() {
            held_back.push(name.split(' ').next().unwrap());
        }
    }
    assert_eq!(held_back, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"]);
    objects
}

/// Objects by kind, namespace and name.
fn parse(manifests: &str) -> BTreeMap<String, Value> {
    let objects: Vec<Value> = serde_yaml::from_multiple(manifests).unwrap();
    let objects = objects.into_iter().filter(|object| !object.is_null());
    let text =
        |object: &Value, pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    objects
        .map(|object| {
            let [kind, namespace, name] =
                ["/kind", "/metadata/namespace", "/metadata/name"].map(|pointer| text(&object, pointer));
            (format!("{kind} {namespace}/{name}"), object)
        })
        .collect()
}

/// Collects where two values differ, as a line each.
fn differ(path: &str, config: &Value, chart: &Value, differences: &mut Vec<String>) {
    match (config, chart) {
        (Value::Object(config), Value::Object(chart)) => {
            let keys: std::collections::BTreeSet<&String> = config.keys().chain(chart.keys()).collect();
            for key in keys {
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                differ(&format!("{path}.{key}"), &of(config), &of(chart), differences);
            }
        }
        (Value::Array(config), Value::Array(chart)) if config.len() == chart.len() => {
            for (index, (config, chart)) in config.iter().zip(chart).enumerate() {
                differ(&format!("{path}[{index}]"), config, chart, differences);
            }
        }
        _ if config == chart => {}
        _ => differences.push(format!("{path}: config/ has {config}, the chart has {chart}")),
    }
}
