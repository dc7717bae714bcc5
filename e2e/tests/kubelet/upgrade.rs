//! An upgrade of Windows under the same Node: the registry has another build, and the kubelet restarts.

use winpool_core::plan::LABEL_SETTLES;
use winpool_e2e::{WINDOWS_2019, WINDOWS_2022, WINDOWS_2025, Windows, prelude::*};

use super::stage::{kernel_version, node_until, phase, pod_until, reason, run, runs, stage_with_pool};

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
