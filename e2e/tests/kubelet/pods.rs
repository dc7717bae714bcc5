//! Pods of each class, from the scheduler to the container runtime.

use serde_json::json;
use winpool_e2e::harness::objects::node_of;
use winpool_e2e::wine::windows::{WINDOWS_2019, WINDOWS_2022, WINDOWS_2025};

use super::stage::{HANDLER, event, machine, machine_until, phase, pod_until, ready, run, runs, stage};

/// Catches a class whose pods the scheduler, the kubelet's admission or its runtime refuses: each pod names its class
/// and nothing else.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn pods_reach_the_runtime_with_the_handler_of_their_class() {
    let harness = stage().await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let servers = [("2019", WINDOWS_2019), ("2022", WINDOWS_2022), ("2025", WINDOWS_2025)];
    let mut machines = Vec::new();
    for (version, windows) in servers {
        machines.push(machine(&harness, &format!("win-{version}"), windows, &[]).await);
    }
    for machine in &machines {
        ready(&harness, machine).await;
    }
    harness.nodes_until("default", "has its nodes", |nodes| nodes.converged == 3).await;
    for (version, _) in servers {
        run(&harness, version, "example.com/app:1", json!({"runtimeClassName": format!("windows-{version}")})).await;
    }
    for ((version, _), machine) in servers.iter().zip(&machines) {
        let pod = runs(&harness, version).await;
        assert_eq!(node_of(&pod), Some(machine.name()), "the pod of {version}");
        let (pod, handler) = (Some(format!("default/{version}")), Some(HANDLER.to_owned()));
        let calls = machine.calls().unwrap();
        let sandboxes: Vec<_> = calls.iter().filter(|call| call.call == "RunPodSandbox").collect();
        assert!(sandboxes.iter().all(|call| (&call.pod, &call.handler) == (&pod, &handler)), "{sandboxes:?}");
        assert!(!sandboxes.is_empty());
    }

    // No pod tolerates the taint by accident.
    run(&harness, "stray", "example.com/app:1", json!({})).await;
    let (reason, message) = event(&harness, "stray", "untolerated taint").await;
    assert_eq!(reason, "FailedScheduling", "{message}");
}

/// Catches a Kubernetes that reports a missing handler in other words: `why pod` and the guides quote them.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_pod_whose_handler_the_runtime_lacks_never_starts() {
    let harness = stage().await;
    let machine = machine(&harness, "win", WINDOWS_2022, &[]).await;
    ready(&harness, &machine).await;
    let _: k8s_openapi::api::node::v1::RuntimeClass =
        harness.create(json!({"metadata": {"name": "odd"}, "handler": "no-such-handler"})).await;
    run(&harness, "odd", "example.com/app:1", json!({"nodeName": "win", "runtimeClassName": "odd"})).await;
    let (reason, message) = event(&harness, "odd", "no-such-handler").await;
    assert_eq!(reason, "FailedCreatePodSandBox", "{message}");
    assert!(message.contains(r#"no runtime for "no-such-handler" is configured"#), "{message}");
    let pod = pod_until(&harness, "odd", "waits", |pod| phase(pod) == "Pending").await;
    assert_eq!(node_of(&pod), Some("win"));
    machine_until(&machine, "has tried it twice", |machine| {
        let calls = machine.calls()?;
        Ok(calls.iter().filter(|call| call.handler.as_deref() == Some("no-such-handler")).count() > 1)
    })
    .await;
}

/// Catches a kubelet that refuses a pod which got its toleration after it was created, or restarts one that ran before the
/// taint.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn pods_without_the_toleration_get_it_and_run() {
    let harness = stage().await;
    let windows = || json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    let machine = machine(&harness, "win", WINDOWS_2022, &[]).await;
    ready(&harness, &machine).await;
    run(&harness, "before", "example.com/app:1", windows()).await;
    let before = runs(&harness, "before").await;

    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.is_tainted("win").await;
    run(&harness, "after", "example.com/app:1", windows()).await;
    for name in ["before", "after"] {
        let pod = runs(&harness, name).await;
        let tolerations = pod.spec.unwrap().tolerations.unwrap_or_default();
        assert!(tolerations.iter().any(|own| own.key.as_deref() == Some("os")), "{name}: {tolerations:?}");
    }
    let again = harness.pods().get("before").await.unwrap();
    let restarts = again.status.unwrap().container_statuses.unwrap()[0].restart_count;
    assert_eq!((again.metadata.uid, restarts), (before.metadata.uid, 0));
}
