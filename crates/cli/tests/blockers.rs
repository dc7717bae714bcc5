//! `winpool blockers`: what is pinned, what is not known, and what can move.

use std::process::Command;

use serde_json::{Value, json};

use crate::input::with_input;

fn blockers(objects: &[Value], arguments: &[&str]) -> (Option<i32>, String, String) {
    let input: Vec<String> = objects.iter().map(Value::to_string).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.env("COLUMNS", "80");
    command.args(["blockers", "-f", "-"]).args(arguments).env("KUBECONFIG", "/nonexistent");
    let output = with_input(&mut command, &input.join("\n---\n"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn node(name: &str, build: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}},
        "status": {"nodeInfo": {
            "operatingSystem": "windows", "kernelVersion": format!("10.0.{build}.1"), "containerRuntimeVersion": "containerd://2.0.4",
        }},
    })
}

fn deployment(name: &str, image: &str) -> Value {
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": image}]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"template": {"spec": spec}},
    })
}

/// A pod of this `ReplicaSet` or `Job` whose container runs on this node.
fn running(kind: &str, owner: &str, node: &str) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{owner}-1"), "namespace": "shop", "labels": {"pod-template-hash": "6d5f9"},
            "ownerReferences": [{"apiVersion": version, "kind": kind, "name": owner, "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running", "containerStatuses": [
            {"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]},
    })
}

#[test]
fn a_version_is_not_free_while_a_pod_runs_there_that_may_run_nowhere_else() {
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "report", "namespace": "shop"},
        "spec": {"jobTemplate": deployment("report", "report:1")},
    });
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "report-1", "namespace": "shop", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "CronJob", "name": "report", "uid": "u", "controller": true}]},
        "spec": deployment("report", "report:1")["spec"],
    });
    let objects = [
        node("old", 17763),
        node("new", 20348),
        deployment("erp", "registry.example/erp:7.3"),
        running("ReplicaSet", "erp-6d5f9", "old"),
        deployment("idle", "registry.example/idle:1"),
        cron_job,
        job,
        running("Job", "report-1", "old"),
    ];
    let (code, out, error) = blockers(&objects, &["--retire", "2019", "--move-to", "2022"]);
    assert_eq!((code, error.as_str()), (Some(2), ""), "{out}");
    insta::assert_snapshot!(out);
    let (_, json, _) = blockers(&objects, &["--retire", "2019", "--move-to", "2022", "-o", "json"]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["unknown"][0]["object"], json!({"kind": "Deployment", "namespace": "shop", "name": "erp"}));

    // Windows Server 2025 runs images of 2022, so what starts on 2022 can move.
    let newer = |object: &Value| match object["metadata"]["name"].as_str() {
        Some("old") => node("old", 20348),
        Some("new") => node("new", 26100),
        _ => object.clone(),
    };
    let newer: Vec<Value> = objects.iter().map(newer).collect();
    let (code, out, _) = blockers(&newer, &["--retire", "2022", "--move-to", "2025"]);
    assert_eq!(code, Some(2), "{out}");
    assert!(out.contains("These can move") && out.contains("it starts here"), "{out}");
    assert!(
        out.contains("Not assessed: 1 workload\n  stdin:9: Deployment shop/idle"),
        "nothing shows where it starts: {out}"
    );
}

#[test]
fn a_version_is_replaced_by_a_newer_one_only() {
    for target in ["2019", "2016"] {
        let (code, _, error) = blockers(&[node("old", 17763)], &["--retire", "2019", "--move-to", target]);
        assert_eq!(code, Some(1));
        assert!(error.starts_with("winpool: --move-to has to be a newer version"), "{error}");
    }
}

#[test]
fn manifests_without_workloads_do_not_show_that_nothing_is_pinned() {
    let (code, out, _) = blockers(&[node("old", 17763)], &["--retire", "2019"]);
    assert_eq!(code, Some(2), "{out}");
    assert!(out.contains("Nothing is known to be pinned to it."), "{out}");
    assert!(out.contains("winpool cannot tell which workloads are pinned to it"), "{out}");
    let (code, out, _) = blockers(&[node("old", 17763), deployment("web", "web:ltsc2022")], &["--retire", "2019"]);
    assert_eq!(code, Some(0), "{out}");
}
