//! Manifests that are judged by a snapshot of a cluster or by the cluster itself, and two clusters that are compared.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::lending::lend;

use crate::access::winpool;
use crate::agreement::{clusters, pools, workloads};

/// Runs winpool in this directory. Returns the exit code, the output and the errors.
fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    let output = command.args(arguments).current_dir(directory).env("KUBECONFIG", "/nonexistent").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn write(directory: &Path, file: &str, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(directory.join(file), list.to_string()).unwrap();
}

/// Writes the snapshot of these objects.
fn snapshot(directory: &Path, file: &str, objects: &[Value], flags: &[&str]) -> String {
    write(directory, "objects.json", objects);
    let (code, text, error) = run(directory, &[&["snapshot", "-f", "objects.json"], flags].concat());
    assert_eq!(code, 0, "{error}");
    fs::write(directory.join(file), &text).unwrap();
    text
}

fn deployment(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}},
    })
}

/// A Deployment for the nodes of this group.
fn in_group(name: &str, group: &str) -> Value {
    let selector = json!({"kubernetes.io/os": "windows", "example.com/group": group});
    let toleration = json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
    let containers = json!([{"name": "c", "image": "registry.example/app:7-ltsc2019"}]);
    deployment(name, &json!({"nodeSelector": selector, "tolerations": [toleration], "containers": containers}))
}

/// The nodes of a cluster in which winpool has done its part, its pool, and a Deployment that selects a group.
fn cluster() -> Vec<Value> {
    let (_, mut objects) = clusters().pop().unwrap();
    let pool = json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": {}});
    objects.extend([pool, in_group("secret-service", "old")]);
    objects
}

#[test]
fn a_snapshot_names_no_node_and_no_workload_and_is_the_same_for_the_same_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let mut objects = cluster();
    let text = snapshot(directory.path(), "a.yaml", &objects, &[]);
    for name in ["win-old", "win-new", "secret-service", "shop", "hostname"] {
        assert!(!text.contains(name), "{name}: {text}");
    }
    assert!(text.contains("example.com/group: old") && text.contains("name: default"), "{text}");
    objects.reverse();
    assert_eq!(snapshot(directory.path(), "b.yaml", &objects, &[]), text);

    // The user may keep more.
    let labels = json!({
        "pod-security.kubernetes.io/enforce": "baseline", "istio-injection": "enabled", "owner": "alice",
    });
    objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": labels}}));
    let text = snapshot(directory.path(), "c.yaml", &objects, &["--namespace", "shop"]);
    assert!(text.contains("enforce: baseline") && text.contains("istio-injection: enabled"), "{text}");
    assert!(!text.contains("alice"), "{text}");
}

#[test]
fn the_nodes_of_a_large_cluster_are_as_many_as_its_groups() {
    let directory = tempfile::tempdir().unwrap();
    let (_, nodes) = clusters().pop().unwrap();
    let many = (0..5000).map(|index| {
        let mut node = nodes[index % 2].clone();
        node["metadata"]["name"] = format!("node-{index}").into();
        node["metadata"]["labels"]["kubernetes.io/hostname"] = format!("node-{index}").into();
        node
    });
    let text = snapshot(directory.path(), "many.yaml", &many.collect::<Vec<_>>(), &[]);
    assert!(text.len() < 4_000 && text.matches("winpool.dev/nodes: \"2500\"").count() == 2, "{text}");
    write(directory.path(), "web.json", &[in_group("web", "old")]);
    let (_, answer, _) = run(
        directory.path(),
        &["why", "deployment/web", "-n", "shop", "-f", "web.json", "--against", "many.yaml", "-o", "json"],
    );
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["nodes"].as_array().unwrap().len(), 5000);
}

#[test]
fn manifests_are_judged_by_a_snapshot_as_by_the_cluster() {
    let directory = tempfile::tempdir().unwrap();
    let (path, workloads) = (directory.path(), workloads());
    write(path, "workloads.json", &workloads);
    let found = |arguments: &[&str]| {
        let (_, answer, error) = run(path, &[arguments, &["-o", "json"]].concat());
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{error}"));
        let part =
            |finding: &Value| (finding["object"]["name"].clone(), finding["rule"].clone(), finding["message"].clone());
        let findings = answer["findings"].as_array().unwrap().iter();
        // A file does not show that there are no other classes.
        let is_about_all = |finding: &&Value| finding["rule"] != "class-not-found";
        findings.filter(is_about_all).map(part).map(|part| format!("{part:?}")).collect::<Vec<_>>()
    };
    for (name, nodes) in clusters() {
        for (of_pools, pools) in pools() {
            let objects = [nodes.clone(), pools, workloads.clone()].concat();
            snapshot(path, "cluster.yaml", &objects, &[]);
            let by_file = found(&["check", "-f", "workloads.json", "-f", "cluster.yaml"]);
            write(
                path,
                "objects.json",
                &[&objects[..nodes.len()], &objects[nodes.len()..objects.len() - workloads.len()]].concat(),
            );
            assert_eq!(by_file, found(&["check", "-f", "workloads.json", "-f", "objects.json"]), "{name}, {of_pools}");
        }
    }
}

