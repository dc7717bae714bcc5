//! What `why` and `check` say about pods that fail, and about those that the API server refuses.

use std::process::Command;

use serde_json::{Value, json};

use crate::input::with_input;

fn node(name: &str, system: &str, kernel: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/os": system, "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
        }},
        "status": {"nodeInfo": {
            "operatingSystem": system, "kernelVersion": kernel, "containerRuntimeVersion": "containerd://1.7.27",
        }},
    })
}

/// A Linux node, and a Windows node of this build.
fn nodes(build: &str) -> [Value; 2] {
    [node("linux", "linux", "6.8.0"), node("win", "windows", &format!("{build}.3000"))]
}

/// A pod on the Windows node with one container, which waits for this reason.
fn waiting(spec: &Value, image: &str, reason: &str, message: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u-1", "creationTimestamp": "2026-03-01T10:00:00Z"},
        "spec": {"nodeName": "win", "containers": [{"name": "app", "image": image}]},
        "status": {"phase": "Pending", "containerStatuses": [{
            "name": "app", "image": image, "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": reason, "message": message}},
        }]},
    });
    json_patch::merge(&mut pod["spec"], spec);
    pod
}

/// An Event about the pod `web-1`.
fn event(reason: &str, message: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web-1.a", "namespace": "shop"}, "type": "Warning",
        "reason": reason, "message": message, "lastTimestamp": "2026-03-01T10:05:00Z",
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u-1"},
    })
}

fn run(arguments: &[&str], objects: &[Value]) -> (i32, String) {
    let input: Vec<String> = objects.iter().map(Value::to_string).collect();
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    let command = command.args(arguments).args(["-f", "-"]).env("KUBECONFIG", "/nonexistent").env("COLUMNS", "120");
    let output = with_input(command, &input.join("\n---\n"));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// What `why` says about the pod `web-1`.
fn why(objects: &[Value]) -> (i32, String) {
    run(&["why", "pod/web-1", "-n", "shop"], objects)
}

/// The rules that `check` finds broken, and the object of each.
fn check(objects: &[Value]) -> Vec<(String, String)> {
    let (_, out) = run(&["check", "--min-severity", "warning", "-o", "json"], objects);
    let report: Value = serde_json::from_str(&out).unwrap();
    let found = report["findings"].as_array().unwrap().iter();
    found
        .map(|found| (found["rule"].as_str().unwrap().to_owned(), found["object"]["name"].as_str().unwrap().to_owned()))
        .collect()
}

fn on_windows() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"}})
}

fn with(nodes: [Value; 2], others: impl IntoIterator<Item = Value>) -> Vec<Value> {
    nodes.into_iter().chain(others).collect()
}

#[test]
fn a_class_for_another_system_than_the_selector_is_the_first_answer() {
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "win-ci"}, "handler": "runhcs-wcow-process",
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"}},
    });
    let spec = json!({"nodeName": null, "runtimeClassName": "win-ci", "nodeSelector": {"kubernetes.io/os": "linux"}});
    let mut pod = waiting(&spec, "ci/agent:ltsc2022", "", "");
    for status in [json!({"phase": "Pending"}), json!({})] {
        pod["status"] = status;
        let (code, out) = why(&with(nodes("10.0.20348"), [class.clone(), pod.clone()]));
        assert_eq!(code, 0, "{out}");
        insta::allow_duplicates! { insta::assert_snapshot!(out) }
    }
}

#[test]
fn every_error_of_a_field_is_told_before_the_nodes() {
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]});
    let mut pod = waiting(&spec, "app:ltsc2022", "", "");
    pod["status"] = json!({});
    pod["spec"]["nodeName"] = Value::Null;
    let (_, out) = why(&with(nodes("10.0.20348"), [pod.clone()]));
    let broken = check(&with(nodes("10.0.20348"), [pod]));
    assert!(broken.iter().any(|(rule, _)| rule == "nfs-volume"), "{broken:?}");
    let (before, after) = out.split_once("1 node: win").unwrap();
    assert!(before.contains("spec.volumes[0].nfs: Windows does not support NFS volumes"), "{out}");
    assert!(after.contains("the pod has the errors above") && !out.contains("and starts"), "{out}");
}

#[test]
fn an_event_in_manifests_says_that_the_pause_image_does_not_fit() {
    let message = "Failed to create pod sandbox: failed to start sandbox container: hcs::CreateComputeSystem: The container \
                   operating system does not match the host operating system.";
    let pod = waiting(&on_windows(), "example.com/web:ltsc2022", "ContainerCreating", "");
    let objects = with(nodes("10.0.20348"), [pod, event("FailedCreatePodSandBox", message)]);
    let (code, out) = why(&objects);
    assert_eq!(code, 0, "{out}");
    insta::assert_snapshot!(out);
    let mut newer = event("FailedCreatePodSandBox", "");
    newer["apiVersion"] = json!("events.k8s.io/v1");
    newer["regarding"] = newer["involvedObject"].take();
    newer["note"] = json!(message);
    newer["eventTime"] = json!("2026-03-01T10:05:00.000000Z");
    newer
        .as_object_mut()
        .unwrap()
        .retain(|key, _| !["involvedObject", "message", "lastTimestamp"].contains(&key.as_str()));
    let mut both = objects;
    both[3] = newer;
    assert_eq!(why(&both).1, out);
}

