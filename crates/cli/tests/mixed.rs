//! Clusters with several Windows versions, and with taints in other spellings: the commands give one answer.

use std::process::Command;

use serde_json::{Value, json};

use crate::input::with_input;

/// A Windows node with this build, containerd and value of the taint `os`.
fn node(name: &str, build: &str, containerd: &str, taint: Option<&str>) -> Value {
    let taints: Vec<Value> =
        taint.iter().map(|value| json!({"key": "os", "value": value, "effect": "NoSchedule"})).collect();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
            "node.kubernetes.io/windows-build": build,
        }},
        "spec": {"taints": taints},
        "status": {"nodeInfo": {
            "operatingSystem": "windows", "kernelVersion": format!("{build}.2000"),
            "containerRuntimeVersion": format!("containerd://{containerd}"),
        }},
    })
}

/// A Deployment for Windows with this image, which tolerates these values of the taint `os`.
fn deployment(image: &str, tolerated: &[&str]) -> Value {
    let tolerations: Vec<Value> = tolerated
        .iter()
        .map(|value| json!({"key": "os", "operator": "Equal", "value": value, "effect": "NoSchedule"}))
        .collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": tolerations,
                "containers": [{"name": "app", "image": image}],
            },
        }},
    })
}

fn pool() -> Value {
    json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": {}})
}

/// The JSON answer of a command.
fn answer(arguments: &[&str], objects: &[Value]) -> Value {
    let input: Vec<String> = objects.iter().map(Value::to_string).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    let command = command.args(arguments).args(["-f", "-", "-o", "json"]).env("KUBECONFIG", "/nonexistent");
    let output = with_input(command, &input.join("\n---\n"));
    let error = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|invalid| panic!("{arguments:?}: {invalid}: {}", error()))
}

/// The rules that the Deployment breaks, with their messages.
fn broken(objects: &[Value]) -> Vec<(String, String)> {
    let report = answer(&["check", "--min-severity", "warning"], objects);
    let text = |found: &Value, field: &str| found[field].as_str().unwrap().to_owned();
    report["findings"].as_array().unwrap().iter().map(|found| (text(found, "rule"), text(found, "message"))).collect()
}

fn why(objects: &[Value]) -> Value {
    answer(&["why", "deployment/web", "-n", "shop"], objects)
}

#[test]
fn pods_have_to_tolerate_the_taint_in_the_spelling_that_the_nodes_have() {
    let cluster = [node("win", "10.0.17763", "1.7.28", Some("Win2019")), pool()];
    let with = |tolerated: &[&str]| [&cluster[..], &[deployment("example.com/web:ltsc2019", tolerated)]].concat();
    assert_eq!(broken(&with(&["Win2019"])), []);
    assert!(why(&with(&["Win2019"]))["remedy"].is_null());
    let plan = answer(&["plan"], &with(&["Win2019"]));
    assert!(!plan["nodes"].to_string().contains("os=windows:NoSchedule"), "no second taint: {plan}");
    let [(rule, message)] = broken(&with(&["windows-2019"])).try_into().unwrap();
    assert_eq!(rule, "toleration-missing");
    assert_eq!(
        message,
        "the pod does not tolerate the taints of any Windows node that it selects: os=Win2019:NoSchedule; the pod tolerates \
         os=windows-2019, another spelling"
    );
    // winpool adds no toleration of a taint that no pool wants and whose spelling it does not know.
    let helped = answer(&["plan"], &with(&["windows-2019"]));
    assert_eq!(helped["summary"]["pools"][0]["helped"].as_array().map(Vec::len), Some(1), "{helped}");
    let node = answer(&["why", "node/win"], &with(&[]));
    assert_eq!(node["taints"][0]["origin"], "another writer; by its key and value it marks Windows nodes", "{node}");
}
