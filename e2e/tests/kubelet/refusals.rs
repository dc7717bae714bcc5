//! The output of `winpool why pod` for the Events and container states that a real kubelet writes when its runtime
//! refuses a pod, as containerd and hcsshim do.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;
use winpool_e2e::harness::Harness;
use winpool_e2e::scene::program::program;
use winpool_e2e::wine::windows::{WINDOWS_2019, WINDOWS_2022};

use super::stage::{event, machine, ready, run, stage};

/// Catches an error of the runtime that `why pod` no longer finds or explains after a real kubelet has wrapped and
/// shortened it.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn why_pod_explains_what_a_real_kubelet_says() {
    let harness = stage().await;
    let mut machine = machine(&harness, "win", WINDOWS_2022, &[]).await;
    ready(&harness, &machine).await;
    // The image, and the kubelet's message.
    let cases = [
        ("index", "example.com/app:ltsc2019", "no match for platform"),
        ("single", "example.com/app:single-ltsc2019", "0xc0370101"),
        ("revision", "example.com/app:10.0.20348.9999", "0xc0370106"),
    ];
    for (name, image, error) in cases {
        run(&harness, name, image, json!({"nodeName": "win"})).await;
        let (reason, message) = event(&harness, name, error).await;
        assert_eq!(reason, "Failed", "{name}: {message}");
        explained(&harness, name, error).await;
    }

    machine.stop_kubelet();
    machine.restart_runtime(Some(WINDOWS_2019)).await.unwrap();
    machine.start_kubelet(&[]).unwrap();
    run(&harness, "pause", "example.com/app:ltsc2022", json!({"nodeName": "win"})).await;
    let (reason, message) = event(&harness, "pause", "0xc0370101").await;
    assert_eq!(reason, "FailedCreatePodSandBox", "{message}");
    explained(&harness, "pause", "0xc0370101").await;
}

/// Waits until the command names this error, with a meaning.
async fn explained(harness: &Harness, pod: &str, error: &str) {
    let mut last = Value::Null;
    let named = winpool_e2e::machine::wait::wait_for(
        &format!("why pod {pod} names {error}"),
        winpool_e2e::machine::wait::LIMIT,
        async || {
            last = why(harness.server.kubeconfig(), pod).await;
            let errors = last["errors"].as_array().into_iter().flatten();
            Ok(errors.into_iter().find(|found| found["error"] == error).cloned())
        },
    )
    .await;
    let found = named.unwrap_or_else(|timeout| panic!("{timeout}; it says: {last:#}"));
    assert!(found["meaning"].as_str().is_some_and(|meaning| !meaning.is_empty()), "{found}");
}

async fn why(kubeconfig: &Path, pod: &str) -> Value {
    let mut command = Command::new(program("winpool").await.unwrap());
    let output = command.args(["why", "pod", pod, "-o", "json"]).env("KUBECONFIG", kubeconfig).output().await.unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {} {}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })
}
