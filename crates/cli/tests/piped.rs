//! Output into a pipe, for `grep` and other programs: one line for each row or sentence.

use std::process::Command;

use serde_json::{Value, json};

use crate::input::with_input;

/// A name of the greatest length that Kubernetes allows for labels.
fn long(name: &str) -> String {
    format!("{name}-{}", "0123456789".repeat(7))[..63].to_owned()
}

fn node(name: &str, build: u32) -> Value {
    let labels = json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": format!("10.0.{build}")});
    let info =
        json!({"kernelVersion": format!("10.0.{build}.1"), "operatingSystem": "windows", "architecture": "amd64"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": {"nodeInfo": info}})
}

/// Nodes, a pool, workloads and a `NodePool`, all with long names.
fn manifests() -> String {
    let pod = json!({
        "nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"},
        "containers": [{"name": long("container"), "image": format!("registry.example/{}:ltsc2019", long("image"))}],
    });
    let deployment = |name: &str| {
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
        let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": template});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": long("shop")}, "spec": spec})
    };
    let mut silent = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": long("silent"), "namespace": long("shop")},
        "spec": {"nodeName": long("old-a"), "containers": [{"name": "c", "image": "app:1"}]},
    });
    silent["status"] = json!({"phase": "Running", "containerStatuses": [
        {"name": "c", "image": "app:1", "imageID": "", "restartCount": 0, "ready": true, "state": {"running": {}}},
    ]});
    let node_pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": long("node-pool")},
        "spec": {"template": {"metadata": {"labels": {"team": "a"}}, "spec": {"requirements": [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]},
        ]}}},
    });
    let objects = [
        json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": {}}),
        node(&long("old-a"), 17763),
        node(&long("old-b"), 17763),
        node(&long("new-a"), 20348),
        deployment(&long("web")),
        deployment(&long("cart")),
        silent,
        node_pool,
    ];
    objects.map(|object| format!("---\n{object}\n")).concat()
}

/// Runs the command into a pipe. Lines have this width if it is set.
fn piped(arguments: &[&str], columns: Option<&str>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(arguments).env("KUBECONFIG", "/nonexistent").env_remove("COLUMNS");
    command.envs(columns.map(|columns| ("COLUMNS", columns)));
    let output = with_input(&mut command, &manifests());
    assert_ne!(output.status.code(), Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn no_command_wraps_its_output_in_a_pipe() {
    let (shop, node, pod, web) = (long("shop"), long("old-a"), long("silent"), long("web"));
    for arguments in [
        &["builds"][..],
        &["blockers", "--retire", "2019", "--move-to", "2022", "-f", "-"],
        &["check", "-f", "-"],
        &["images", "--offline", "-f", "-"],
        &["plan", "-f", "-"],
        &["status", "-f", "-"],
        &["why", "node", &node, "-f", "-"],
        &["why", "pod", &pod, "-n", &shop, "-f", "-"],
        &["why", "deployment", &web, "-n", &shop, "-f", "-"],
        &["why", "class", "windows-2019", "-f", "-"],
    ] {
        let (text, narrow) = (piped(arguments, None), piped(arguments, Some("80")));
        assert!(narrow.lines().count() > text.lines().count(), "{arguments:?} wraps nothing at 80 columns:\n{text}");
        // With so much room no line needs to be wrapped.
        assert_eq!(text, piped(arguments, Some("1000")), "{arguments:?}");
    }
    // Its lines are YAML, which winpool never wraps.
    let rendered = piped(&["render", "karpenter", "--windows", "2019", "-f", "-"], None);
    assert_eq!(rendered, piped(&["render", "karpenter", "--windows", "2019", "-f", "-"], Some("80")));
}
