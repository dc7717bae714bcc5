//! The policy `born-tainted` at the registration of a real kubelet, which `NodeRestriction` limits.

use kube::ResourceExt;
use serde_json::json;
use winpool_e2e::harness::objects::{has_taint, label};
use winpool_e2e::harness::versions::Versions;
use winpool_e2e::harness::{APPLIED, OS_WINDOWS, POOL};
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::manifests;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;
use winpool_e2e::wine::machine::Machine;
use winpool_e2e::wine::windows::WINDOWS_2022;

use super::stage::{ready, stage};

/// Catches a policy that refuses the registration of a real kubelet, or that does not match it: without winpool, the
/// node has its taint from its first version on, and the kubelet's patches keep it.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_kubelet_registers_its_node_with_the_taint_without_winpool() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = stage().await;
    let operator = harness.operator().await;
    SimulatedNode::server_2022("first").join(&harness.client).await.unwrap();
    harness.apply_pool(json!({})).await;
    harness.ready("default").await;
    manifests::apply(&harness.client, &manifests::component("born-tainted").unwrap()).await.unwrap();
    operator.stop().await;
    let probe = SimulatedNode::server_2022("probe").node();
    let dry_run = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
    wait_for("the policy is in force", winpool_e2e::machine::wait::LIMIT, async || {
        let node = harness.nodes().create(&dry_run, &probe).await?;
        Ok(has_taint(&node, OS_WINDOWS).then_some(()))
    })
    .await
    .unwrap();

    // Its programs may have to be built first, which takes longer than a watch lasts.
    let mut machine = Machine::install(&harness.server, "win-a", WINDOWS_2022).await.unwrap();
    let versions = Versions::of(harness.nodes()).await;
    machine.start_kubelet(&[]).unwrap();
    ready(&harness, &machine).await;
    let all = versions.named("win-a").await;
    assert!(all.iter().all(|node| has_taint(node, OS_WINDOWS)), "it is never without the taint");
    let first = &all[0];
    assert_eq!(label(first, POOL), Some("default"));
    assert!(first.annotations()[APPLIED].contains(OS_WINDOWS), "{:?}", first.annotations());

    let _operator = harness.operator().await;
    harness.node_until("win-a", "keeps its taint", |node| has_taint(node, OS_WINDOWS)).await;
    harness.ready("default").await;
    assert_eq!(versions.named("win-a").await.last().unwrap().annotations()[APPLIED], first.annotations()[APPLIED]);
}
