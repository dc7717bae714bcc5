//! Generated pod specs that set fields which the rules check, alone or combined.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde::Deserialize;
use serde_json::{Value, json};

/// Fields by their path, each with some values.
pub type Fields = BTreeMap<String, Vec<Value>>;

#[derive(Deserialize)]
pub struct AllFields {
    pub pod: Fields,
    pub container: Fields,
    unsupported: Fields,
    system: Fields,
}

pub static FIELDS: LazyLock<AllFields> = LazyLock::new(|| serde_yaml::from_str(include_str!("fields.yaml")).unwrap());

/// A pod spec with two containers and an init container.
pub fn pod() -> Value {
    let container = |name: &str| json!({"name": name, "image": "example.com/app:1.0"});
    json!({"containers": [container("a"), container("b")], "initContainers": [container("i")]})
}

/// Sets a value deep in an object; what is missing on the way, or null, becomes an object.
pub fn set(object: &mut Value, path: &str, value: &Value) {
    let mut place = object;
    for key in path.split('.') {
        if place.is_null() {
            *place = json!({});
        }
        place = if let Ok(index) = key.parse::<usize>() { &mut place[index] } else { &mut place[key] };
    }
    *place = value.clone();
}

fn set_all(pod: &mut Value, prefix: &str, fields: &Fields, chance: f64, runner: &mut TestRunner) {
    for (path, values) in fields {
        if draw(runner, &prop::bool::weighted(chance)) {
            let value = draw(runner, &select(values.clone()));
            set(pod, &format!("{prefix}{path}"), &value);
        }
    }
}

pub fn draw<T>(runner: &mut TestRunner, strategy: &impl Strategy<Value = T>) -> T {
    strategy.new_tree(runner).unwrap().current()
}

/// A pod for Windows with some of the fields that the API server looks at.
pub fn refused(runner: &mut TestRunner, os: &str) -> Value {
    let mut pod = pod();
    pod["os"] = json!({"name": os});
    set_all(&mut pod, "", &FIELDS.pod, 0.12, runner);
    for prefix in ["containers.0.", "containers.1.", "initContainers.0."] {
        set_all(&mut pod, prefix, &FIELDS.container, 0.08, runner);
    }
    pod
}

/// A pod that may or may not be for Windows, with some of everything.
pub fn any(runner: &mut TestRunner) -> Value {
    let mut pod = pod();
    set_all(&mut pod, "", &FIELDS.pod, 0.06, runner);
    set_all(&mut pod, "containers.0.", &FIELDS.container, 0.06, runner);
    set_all(&mut pod, "", &FIELDS.unsupported, 0.3, runner);
    set_all(&mut pod, "", &FIELDS.system, 0.4, runner);
    if pod["volumes"][0]["persistentVolumeClaim"].is_object() {
        pod["containers"][0]["volumeMounts"] = Value::Null;
        pod["containers"][0]["volumeDevices"] = json!([{"name": "v", "devicePath": "/dev/v"}]);
    }
    if pod["containers"][0]["volumeMounts"].is_array() && !pod["volumes"].is_array() {
        pod["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    }
    pod
}