#[test]
fn an_event_about_an_earlier_pod_of_the_name_says_nothing() {
    let pod = waiting(&on_windows(), "example.com/web:ltsc2022", "ContainerCreating", "");
    let mut by_uid = event("FailedMount", "no such share");
    by_uid["involvedObject"]["uid"] = json!("u-0");
    let mut by_time = event("FailedMount", "no such share");
    by_time["involvedObject"]["uid"] = Value::Null;
    by_time["lastTimestamp"] = json!("2026-03-01T09:00:00Z");
    for event in [by_uid, by_time] {
        let (code, out) = why(&with(nodes("10.0.20348"), [pod.clone(), event]));
        assert!(code == 0 && !out.contains("no such share"), "{code}: {out}");
    }
}

#[test]
fn a_warning_is_over_when_the_kubelet_reports_progress() {
    let pod = waiting(&on_windows(), "example.com/web:ltsc2022", "ContainerCreating", "");
    let mut pulling = event("Pulling", "Pulling image");
    pulling["type"] = json!("Normal");
    let mounting = event("FailedMount", "no such share");
    for (time, code) in [("2026-03-01T10:06:00Z", 0), ("2026-03-01T10:04:00Z", 2)] {
        pulling["lastTimestamp"] = json!(time);
        pulling["metadata"]["name"] = json!("web-1.b");
        for events in [[mounting.clone(), pulling.clone()], [pulling.clone(), mounting.clone()]] {
            let objects = [&nodes("10.0.20348")[..], std::slice::from_ref(&pod), &events].concat();
            let (found, out) = why(&objects);
            assert_eq!(found, code, "{time}: {out}");
        }
    }
}

#[test]
fn an_error_that_winpool_does_not_know_is_the_answer() {
    let image = "example.com/web:ltsc2022";
    let crashing = waiting(&on_windows(), image, "CrashLoopBackOff", "back-off 5m0s restarting failed container");
    let unknown = waiting(&on_windows(), image, "CreateContainerConfigError", "secret \"db\" not found");
    let creating = waiting(&on_windows(), image, "ContainerCreating", "");
    let mounting =
        vec![creating.clone(), event("FailedMount", "MountVolume.SetUp failed for volume \"data\": no such share")];
    for (objects, text) in [
        (vec![crashing], "container app: CrashLoopBackOff: back-off 5m0s"),
        (vec![unknown], "container app: CreateContainerConfigError: secret \"db\" not found"),
        (mounting, "FailedMount: MountVolume.SetUp failed"),
    ] {
        let (code, out) = why(&with(nodes("10.0.20348"), objects));
        assert_eq!(code, 2, "{out}");
        assert!(out.contains(text) && out.contains("It fails on win now, and winpool does not know why."), "{out}");
        assert!(!out.contains("change is needed"), "{out}");
    }
    let (code, out) = why(&with(nodes("10.0.20348"), [creating]));
    assert!(code == 0 && out.contains("No change is needed"), "a young pod has no error: {out}");
}

#[test]
fn pods_of_a_workload_that_fail_are_told_with_their_nodes() {
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "app", "image": "web:ltsc2022"}]},
        }},
    });
    let mut pod = waiting(&on_windows(), "web:ltsc2022", "CrashLoopBackOff", "back-off restarting failed container");
    pod["metadata"]["labels"] = json!({"pod-template-hash": "5d"});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d", "uid": "r", "controller": true}]);
    let why = |pod: &Value| {
        run(&["why", "deployment/web", "-n", "shop"], &with(nodes("10.0.20348"), [deployment.clone(), pod.clone()]))
    };
    let (code, out) = why(&pod);
    assert_eq!(code, 2, "{out}");
    assert!(out.contains("Pods of it fail on win now, and winpool does not know why."), "{out}");
    pod["metadata"]["deletionTimestamp"] = json!("2026-03-01T11:00:00Z");
    let (code, out) = why(&pod);
    assert!(code == 0 && out.contains("No change is needed"), "a pod that is being deleted does not count: {out}");
}

