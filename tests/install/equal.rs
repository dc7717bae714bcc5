//! The chart and `config/` are written twice and say the same.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};
use winpool_e2e::Component;

use crate::scene::{CHART, CONFIG, NAMESPACE};

/// Values of the chart, and the components of `config/` that are the same.
const SAME: [(&[&str], &[&str]); 10] = [
    (&[], &[]),
    (&["networkPolicy.enabled=true"], &["network-policy"]),
    (&["karpenter.enabled=true"], &["karpenter"]),
    (&["policies.advise.enabled=true"], &["advise"]),
    (&["policies.assignClass.enabled=true"], &["assign-class"]),
    (&["policies.bornTainted.enabled=true"], &["born-tainted"]),
    (&["policies.guard.enabled=true"], &["guard"]),
    (&["policies.linuxByDefault.enabled=true"], &["linux-by-default"]),
    (&["policies.tolerateWindows.enabled=true"], &["tolerate-windows"]),
    (
        &[
            "monitoring.podMonitor.enabled=true",
            "monitoring.prometheusRule.enabled=true",
            "monitoring.dashboard.enabled=true",
        ],
        &["monitoring"],
    ),
];

/// What the chart looks for on an API server.
const SERVED: [&str; 2] = ["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", "monitoring.coreos.com/v1"];

/// All that is left out where the API server has nothing of that.
const NOT_EVERYWHERE: [&str; 6] = [
    "policies.assignClass",
    "policies.bornTainted",
    "policies.linuxByDefault",
    "policies.tolerateWindows",
    "monitoring.podMonitor",
    "monitoring.prometheusRule",
];

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
        ("policies.warn.enabled=true", "warn"),
        ("policies.guard.pool=default", "pool"),
        ("policies.guard.taintKeys={o's}", "taintKeys"),
        ("policies.guard.handlers={Runc}", "handlers"),
        ("policies.assignClass.excludedNamespaces=ci", "excludedNamespaces"),
        ("monitoring.dashboard=true", "dashboard"),
    ] {
        let refused = Component::Helm.run(&kubeconfig, &["template", CHART, "--set", value]).await.unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains("values don't meet the specifications") && refused.contains(word), "{refused}");
    }
}

#[tokio::test]
async fn values_reach_the_pods_and_another_release_name_reaches_all_objects() {
    let digest = "image.digest=sha256:".to_owned() + &"0".repeat(64);
    let objects = template("other", "elsewhere", &[&digest, "args={--log-format=json}", "replicas=1"], &[]).await;
    let deployment = &objects["Deployment elsewhere/other-winpool"];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("ghcr.io/winpool/winpool@sha256:{}", "0".repeat(64)));
    assert_eq!(container["args"], json!(["run", "--log-format=json"]));
    assert_eq!(container["env"][0]["value"], "other-winpool");
    assert_eq!(objects["ClusterRoleBinding /other-winpool"]["subjects"][0]["namespace"], "elsewhere");
    assert!(!objects.keys().any(|name| name.starts_with("PodDisruptionBudget")), "one replica may be evicted");
}

#[tokio::test]
async fn values_reach_the_policies_and_what_a_prometheus_selects_by() {
    let values = [
        "policies.assignClass.enabled=true",
        "policies.assignClass.pool=legacy",
        "policies.tolerateWindows.enabled=true",
        "policies.tolerateWindows.excludedNamespaces={ci}",
        "policies.guard.enabled=true",
        "policies.guard.taintKeys={os,example.com/windows}",
        "policies.guard.handlers={runc}",
        "monitoring.podMonitor.enabled=true",
        "monitoring.labels.release=prometheus",
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
        assert_eq!(of(&mutating(name), namespaces), &json!(["kube-system", "elsewhere", "ci"]));
    }
    for name in ["nodes", "runtimeclasses", "pools"] {
        let policy = format!("ValidatingAdmissionPolicy /winpool-guard-{name}");
        assert_eq!(of(&policy, "/spec/matchConditions/0/expression"), user);
    }
    assert_eq!(of("ValidatingAdmissionPolicy /winpool-guard-nodes", variable), "['os', 'example.com/windows']");
    assert_eq!(of("ValidatingAdmissionPolicy /winpool-guard-runtimeclasses", variable), "['runc']");
    assert_eq!(of("PodMonitor elsewhere/other-winpool", "/metadata/labels/release"), "prometheus");
}

