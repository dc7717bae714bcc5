//! Examples for the rules, for the tests here and for tests on an API server.

use serde_json::{Value, json};
use winpool_analysis::lint::rule::Test;
use winpool_analysis::lint::{Rule, rules};

/// Fields of pod specs that break one rule, and others that are close and break none.
pub struct Examples {
    pub rule: &'static Rule,
    pub breaks: Vec<Value>,
    pub keeps: Vec<Value>,
}

/// The examples in the comments of the rules about pods.
pub fn examples() -> impl Iterator<Item = Examples> {
    let about_pods = rules().filter(|rule| !matches!(rule.test, Test::Object(_)));
    about_pods.map(|rule| Examples { rule, breaks: of(rule, "Breaks"), keeps: of(rule, "Keeps") })
}

/// The examples of a rule after this label.
pub fn of(rule: &Rule, label: &str) -> Vec<Value> {
    let examples = rule.examples().filter(|(own, _)| *own == label);
    examples.map(|(_, fields)| serde_yaml::from_str(&format!("{{{fields}}}")).unwrap()).collect()
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
