//! The fields that a real kubelet writes when it registers its node, and never again.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use winpool_e2e::harness::objects::{BUILD, NOT_READY, has_taint, label, lasting_taints, taints};
use winpool_e2e::harness::versions::Versions;
use winpool_e2e::harness::{APPLIED, Harness, OS_WINDOWS, POOL};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::wine::windows::{WINDOWS_2019, WINDOWS_2022, Windows};

use super::stage::{HANDLER, machine, ready, stage};

/// Catches a Kubernetes whose kubelet registers other labels, taints or versions than winpool and the simulated nodes
/// of all other tests assume.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn a_kubelet_registers_what_simulated_nodes_register() {
    let harness = stage().await;
    let versions = Versions::of(harness.nodes()).await;
    let flags = ["--register-with-taints=os=windows:NoSchedule", "--node-labels=example.com/pool=a"];
    let plain = machine(&harness, "plain", WINDOWS_2022, &[]).await;
    let flagged = machine(&harness, "flagged", WINDOWS_2019, &flags).await;
    for (machine, windows, own_taints, own_label) in
        [(&plain, WINDOWS_2022, &[][..], None), (&flagged, WINDOWS_2019, &[OS_WINDOWS][..], Some("a"))]
    {
        ready(&harness, machine).await;
        let name = machine.name();
        let all = versions.named(name).await;
        let first = &all[0];
        let mut expected = vec![NOT_READY.to_owned()];
        expected.extend(own_taints.iter().map(ToString::to_string));
        let mut found = taints(first);
        found.sort_by_key(|taint| taint != NOT_READY);
        assert_eq!(found, expected, "{name}: --register-with-taints is in the first version");
        assert_eq!(label(first, "example.com/pool"), own_label, "{name}: --node-labels");

        let mut simulated = SimulatedNode::windows(&windows.kernel_version()).name(name);
        if let Some(own_label) = own_label {
            simulated = simulated.label("example.com/pool", own_label);
        }
        let simulated = simulated.node();
        assert_eq!(first.labels(), simulated.labels(), "{name}: all labels");
        let info = first.status.as_ref().unwrap().node_info.as_ref().unwrap();
        let expected = simulated.status.unwrap().node_info.unwrap();
        assert_eq!(info.kernel_version, windows.kernel_version(), "{name}");
        assert_eq!(info.os_image, windows.product, "{name}");
        assert_eq!(
            [&info.operating_system, &info.architecture],
            [&expected.operating_system, &expected.architecture],
            "{name}"
        );
        assert!(info.kubelet_version.starts_with("v1.36."), "{name}: {}", info.kubelet_version);
        assert_eq!(info.container_runtime_version, "containerd://1.7.20", "{name}");
        let handlers = first.status.as_ref().unwrap().runtime_handlers.iter().flatten();
        let handlers: BTreeSet<_> = handlers.filter_map(|handler| handler.name.as_deref()).collect();
        assert_eq!(handlers, BTreeSet::from(["", HANDLER]), "{name}: status.runtimeHandlers");
    }

    // Flags of registration have no effect on an existing node.
    let mut plain = plain;
    plain.start_kubelet(&flags).unwrap();
    let restarted = |node: &Node| label(node, "kubernetes.io/arch") == Some("amd64");
    harness.edit_node("plain", json!({"metadata": {"labels": {"kubernetes.io/arch": "odd"}}})).await;
    let node = super::stage::node_until(&harness, &plain, "has what kubelets restore", restarted).await;
    assert!(!has_taint(&node, OS_WINDOWS) && label(&node, "example.com/pool").is_none(), "{:?}", node.labels());
}

/// Catches a node that winpool overlooks or changes without need when a real kubelet writes it: the status patches
/// between registration and Ready, and a taint from the kubelet itself.
#[tokio::test]
#[ignore = "needs Wine: make kubelet-test"]
async fn nodes_join_a_pool_with_and_without_the_taint_of_their_kubelets() {
    let harness = stage().await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let flags = ["--register-with-taints=os=windows:NoSchedule"];
    let bare = machine(&harness, "bare", WINDOWS_2022, &[]).await;
    let tainted = machine(&harness, "tainted", WINDOWS_2019, &flags).await;
    for machine in [&bare, &tainted] {
        ready(&harness, machine).await;
    }
    let pool = harness.nodes_until("default", "has both nodes", |nodes| nodes.converged == 2).await;
    assert_eq!(pool.status.unwrap().problems, []);
    for (name, windows, is_ours) in [("bare", WINDOWS_2022, true), ("tainted", WINDOWS_2019, false)] {
        let node = harness.node(name).await;
        assert_eq!(lasting_taints(&node), [OS_WINDOWS], "{name}");
        assert_eq!(label(&node, BUILD), Some(&*windows.label()), "{name}");
        let is_recorded = node.annotations().get(APPLIED).is_some_and(|applied| applied.contains(OS_WINDOWS));
        assert_eq!(is_recorded, is_ours, "{name}: only what winpool put there is winpool's");
    }
    for (class, windows) in [("windows-2019", WINDOWS_2019), ("windows-2022", WINDOWS_2022)] {
        class_selects(&harness, class, windows).await;
    }
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    assert_eq!(lasting_taints(&harness.node("bare").await), Vec::<String>::new());
    let node = harness.node("tainted").await;
    assert_eq!((lasting_taints(&node), label(&node, POOL)), (vec![OS_WINDOWS.to_owned()], None));
}

async fn class_selects(harness: &Harness, class: &str, windows: Windows) {
    let class = harness.class_until(class, "is there", |_| true).await;
    let selector = class.scheduling.unwrap().node_selector.unwrap();
    assert_eq!(selector.get(BUILD), Some(&windows.label()));
}