#[tokio::test]
async fn what_the_api_server_does_not_have_is_left_out_and_named() {
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

    // Helm shows notes of an installation only. Its own idea of an API server has nothing of that.
    let mut arguments = vec!["install", "winpool", CHART, "--namespace", NAMESPACE, "--dry-run=client"];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    let folder = tempfile::tempdir().unwrap();
    let shown = Component::Helm.run(&folder.path().join("none"), &arguments).await.unwrap();
    let named: Vec<&str> =
        shown.lines().filter_map(|line| line.split_once(" is LEFT OUT: ")).map(|(name, _)| name).collect();
    assert_eq!(named, NOT_EVERYWHERE);
}

#[tokio::test]
async fn an_api_server_that_is_too_old_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (version, accepted) in [("1.32.9", false), ("1.33.0", true), ("1.36.3-gke.1", true)] {
        let arguments = ["template", CHART, "--kube-version", version];
        let result = Component::Helm.run(&folder.path().join("none"), &arguments).await;
        assert_eq!(result.is_ok(), accepted, "{version}: {:?}", result.err());
    }
}

#[test]
fn what_the_chart_has_copies_of_is_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut copies = Vec::new();
    let definition = "winpool.dev_windowspools.yaml";
    copies.push((root.join("charts/winpool/files").join(definition), root.join("crds").join(definition)));
    for folder in std::fs::read_dir(root.join("charts/winpool/files/components")).unwrap() {
        let folder = folder.unwrap();
        for file in std::fs::read_dir(folder.path()).unwrap() {
            let file = file.unwrap();
            let original = root.join("config/components").join(folder.file_name()).join(file.file_name());
            copies.push((file.path(), original));
        }
    }
    for (copy, original) in &copies {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert!(read(copy) == read(original), "{copy:?} is old: run `make chart-files`");
    }
    assert_eq!(copies.len(), 10);
}

/// What the chart says for an API server that serves this.
async fn template(release: &str, namespace: &str, values: &[&str], served: &[&str]) -> BTreeMap<String, Value> {
    let mut arguments = vec!["template", release, CHART, "--namespace", namespace];
    arguments.extend(values.iter().flat_map(|value| ["--set", value]));
    arguments.extend(served.iter().flat_map(|version| ["--api-versions", version]));
    let folder = tempfile::tempdir().unwrap();
    parse(&Component::Helm.run(&folder.path().join("none"), &arguments).await.unwrap())
}

/// Without what only Helm knows: its labels, whether an object stays, and the hook.
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

/// Without what Helm does in other ways: the namespace is made by `--create-namespace`, and the hook cleans up before
/// anything is deleted, so nothing has to be held back.
async fn of_config(components: &[&str]) -> BTreeMap<String, Value> {
    let folder = tempfile::tempdir().unwrap();
    let root = format!("{}{CONFIG}", "../".repeat(folder.path().components().count() - 1).trim_end_matches('/'));
    let components: Vec<String> = components.iter().map(|name| format!("{root}/components/{name}")).collect();
    let kustomization = json!({"resources": [root], "components": components});
    std::fs::write(folder.path().join("kustomization.yaml"), kustomization.to_string()).unwrap();
    let arguments = ["kustomize", folder.path().to_str().unwrap()];
    let mut objects = parse(&Component::Kubectl.run(&folder.path().join("none"), &arguments).await.unwrap());
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
        // Lines of a folded text come out of kustomize with more breaks between them. CEL does not mind.
        (Value::String(config), Value::String(chart))
            if path.ends_with(".expression") && config.split_whitespace().eq(chart.split_whitespace()) => {}
        _ if config == chart => {}
        _ => differences.push(format!("{path}: config/ has {config}, the chart has {chart}")),
    }
}
