//! Examples for the rules, for the tests here and for tests on an API server.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

/// Pod specs that break one rule, and others that are close and break none.
#[derive(Deserialize)]
pub struct Examples {
    pub breaks: Vec<Value>,
    #[serde(default)]
    pub keeps: Vec<Value>,
}

/// The examples by rule.
pub fn examples() -> BTreeMap<String, Examples> {
    serde_yaml::from_str(include_str!("examples.yaml")).unwrap()
}

/// The pod of `os.name: windows` with this merged into its spec. It breaks no other rule.
pub fn windows(spec: &Value) -> Value {
    let mut pod = json!({
        "os": {"name": "windows"}, "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [{"key": "os", "operator": "Exists"}],
    });
    pod.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    complete(pod.get_mut("volumes"), &json!({"name": "v"}));
    complete(pod.get_mut("containers"), &json!({"name": "c", "image": "example.com/app:1.0"}));
    for container in items(pod.get_mut("containers")) {
        complete(container.get_mut("volumeMounts"), &json!({"name": "v", "mountPath": "/v"}));
    }
    pod
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Adds what the items of a list leave out.
fn complete(list: Option<&mut Value>, all: &Value) {
    for item in items(list) {
        for (field, value) in all.as_object().unwrap() {
            item.as_object_mut().unwrap().entry(field).or_insert_with(|| value.clone());
        }
    }
}
