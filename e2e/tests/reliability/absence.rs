//! No winpool runs for a while, and pods for Windows are created. The scheduler is real.

use std::time::{Duration, Instant};

use kube::api::ListParams;
use serde_json::json;
use winpool_core::election::LEASE_DURATION;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::node_of;
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::program::Program;

use crate::program;

const PODS: u32 = 50;
const ABSENCE: Duration = Duration::from_mins(1);
/// The time within which each pod has a node, once a process leads.
const BOUND: Duration = Duration::from_secs(10);

#[tokio::test]
#[ignore = "takes minutes: make chaos-long"]
async fn fifty_pods_that_were_created_while_both_replicas_were_gone_have_nodes_soon_after_the_lease_has_expired() {
    let harness = Harness::with_nodes([SimulatedNode::server_2022("win"), SimulatedNode::linux().name("lin")]).await;
    let (server, program) = (&harness.server, program().await);
    let both = [(); 2].map(|()| Program::start(&program, server).unwrap());
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;
    // They are killed: nobody gives the Lease back, and the next candidate watches it for its whole duration.
    drop(both);

    let start = Instant::now();
    for number in 0..PODS {
        harness.run_pod(&format!("web-{number}"), json!({"nodeSelector": {"kubernetes.io/os": "windows"}})).await;
        tokio::time::sleep_until((start + ABSENCE / PODS * (number + 1)).into()).await;
    }
    let pods = async || harness.pods().list(&ListParams::default()).await.unwrap().items;
    assert!(pods().await.iter().all(|pod| node_of(pod).is_none()), "nobody helps them");

    let _both = [(); 2].map(|()| Program::start(&program, server).unwrap());
    let start = Instant::now();
    let bound = async || Ok(pods().await.iter().all(|pod| node_of(pod).is_some()).then_some(()));
    wait_for("all pods have a node", LEASE_DURATION + BOUND, bound).await.unwrap();
    println!("absence: {PODS} pods have a node {:.1} s after the start", start.elapsed().as_secs_f64());
}
