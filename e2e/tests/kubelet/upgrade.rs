//! An upgrade of Windows under the same Node: the registry has another build, and the kubelet restarts.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use winpool_core::api::WindowsPool;
use winpool_core::node::LABEL_SETTLES;
use winpool_e2e::harness::OS_WINDOWS;
use winpool_e2e::harness::objects::{BUILD, has_taint, label, node_of, scheduling};
use winpool_e2e::harness::versions::Versions;
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::wine::windows::{WINDOWS_2019, WINDOWS_2022, WINDOWS_2025, Windows};

use super::stage::{
    kernel_version, machine, node_until, phase, pod_until, ready, reason, run, runs, stage, stage_with_pool,
};

fn reports(windows: Windows) -> impl Fn(&Node) -> bool {
    move |node| {
        label(node, BUILD) == Some(&*windows.label()) && kernel_version(node) == Some(&*windows.kernel_version())
    }
}

fn has_build(pool: &WindowsPool, windows: Windows) -> bool {
    let builds = pool.status.iter().flat_map(|status| &status.builds);
    builds.filter(|build| build.nodes > 0).map(|build| build.build.as_str()).eq([windows.label()])
}

/// Label and reported build in every version of the node, without repetitions.
fn history(versions: &[Node]) -> Vec<(&str, &str)> {
    let mut history: Vec<_> = versions
        .iter()
        .map(|node| (label(node, BUILD).unwrap_or_default(), kernel_version(node).unwrap_or_default()))
        .collect();
    history.dedup();
    history
}

/// Catches winpool writing the old build over the kubelet's new label. The kubelet reports the build only after it has
/// written the label, and in between a class would select the wrong node.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn the_label_of_an_upgraded_node_is_never_taken_back() {
    let (harness, _operator, mut machine) = stage_with_pool(WINDOWS_2019).await;
    let mut from = WINDOWS_2019;
    for to in [WINDOWS_2022, WINDOWS_2025] {
        let versions = Versions::of(harness.nodes()).await;
        machine.upgrade(to, &[]).await.unwrap();
        node_until(&harness, &machine, "reports its new Windows", reports(to)).await;
        harness.pool_until("default", "has the new build only", |pool| has_build(pool, to)).await;
        let (times, versions): (Vec<_>, Vec<_>) = versions.until_now().await.into_iter().unzip();
        let first = |holds: &dyn Fn(&Node) -> bool| versions.iter().position(holds).map(|index| times[index]).unwrap();
        let labelled = first(&|node| label(node, BUILD) == Some(&*to.label()));
        let reported = first(&|node| kernel_version(node) == Some(&*to.kernel_version()));
        // On a busy machine the kubelet may take longer than winpool waits.
        if reported - labelled < LABEL_SETTLES {
            let (from_kernel, to_kernel) = (from.kernel_version(), to.kernel_version());
            let expected = [(to.label(), from_kernel), (to.label(), to_kernel)];
            let history = history(&versions);
            // The former state may occur once more, with the conditions of the controller manager.
            let changes = &history[usize::from(history[0].0 == from.label())..];
            let expected = expected.each_ref().map(|(label, kernel)| (label.as_str(), kernel.as_str()));
            assert_eq!(changes, expected, "the label first, then the build, and nothing is taken back");
        }
        assert!(versions.iter().all(|node| has_taint(node, OS_WINDOWS)), "it keeps its taint");
        from = to;
    }
}

/// Catches a class that still selects a node that was upgraded, and a pool without the new build.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn pods_follow_the_build_of_an_upgraded_node() {
    let (harness, _operator, mut machine) = stage_with_pool(WINDOWS_2019).await;
    run(&harness, "before", "example.com/app:1", json!({"runtimeClassName": "windows-2019"})).await;
    runs(&harness, "before").await;

    machine.upgrade(WINDOWS_2022, &[]).await.unwrap();
    node_until(&harness, &machine, "reports its new Windows", reports(WINDOWS_2022)).await;
    harness.class_until("windows-2022", "is there", |_| true).await;
    harness.ready("default").await;
    run(&harness, "after", "example.com/app:1", json!({"runtimeClassName": "windows-2022"})).await;
    assert_eq!(node_of(&runs(&harness, "after").await), Some("win"));
    let old = json!({"nodeName": "win", "nodeSelector": {BUILD: WINDOWS_2019.label()}});
    run(&harness, "late", "example.com/app:1", old).await;
    let pod = pod_until(&harness, "late", "is refused", |pod| phase(pod) == "Failed").await;
    assert_eq!(reason(&pod), "NodeAffinity", "a pod of the old build");
}

