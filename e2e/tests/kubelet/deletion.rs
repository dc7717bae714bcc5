//! A Node object that is deleted while its kubelet runs.

use kube::ResourceExt;
use kube::api::DeleteParams;
use winpool_e2e::harness::OS_WINDOWS;
use winpool_e2e::harness::objects::has_taint;
use winpool_e2e::wine::windows::WINDOWS_2022;

use super::stage::{machine_until, node_until, ready, stage_with_pool};

/// Catches a pool that still counts a deleted node, and a node that comes back without its taint, under its old name
/// with another uid.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_node_that_its_kubelet_registers_again_gets_its_taint_again() {
    let (harness, _operator, mut machine) = stage_with_pool(WINDOWS_2022).await;
    let before = harness.node("win").await;
    assert!(has_taint(&before, OS_WINDOWS));

    harness.nodes().delete("win", &DeleteParams::default()).await.unwrap();
    harness.nodes_until("default", "has no node", |nodes| nodes.selected == 0).await;
    machine_until(&machine, "has noticed that its node is gone", |machine| {
        Ok(machine.log()?.contains(r#"\"win\" not found"#))
    })
    .await;
    assert!(harness.nodes().get_opt("win").await.unwrap().is_none(), "a kubelet that runs does not register again");

    machine.start_kubelet(&[]).unwrap();
    let after = node_until(&harness, &machine, "has its taint", |node| has_taint(node, OS_WINDOWS)).await;
    assert_ne!(after.uid(), before.uid());
    ready(&harness, &machine).await;
    harness.nodes_until("default", "has its node", |nodes| nodes.selected == 1).await;
    harness.ready("default").await;
}