#[test]
fn a_linux_pod_on_a_windows_node_is_sent_to_linux() {
    let message =
        "failed to pull image: no matching manifest for windows/amd64 10.0.20348 in the manifest list entries";
    let pod = waiting(&json!({}), "example.com/worker:v1", "ImagePullBackOff", message);
    let objects = with(nodes("10.0.20348"), [pod]);
    let (code, out) = why(&objects);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("help: send the pod to Linux nodes") && !out.contains("image for the node's build"), "{out}");
    // The scheduler chose the node, and may choose it again.
    assert_eq!(check(&objects), [("linux-may-land-on-windows".to_owned(), "web-1".to_owned())]);
}

#[test]
fn check_judges_a_scheduled_pod_by_all_nodes_and_a_pod_that_names_its_node_by_that_one() {
    let mut pod = waiting(&on_windows(), "example.com/web:ltsc2025", "CreateContainerError", "");
    let broken = |pod: &Value| check(&with(nodes("10.0.20348"), [pod.clone()]));
    assert_eq!(broken(&pod), [("image-build-mismatch".to_owned(), "web-1".to_owned())]);
    pod["status"] = json!({});
    assert_eq!(broken(&pod), [("node-name-unsuitable".to_owned(), "web-1".to_owned())]);
    // Only its image and its node show that it is for Windows.
    pod["spec"]["nodeSelector"] = Value::Null;
    pod["spec"]["os"] = Value::Null;
    assert_eq!(broken(&pod), [("node-name-unsuitable".to_owned(), "web-1".to_owned())]);
    pod["spec"]["containers"][0]["image"] = json!("example.com/web:ltsc2022");
    assert_eq!(broken(&pod), []);
}

#[test]
fn the_sandbox_of_a_virtual_machine_starts_from_the_pause_image() {
    let class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "hyperv"}, "handler": "runhcs-wcow-hypervisor",
    });
    let spec = json!({"runtimeClassName": "hyperv", "nodeSelector": {"kubernetes.io/os": "windows"}});
    let pod = waiting(&spec, "web:ltsc2025", "RunContainerError", "failed to create shim task: HCS_E_IMAGE_MISMATCH");
    let (_, out) = why(&with(nodes("10.0.26100"), [class, pod]));
    assert!(out.contains("registry.k8s.io/pause:3.10.2 or later") && out.contains("pause image"), "{out}");
    assert!(out.contains("It fails on win now, for the reason above."), "{out}");
}

#[test]
fn a_container_of_a_service_mesh_is_named_with_the_switch_of_the_mesh() {
    let message = "Back-off pulling image: no match for platform in manifest: not found";
    let mut pod = waiting(&on_windows(), "web:ltsc2022", "PodInitializing", "");
    let image = "cr.l5d.io/linkerd/proxy-init:v2.4.0";
    pod["spec"]["initContainers"] = json!([{"name": "linkerd-init", "image": image}]);
    pod["status"]["initContainerStatuses"] = json!([{
        "name": "linkerd-init", "image": image, "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": message}},
    }]);
    let objects = with(nodes("10.0.20348"), [pod]);
    let (code, out) = why(&objects);
    assert_eq!(code, 0, "{out}");
    insta::assert_snapshot!(out);
    assert_eq!(check(&objects), [("linux-image".to_owned(), "web-1".to_owned())]);
}

#[test]
fn a_pod_without_an_address_on_eks_is_told_the_selector() {
    let message = "Failed to create pod sandbox: failed to set up sandbox container network: failed to parse Kubernetes args: pod \
                   does not have label vpc.amazonaws.com/PrivateIPv4Address";
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]},
    ]}}}});
    let mut nodes = nodes("10.0.20348");
    nodes[1]["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] = json!("win");
    for (spec, broken) in [(affinity, "eks-address-missing"), (json!({}), "linux-may-land-on-windows")] {
        let pod = waiting(&spec, "registry.example/web:7", "ContainerCreating", "");
        let objects = with(nodes.clone(), [pod, event("FailedCreatePodSandBox", message)]);
        let (code, out) = why(&objects);
        assert!(code == 0 && out.contains("EKS has given the pod no address"), "{code}: {out}");
        assert!(!out.contains("and starts\n  - ") && !out.contains("No change is needed"), "{out}");
        assert_eq!(check(&objects), [(broken.to_owned(), "web-1".to_owned())]);
    }
}

#[test]
fn why_notes_what_check_warns_about() {
    let mut spec = on_windows();
    spec["containers"] = json!([{"name": "app", "image": "web:ltsc2022"}]);
    let template = json!({"metadata": {"annotations": {"linkerd.io/inject": "enabled"}}, "spec": spec});
    let workload = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    let objects = with(nodes("10.0.20348"), [workload]);
    assert_eq!(check(&objects), [("linux-sidecar-injected".to_owned(), "web".to_owned())]);
    let (code, out) = run(&["why", "deployment/web", "-n", "shop"], &objects);
    assert!(code == 0 && out.contains("Note: winpool check warns: Linkerd adds a Linux container"), "{code}: {out}");
}
