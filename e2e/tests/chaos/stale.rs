//! A second API server of the same cluster with stale caches.

use k8s_openapi::api::core::v1::Node;
use kube::api::DeleteParams;
use serde_json::json;
use winpool_e2e::harness::objects::{has_taint, taint, taints};
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::api_server::Neighbour;
use winpool_e2e::servers::faults::proxy::FaultProxy;
use winpool_e2e::servers::faults::schedule::Fault;

use crate::stage::{ALL, Stage, WINDOWS_2022, hits};

const DEDICATED: &str = "example.com/os=windows:NoSchedule";
const FOREIGN: &str = "example.com/foreign=here:NoSchedule";

async fn with_neighbour() -> (Stage, Neighbour) {
    let harness = Harness::new().await;
    let neighbour = harness.server.neighbour().await.unwrap();
    let proxy = FaultProxy::with_neighbour(&harness.server, &neighbour).await.unwrap();
    (Stage { harness, proxy }, neighbour)
}

#[tokio::test]
async fn foreign_taints_survive_a_change_planned_from_a_stale_cache() {
    let (stage, neighbour) = with_neighbour().await;
    stage.proxy.inject(hits("watch", "nodes", ALL, Fault::Neighbour));
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    stage.join("win", WINDOWS_2022).await;
    stage.harness.is_marked("win").await;
    stage.harness.ready("default").await;

    neighbour.cut_from_etcd();
    let mut all = json!(stage.harness.node("win").await.spec.unwrap().taints);
    all.as_array_mut().unwrap().push(taint(FOREIGN));
    stage.harness.edit_node("win", json!({"spec": {"taints": all}})).await;
    let before = stage.about("nodes").len();
    stage.harness.apply_pool(json!({"taints": [taint(DEDICATED)]})).await;
    assert_eq!(stage.until_about("nodes", before + 1).await[before], "patch nodes 422");
    neighbour.mend();
    let changed = |node: &Node| has_taint(node, DEDICATED);
    let node = stage.harness.node_until("win", "has the new taint", changed).await;
    assert!(has_taint(&node, FOREIGN), "{:?}", taints(&node));
    stage.harness.ready("default").await;
}

#[tokio::test]
async fn an_operator_that_starts_from_a_stale_list_writes_nothing_stale() {
    let (stage, neighbour) = with_neighbour().await;
    for name in ["stays", "leaves"] {
        stage.join(name, WINDOWS_2022).await;
    }
    // The neighbour has these nodes in its cache once it has shown them.
    let operator = stage.operator();
    stage.proxy.inject(hits("watch", "nodes", ALL, Fault::Neighbour));
    stage.harness.apply_until_ready(json!({})).await;
    stage.interrupt(async {}, hits("watch", "nodes", ALL, Fault::Neighbour)).await;
    stage.join("witness", WINDOWS_2022).await;
    stage.harness.is_marked("witness").await;
    operator.stop().await;
    stage.harness.edit_node("leaves", json!({"metadata": {"labels": {POOL: null}}})).await;

    neighbour.cut_from_etcd();
    stage.harness.nodes().delete("leaves", &DeleteParams::default()).await.unwrap();
    stage.harness.join_node(SimulatedNode::linux().name("leaves")).await;
    let as_it_is = stage.harness.node("leaves").await;
    let before = stage.about("nodes").len();
    stage.proxy.inject(|passing| {
        hits("watch", "nodes", ALL, Fault::Neighbour)(passing)
            .or_else(|| hits("list", "nodes", ALL, Fault::NeighboursCache)(passing))
    });
    let _operator = stage.operator();
    stage.harness.apply_pool(json!({"taints": [taint(DEDICATED)]})).await;
    let changed = |node: &Node| has_taint(node, DEDICATED);
    stage.harness.node_until("stays", "has the new taint", changed).await;
    stage.harness.node_until("witness", "has the new taint", changed).await;
    stage.join("late", WINDOWS_2022).await;
    neighbour.mend();
    stage.harness.node_until("late", "has the new taint", changed).await;
    stage.harness.ready("default").await;
    assert_eq!(stage.harness.node("leaves").await.metadata.resource_version, as_it_is.metadata.resource_version);
    let requests = stage.about("nodes").split_off(before);
    assert!(requests.contains(&"patch nodes 422".to_owned()), "what is no more was not written: {requests:?}");
}