/// Catches winpool, after it was stopped during an upgrade, trusting its own label more than the kubelet.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_node_that_was_upgraded_while_winpool_was_away_gets_its_class() {
    let (harness, operator, mut machine) = stage_with_pool(WINDOWS_2019).await;
    operator.stop().await;

    machine.upgrade(WINDOWS_2025, &[]).await.unwrap();
    node_until(&harness, &machine, "reports its new Windows", reports(WINDOWS_2025)).await;
    let versions = Versions::of(harness.nodes()).await;
    let _operator = harness.operator().await;
    harness.class_until("windows-2025", "is there", |_| true).await;
    harness.pool_until("default", "has the new build only", |pool| has_build(pool, WINDOWS_2025)).await;
    let node = harness.node("win").await;
    assert!(reports(WINDOWS_2025)(&node) && has_taint(&node, OS_WINDOWS));
    harness.edit_node("win", json!({"metadata": {"annotations": {"example.com/end": "yes"}}})).await;
    let versions = versions.named("win").await;
    assert!(versions.iter().all(reports(WINDOWS_2025)), "{:?}", history(&versions));
}

const REPLICAS: usize = 3;

/// The pods of `web` that run, and are not about to end.
async fn running(pods: &Api<Pod>) -> BTreeSet<String> {
    let pods = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
    let run = pods.iter().filter(|pod| phase(pod) == "Running" && pod.metadata.deletion_timestamp.is_none());
    run.filter_map(ResourceExt::uid).collect()
}

/// Counts the pods that run, again and again. Returns the least number.
async fn least_running(pods: Api<Pod>, stop: CancellationToken) -> usize {
    let mut least = running(&pods).await.len();
    while !stop.is_cancelled() {
        least = least.min(running(&pods).await.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    least
}

/// Catches an upgrade in place, one node after the other, that leaves a Deployment without a running pod although the
/// new Windows runs its images.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_deployment_of_a_compatible_class_always_has_running_pods_while_three_nodes_are_upgraded() {
    let harness = Box::pin(stage()).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({"runtimeClassHostMatch": "Compatible"})).await;
    let mut machines = Vec::new();
    for name in ["win-1", "win-2", "win-3"] {
        let machine = machine(&harness, name, WINDOWS_2022, &[]).await;
        ready(&harness, &machine).await;
        machines.push(machine);
    }
    let label_of_class = "runs.winpool.dev/10.0.20348";
    let by_label = |class: &RuntimeClass| scheduling(class)["nodeSelector"].get(label_of_class).is_some();
    harness.class_until("windows-2022", "selects the label", by_label).await;
    let containers = json!([{"name": "c", "image": "example.com/app:1"}]);
    let spec =
        json!({"runtimeClassName": "windows-2022", "terminationGracePeriodSeconds": 0, "containers": containers});
    let mut web = workload("Deployment", "web", spec);
    web["spec"]["replicas"] = json!(REPLICAS);
    harness.apply(web).await;
    let pods = harness.pods();
    let all_run = async || Ok(Some(running(&pods).await).filter(|running| running.len() == REPLICAS));
    let before = wait_for("all pods run", LIMIT, all_run).await.unwrap();

    let stop = CancellationToken::new();
    let counted = tokio::spawn(least_running(pods.clone(), stop.clone()));
    for machine in &mut machines {
        machine.upgrade(WINDOWS_2025, &[]).await.unwrap();
        node_until(&harness, machine, "reports its new Windows", reports(WINDOWS_2025)).await;
        let node = ready(&harness, machine).await;
        assert_eq!(label(&node, label_of_class), Some("true"));
    }
    harness.pool_until("default", "has the new build only", |pool| has_build(pool, WINDOWS_2025)).await;
    // The kubelets have admitted the pods on their nodes before they run other ones.
    for machine in &machines {
        let probe = format!("probe-{}", machine.name());
        let spec = json!({"runtimeClassName": "windows-2022", "nodeName": machine.name()});
        run(&harness, &probe, "example.com/app:1", spec).await;
        runs(&harness, &probe).await;
    }
    stop.cancel();
    let least = counted.await.unwrap();
    println!("at least {least} of {REPLICAS} pods ran all the time");
    assert!(least > 0, "a moment without a running pod");
    assert_eq!(running(&pods).await, before, "no pod was replaced");
}