#[test]
fn a_change_that_would_not_run_in_the_cluster_is_found_without_access_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    snapshot(path, "cluster.yaml", &cluster(), &[]);
    let (old, new) = (in_group("web", "old"), in_group("web", "new"));
    let of_class = json!({"runtimeClassName": "windows-2016", "containers": [{"name": "c", "image": "app"}]});
    write(path, "before.json", std::slice::from_ref(&old));
    write(path, "after.json", &[new, deployment("batch", &of_class)]);

    let check = |file: &str| run(path, &["check", "-f", file, "--against", "cluster.yaml"]);
    assert_eq!(check("before.json").0, 0, "{}", check("before.json").1);
    let (code, text, _) = check("after.json");
    assert_eq!(code, 2);
    for part in ["there is no RuntimeClass windows-2016", "does not start on hosts of 10.0.20348"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text, _) = run(path, &["diff", "before.json", "after.json", "--against", "cluster.yaml"]);
    assert_eq!(code, 2);
    for part in ["Deployment shop/web (1 -> 0 nodes)", "Only in the second", "Deployment shop/batch does not run"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text, _) = run(path, &["diff", "before.json", "before.json", "--against", "cluster.yaml"]);
    assert_eq!(code, 0, "{text}");
    // Snapshots have no workloads.
    let (code, text, _) = run(path, &["diff", "cluster.yaml", "cluster.yaml", "-f", "before.json"]);
    assert_eq!(code, 0, "{text}");
    let (code, _, error) = run(path, &["diff", "before.json", "after.json"]);
    assert!(code == 1 && error.contains("before.json has no nodes"), "{error}");

    let (code, _, error) = run(path, &["check", "-f", "before.json", "--against", "before.json"]);
    assert!(code == 1 && error.contains("before.json is not a snapshot"), "{error}");
}

#[tokio::test]
async fn manifests_are_judged_by_a_live_cluster_and_why_waits_until_pods_run() {
    let server = lend().await.unwrap();
    SimulatedNode::server_2022("win").join(&server.client()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let spec = json!({
        "nodeSelector": {"kubernetes.io/os": "windows", "example.com/group": "new"},
        "containers": [{"name": "c", "image": "registry.example/app:7-ltsc2022"}],
    });
    write(directory.path(), "web.json", &[deployment("web", &spec)]);
    let file = directory.path().join("web.json");
    let file = file.to_str().unwrap();
    let context = "cluster:winpool-e2e";
    let (code, text, error) = winpool(server.kubeconfig(), &["check", "-f", file, "--against", context]).await;
    assert_eq!(code, Some(2), "{error}");
    assert!(text.contains("nodeSelector wants example.com/group=new"), "{text}");
    let (code, _, error) = winpool(server.kubeconfig(), &["check", "-f", file, "--against", "cluster:none"]).await;
    assert!(code == Some(1) && error.contains("context none"), "{error}");

    let pod = json!({"metadata": {"name": "web"}, "spec": spec});
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = kube::Api::default_namespaced(server.client());
    pods.create(&kube::api::PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let question = ["why", "pod/web", "-n", "default"];
    let (code, _, _) = winpool(server.kubeconfig(), &[&question[..], &["--wait", "0"]].concat()).await;
    assert_eq!(code, Some(2), "the time is over");
    let mut waiting = Command::new(env!("CARGO_BIN_EXE_winpool"));
    waiting.args(question).args(["--wait", "60"]).env("KUBECONFIG", server.kubeconfig());
    let waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    let node: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(server.client());
    let label = json!({"metadata": {"labels": {"example.com/group": "new"}}, "spec": {"taints": null}});
    node.patch("win", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(label)).await.unwrap();
    let ended = tokio::task::spawn_blocking(move || waiting.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stdout));
}
