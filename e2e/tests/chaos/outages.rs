//! Outages of the API server, etcd and the network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{Patch, PatchParams};
use serde_json::json;
use winpool_core::election::RENEW_DEADLINE;
use winpool_e2e::harness::objects::{has_taint, label};
use winpool_e2e::harness::{Harness, OS_WINDOWS, POOL};
use winpool_e2e::machine::process::Process;
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::etcd::Etcd;
use winpool_e2e::servers::faults::proxy::FaultProxy;
use winpool_e2e::servers::lending::lend_with;

use crate::stage::{Stage, WINDOWS_2022};

/// Longer than a leader may lead without a renewal, and longer than the limit of any request.
const OUTAGE: Duration = Duration::from_secs(12);
/// Enough for a Lease to expire, and for the pauses that grew during an outage.
const PATIENTLY: Duration = Duration::from_mins(2);

impl Stage {
    /// Uses an API server that only this test uses.
    async fn on(server: ApiServer) -> Self {
        let harness = Harness::on(server).await;
        let proxy = FaultProxy::start(&harness.server).await.unwrap();
        Self { harness, proxy }
    }

    /// Creates a pool and a converged node.
    async fn with_a_pool(&self) {
        self.join("before", WINDOWS_2022).await;
        self.harness.apply_pool(json!({})).await;
        self.is_marked_in_the_end("before").await;
        self.harness.nodes_until("default", "has its node", |nodes| nodes.converged == 1).await;
    }

    /// After an outage, a node joins and another one has lost its taint. Both converge with one request each, or the new
    /// node with two: its labels do not wait until winpool has listed the pods and the `DaemonSets` again, its taint does.
    async fn works_again(&self) {
        let before = self.about("nodes").len();
        let none = json!({"spec": {"taints": null}});
        let nodes = self.harness.nodes();
        let edited = async || Ok(nodes.patch("before", &PatchParams::default(), &Patch::Merge(&none)).await.ok());
        wait_for("the API server takes writes", PATIENTLY, edited).await.unwrap();
        self.join("after", WINDOWS_2022).await;
        let started = Instant::now();
        for name in ["before", "after"] {
            self.is_marked_in_the_end(name).await;
        }
        println!("works again: all is right after {:.1?}", started.elapsed());
        let accepted = self.about("nodes").split_off(before);
        let accepted = accepted.iter().filter(|request| *request == "patch nodes 200").count();
        assert!((2..=3).contains(&accepted), "{:?}", self.about("nodes"));
    }

    async fn is_marked_in_the_end(&self, name: &str) {
        let nodes = self.harness.nodes();
        let marked = async || {
            let node = nodes.get(name).await.ok();
            Ok(node.filter(|node| label(node, POOL).is_some() && has_taint(node, OS_WINDOWS)))
        };
        wait_for(&format!("node {name} is right"), PATIENTLY, marked).await.unwrap();
    }
}

/// Runs a leader through an outage of the API server or etcd.
async fn survives(server: ApiServer, outage: impl AsyncFnOnce(&Stage)) {
    let stage = Box::pin(Stage::on(server)).await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    outage(&stage).await;
    stage.works_again().await;
    operator.stop().await;
}

/// Stops the process (SIGSTOP) for longer than a leader may go without a renewal, and lets it continue.
async fn pause(process: &Process) {
    process.pause().unwrap();
    tokio::time::sleep(OUTAGE).await;
    process.go_on().unwrap();
}

async fn with_own_etcd() -> ApiServer {
    let etcd = Arc::new(Etcd::start().await.unwrap());
    ApiServer::start(&etcd, "registry").await.unwrap()
}

#[tokio::test]
async fn winpool_continues_after_a_restart_of_the_api_server() {
    survives(lend_with(&[]).await.unwrap(), async |stage| stage.harness.server.restart().await.unwrap()).await;
}

/// A new API server no longer has the changes since the last events, so all is listed again. Pauses that grew during the outage
/// would take longer than this.
#[tokio::test]
async fn all_is_seen_again_soon_after_a_long_outage() {
    let stage = Box::pin(Stage::on(with_own_etcd().await)).await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    let server = &stage.harness.server;
    server.process().kill();
    tokio::time::sleep(Duration::from_mins(1)).await;
    server.restart().await.unwrap();
    let restarted = Instant::now();
    stage.works_again().await;
    assert!(restarted.elapsed() < Duration::from_secs(30), "{:.1?}", restarted.elapsed());
    operator.stop().await;
}

#[tokio::test]
async fn winpool_continues_after_an_outage_of_etcd() {
    let outage = async |stage: &Stage| {
        let etcd = stage.harness.server.etcd();
        etcd.process().kill();
        tokio::time::sleep(OUTAGE).await;
        etcd.restart().await.unwrap();
    };
    survives(with_own_etcd().await, outage).await;
}

#[tokio::test]
async fn winpool_continues_after_etcd_was_stopped_for_longer_than_a_term() {
    survives(with_own_etcd().await, async |stage| pause(stage.harness.server.etcd().process()).await).await;
}

#[tokio::test]
async fn winpool_continues_after_the_api_server_was_stopped() {
    survives(lend_with(&[]).await.unwrap(), async |stage| pause(stage.harness.server.process()).await).await;
}

/// The revisions of etcd are smaller afterwards. A watch that continues shows nothing until they have caught up.
#[tokio::test]
async fn winpool_starts_anew_after_etcd_was_restored_from_a_backup() {
    let stage = Box::pin(Stage::on(with_own_etcd().await)).await;
    let candidates = [stage.candidate(), stage.candidate()];
    stage.with_a_pool().await;
    let (server, etcd) = (&stage.harness.server, stage.harness.server.etcd());
    etcd.back_up().unwrap();
    for count in 0..500 {
        let note = json!({"metadata": {"annotations": {"example.com/count": count.to_string()}}});
        stage.harness.edit_node("before", note).await;
    }
    etcd.restore().await.unwrap();
    server.restart().await.unwrap();
    let restored = Instant::now();
    for candidate in candidates {
        let error = candidate.failed_within(PATIENTLY).await;
        assert!(matches!(error, winpool_operator::Error::HistoryWentBack), "{error}");
        println!("noticed after {:.1?}", restored.elapsed());
    }
    let operator = stage.candidate();
    stage.works_again().await;
    operator.stop().await;
}

#[tokio::test]
async fn changes_during_a_partition_are_reconciled_afterwards() {
    let stage = Stage::new().await;
    let operator = stage.candidate();
    stage.with_a_pool().await;
    stage.proxy.cut();
    stage.join("meanwhile", WINDOWS_2022).await;
    stage.harness.edit_node("before", json!({"metadata": {"labels": {POOL: null}}})).await;
    tokio::time::sleep(OUTAGE).await;
    assert!(OUTAGE > RENEW_DEADLINE);
    assert_eq!(label(&stage.harness.node("meanwhile").await, POOL), None);
    stage.proxy.mend();
    for name in ["before", "meanwhile"] {
        stage.is_marked_in_the_end(name).await;
    }
    stage.works_again().await;
    operator.stop().await;
}
