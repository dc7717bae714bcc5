//! Changes that winpool repairs, and changes that the kubelet repairs.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::{BUILD, has_taint, label};
use winpool_e2e::harness::versions::Versions;
use winpool_e2e::harness::{OS_WINDOWS, POOL, change_taints};
use winpool_e2e::wine::windows::WINDOWS_2022;

use super::stage::{machine, node_until, ready, stage, stage_with_pool};

const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn labels(pairs: &Value) -> Value {
    json!({"metadata": {"labels": pairs}})
}

/// Catches a kubelet that restores more, or less, than docs/reliability.md says: the labels that need winpool, and the
/// time until they are restored.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_kubelet_restores_os_and_arch_while_it_runs_and_the_build_at_its_start() {
    let harness = stage().await;
    let mut machine = machine(&harness, "win", WINDOWS_2022, &["--node-labels=example.com/pool=a"]).await;
    ready(&harness, &machine).await;
    let damage = json!({
        OS: null, ARCH: "arm64", BUILD: "10.0.17763", HOSTNAME: "other", "example.com/pool": null, "extra": "yes",
    });
    harness.edit_node("win", labels(&damage)).await;
    change_taints(&harness.nodes(), "win", |taints| {
        taints.push(serde_json::from_value(json!({"key": "extra", "effect": "NoSchedule"})).unwrap());
    })
    .await;

    let is_restored = |node: &Node| label(node, OS) == Some("windows") && label(node, ARCH) == Some("amd64");
    let node = node_until(&harness, &machine, "has its system and architecture again", is_restored).await;
    assert_eq!(label(&node, BUILD), Some("10.0.17763"), "a kubelet that runs leaves the build as it is");
    assert_eq!(label(&node, HOSTNAME), Some("other"), "and the host name");

    machine.start_kubelet(&["--node-labels=example.com/pool=a"]).unwrap();
    let is_restored = |node: &Node| label(node, BUILD) == Some("10.0.20348") && label(node, HOSTNAME) == Some("win");
    let node = node_until(&harness, &machine, "has its build and host name again", is_restored).await;
    assert_eq!(label(&node, "example.com/pool"), None, "--node-labels is not restored");
    assert_eq!(label(&node, "extra"), Some("yes"), "labels of others stay");
    assert!(has_taint(&node, "extra:NoSchedule"), "and taints");
}

/// Catches a repair that a running or restarting kubelet reverts, or that winpool reverts, because both write the same
/// node; and a taint that winpool removed because the label of the system was missing until the kubelet restored it.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn winpool_repairs_while_the_kubelet_runs_and_after_it_restarted() {
    let (harness, _operator, mut machine) = stage_with_pool(WINDOWS_2022).await;
    let is_right = |node: &Node| {
        let labels = [label(node, BUILD), label(node, POOL), label(node, OS)];
        labels == [Some("10.0.20348"), Some("default"), Some("windows")] && has_taint(node, OS_WINDOWS)
    };
    harness.node_until("win", "is right", is_right).await;
    for restart in [false, true] {
        let versions = Versions::of(harness.nodes()).await;
        if restart {
            machine.stop_kubelet();
        }
        for damage in [json!({OS: null}), json!({OS: "linux"})] {
            harness.edit_node("win", labels(&damage)).await;
            if restart {
                machine.start_kubelet(&[]).unwrap();
            }
            node_until(&harness, &machine, "has its system again", is_right).await;
        }
        let all = versions.named("win").await;
        assert!(all.iter().all(|node| has_taint(node, OS_WINDOWS)), "it never loses its taint");

        if restart {
            machine.stop_kubelet();
        }
        harness.edit_node("win", labels(&json!({BUILD: "10.0.17763", POOL: null}))).await;
        change_taints(&harness.nodes(), "win", Vec::clear).await;
        if restart {
            machine.start_kubelet(&[]).unwrap();
        }
        node_until(&harness, &machine, "is repaired", is_right).await;
    }
    let pool = harness.ready("default").await;
    assert_eq!(pool.status.unwrap().problems, [], "the kubelet does not count as a writer that reverts winpool");
}
