//! The objects that the chart renders.

use std::collections::BTreeMap;

use serde_json::Value;
use winpool_e2e::machine::assets::Component;

use super::scene::CHART;

/// The APIs for which the chart looks on an API server.
pub const SERVED: [&str; 2] = ["admissionregistration.k8s.io/v1/MutatingAdmissionPolicy", "monitoring.coreos.com/v1"];

/// The chart's objects for an API server with these APIs.
pub async fn template(release: &str, namespace: &str, values: &[&str], served: &[&str]) -> BTreeMap<String, Value> {
    template_by(Component::Helm, release, namespace, values, served).await
}

/// The same by this version of Helm.
pub async fn template_by(
    helm: Component,
    release: &str,
    namespace: &str,
    values: &[&str],
    served: &[&str],
) -> BTreeMap<String, Value> {
    // Helm 3 knows a current version of Kubernetes only from the linker.
    let mut arguments = vec!["template", release, CHART, "--namespace", namespace, "--kube-version", "1.37.0"];
    for value in values {
        // A file of values is given as a flag, and a single value by name.
        let flag = if value.starts_with("--") { vec![*value] } else { vec!["--set", *value] };
        arguments.extend(flag);
    }
    arguments.extend(served.iter().flat_map(|version| ["--api-versions", version]));
    let directory = tempfile::tempdir().unwrap();
    parse(&helm.run(&directory.path().join("none"), &arguments).await.unwrap())
}

/// Objects by kind, namespace and name.
pub fn parse(manifests: &str) -> BTreeMap<String, Value> {
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

/// Lists the differences between two values, one line each.
pub fn differ(path: &str, before: &Value, after: &Value, differences: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                let of = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                differ(&format!("{path}.{key}"), &of(before), &of(after), differences);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                differ(&format!("{path}[{index}]"), before, after, differences);
            }
        }
        // kustomize adds line breaks to folded text. CEL ignores them.
        (Value::String(before), Value::String(after))
            if path.ends_with(".expression") && before.split_whitespace().eq(after.split_whitespace()) => {}
        _ if before == after => {}
        _ => differences.push(format!("{path}: {before} -> {after}")),
    }
}
