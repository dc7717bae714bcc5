//! `--assume`: answers about nodes that run another Windows version.

use std::process::Command;

use serde_json::{Value, json};

use crate::input::with_input;

const SKU: &str = "kubernetes.azure.com/os-sku";

/// A node of AKS with this system and SKU.
fn node(name: &str, system: &str, sku: &str, build: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/os": system, "kubernetes.io/arch": "amd64", SKU: sku,
            "node.kubernetes.io/windows-build": build, "kubernetes.azure.com/node-image-version": "AKSWindows-1",
        }},
        "status": {"nodeInfo": {"operatingSystem": system, "kernelVersion": format!("{build}.1")}},
    })
}

fn answer(arguments: &[&str]) -> (Option<i32>, String, String) {
    let pinned = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"spec": {
            "nodeSelector": {"kubernetes.io/os": "windows", SKU: "Windows2022"},
            "containers": [{"name": "c", "image": "web:ltsc2022"}],
        }}},
    });
    let win = node("win", "windows", "Windows2022", "10.0.20348");
    let input = [win, node("linux", "linux", "Ubuntu", "5.15.0"), pinned].map(|object| object.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    command.args(arguments).args(["-f", "-"]).env("KUBECONFIG", "/nonexistent");
    let output = with_input(&mut command, &input.join("\n---\n"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_selector_by_the_version_of_today_matches_no_node_after_the_upgrade() {
    let why = |more: &[&str]| answer(&[&["why", "deployment/web", "-n", "shop", "-o", "json"], more].concat());
    let schedulable = |out: &str| {
        let answer: Value = serde_json::from_str(out).unwrap();
        answer["nodes"].as_array().unwrap().iter().filter(|node| node["possible"] == true).count()
    };
    let (_, out, _) = why(&[]);
    assert_eq!(schedulable(&out), 1, "{out}");
    let (_, out, _) = why(&["--assume", "kubernetes.azure.com/os-sku=Windows2022:2025"]);
    assert_eq!(schedulable(&out), 0, "{out}");
    for part in
        ["win runs Windows Server 2025", "kubernetes.azure.com/node-image-version", "the update level of the new nodes"]
    {
        assert!(out.contains(part), "{out}");
    }
}

/// Otherwise a file with it looks like an answer about the cluster as it is.
#[test]
fn an_answer_says_what_it_assumes() {
    for command in [&["check"][..], &["status"], &["why", "node/win"], &["blockers", "--retire", "2022"]] {
        for format in ["text", "json"] {
            let assumed = ["-o", format, "--assume", "kubernetes.azure.com/os-sku=Windows2022:2025"];
            let (_, out, _) = answer(&[command, &assumed].concat());
            let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("This is the answer if win runs Windows Server 2025"), "{command:?}: {out}");
        }
    }
}

/// With `Compatible`, and after a class was renamed, pods select a label that stays on the node.
#[test]
fn a_label_that_the_new_version_serves_stays_on_the_node() {
    const LABEL: &str = "runs.winpool.dev/10.0.20348";
    let possible = |runtime: &str, version: &str, format: &str| {
        let mut win = node("win", "windows", "Windows2022", "10.0.20348");
        win["metadata"]["labels"][LABEL] = json!("true");
        win["status"]["nodeInfo"]["containerRuntimeVersion"] = json!(runtime);
        let selector = json!({"kubernetes.io/os": "windows", LABEL: "true"});
        let class = json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "windows-2022"},
            "handler": "runhcs-wcow-process", "scheduling": {"nodeSelector": selector},
        });
        let pool = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default", "uid": "1"},
            "spec": {"runtimeClassHostMatch": "Compatible", "runtimeClassNameFormat": format},
        });
        let web = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"template": {"spec": {
                "runtimeClassName": "windows-2022", "containers": [{"name": "c", "image": "web:ltsc2022"}],
            }}},
        });
        let input = [win, class, pool, web].map(|object| object.to_string()).join("\n---\n");
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        let assumed = format!("{SKU}=Windows2022:{version}");
        command.args(["why", "deployment/web", "-n", "shop", "-o", "json", "-f", "-", "--assume", &assumed]);
        let output = with_input(command.env("KUBECONFIG", "/nonexistent"), &input);
        let answer: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        answer["nodes"][0]["possible"] == true
    };
    let usual = "windows-{version}";
    assert!(possible("containerd://2.0.4", "2025", usual));
    assert!(possible("containerd://2.0.4", "2025", "win-{version}"), "the class was renamed");
    assert!(!possible("containerd://1.7.17", "2025", usual), "this containerd does not run the images");
    assert!(!possible("containerd://2.0.4", "2019", usual), "an older version does not run the images");
}

#[test]
fn an_assumption_that_cannot_be_made_is_an_error() {
    for (assumptions, part) in [
        (&["pool=none:2025"][..], "no node that winpool knows has these labels"),
        (&["kubernetes.io/arch=amd64:2025"], "does not run Windows"),
        (&["kubernetes.io/os=windows:2025", "kubernetes.io/os=windows:2019"], "two versions"),
        (&["kubernetes.io/os=windows"], "is not SELECTOR:VERSION"),
        (&["kubernetes.io/os=windows:2031"], "is not a Windows version"),
    ] {
        let arguments: Vec<&str> =
            ["status"].into_iter().chain(assumptions.iter().flat_map(|one| ["--assume", *one])).collect();
        let (code, out, told) = answer(&arguments);
        assert!(code == Some(1) && out.is_empty(), "{assumptions:?}: {code:?} {out}");
        assert!(told.contains(part), "{assumptions:?}: {told}");
    }
}
