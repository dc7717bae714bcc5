//! The condition `WorkloadsHealthy` by what a real kubelet writes about pods that fail.

use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use serde_json::json;
use winpool_core::plan::pods::PodPauses;
use winpool_core::plan::reconcile::Pauses;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::condition_text;
use winpool_e2e::harness::operator::{Operator, alone};
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::wine::windows::{WINDOWS_2019, WINDOWS_2022};
use winpool_operator::Options;

use super::stage::{machine, ready, run, run_as, runs, stage, stage_with_pool};

/// The time within which each cause has to be in status after the kubelet has seen it, or gone.
const SEEN: Duration = Duration::from_mins(1);

/// Waits until the condition names all of these, or has this status.
async fn healthy_until(harness: &Harness, what: &str, holds: impl Fn(&str, &str) -> bool) {
    let (pools, started, mut last) = (harness.pools(), Instant::now(), None);
    let result = wait_for(what, SEEN, async || {
        last = condition_text(&pools.get("default").await?, "WorkloadsHealthy");
        Ok(last.as_ref().is_some_and(|(status, _, message)| holds(status, message)).then_some(()))
    })
    .await;
    result.unwrap_or_else(|error| panic!("{error}; the condition is {last:?}"));
    println!("{what}: {:.1} s", started.elapsed().as_secs_f64());
}

/// Catches a kubelet that reports a failure in other fields, Events or words than winpool reads.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn what_a_real_kubelet_says_about_failing_pods_is_counted() {
    let (harness, _operator, mut machine) = stage_with_pool(WINDOWS_2022).await;
    let there = || json!({"nodeName": "win"});
    run(&harness, "index", "example.com/app:ltsc2019", there()).await;
    run(&harness, "single", "example.com/app:single-ltsc2019", there()).await;
    run(&harness, "other", "example.com/app:1", json!({"nodeName": "win", "os": {"name": "linux"}})).await;
    let nowhere = json!({"nodeSelector": {"kubernetes.io/os": "windows", "team": "a"}});
    run(&harness, "nowhere", "example.com/app:1", nowhere).await;
    let causes = [("index", "no_variant"), ("single", "other_build"), ("other", "os_name"), ("nowhere", "no_node")];
    let named = |message: &str| {
        causes.iter().all(|(pod, cause)| message.contains(&format!("Pod default/{pod} (1 pod, {cause})")))
    };
    healthy_until(&harness, "all causes are counted", |_, message| named(message)).await;
    for (pod, _) in causes {
        harness.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    let only_refused = |_: &str, message: &str| message.starts_with("1 pod of Pod default/other (1 pod, os_name)");
    healthy_until(&harness, "only the refusal counts, for ten minutes", only_refused).await;

    // The kubelet ends a pod at its start, because the label that the pod selects is gone.
    harness.edit_node("win", json!({"metadata": {"labels": {"team": "b"}}})).await;
    run(&harness, "ended", "example.com/app:1", json!({"nodeName": "win", "nodeSelector": {"team": "b"}})).await;
    runs(&harness, "ended").await;
    harness.edit_node("win", json!({"metadata": {"labels": {"team": null}}})).await;
    machine.stop_kubelet();
    machine.start_kubelet(&[]).unwrap();
    ready(&harness, &machine).await;
    healthy_until(&harness, "the pod that was ended is counted", |_, message| message.contains("labels_changed")).await;

    machine.stop_kubelet();
    machine.restart_runtime(Some(WINDOWS_2019)).await.unwrap();
    machine.start_kubelet(&[]).unwrap();
    run(&harness, "pause", "example.com/app:ltsc2022", there()).await;
    let pause = "Pod default/pause (1 pod, pause_image)";
    healthy_until(&harness, "the pause image is counted", |_, message| message.contains(pause)).await;
}

/// Catches a message that a real kubelet changes before it reports it.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn linux_images_and_a_broken_network_are_counted_by_what_a_real_kubelet_says() {
    let harness = Box::pin(stage()).await;
    let pods = PodPauses { network: Duration::ZERO, ..alone().pauses.pods };
    let pauses = Pauses { pods, ..alone().pauses };
    let _operator = Operator::start_with(harness.account.config.clone(), Options { pauses, ..alone() });
    harness.apply_pool(json!({})).await;
    let machine = machine(&harness, "win", WINDOWS_2022, &[]).await;
    ready(&harness, &machine).await;
    harness.ready("default").await;

    let there = || json!({"nodeName": "win"});
    run(&harness, "index", "example.com/app:1-linux", there()).await;
    run(&harness, "single", "example.com/app:single-linux", there()).await;
    let broken = "hcnCreateNetwork failed in Win32: The parameter is incorrect. (0x57)";
    let metadata = json!({"name": "network", "annotations": {"test.winpool.dev/network-error": broken}});
    run_as(&harness, metadata, "example.com/app:ltsc2022", there()).await;
    let causes = [("index", "no_variant"), ("single", "linux_image"), ("network", "network")];
    let named = |message: &str| {
        causes.iter().all(|(pod, cause)| message.contains(&format!("Pod default/{pod} (1 pod, {cause})")))
    };
    healthy_until(&harness, "all causes are counted", |_, message| named(message)).await;
    for (pod, _) in causes {
        harness.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    healthy_until(&harness, "no pod fails", |status, _| status == "True").await;
}
