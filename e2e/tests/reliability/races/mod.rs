//! Many clients write the same nodes at the same time: none of their edits is lost.

mod history;
mod ledger;
mod pools;
mod writers;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::{Harness, merge};
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::machine::process::free_port;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::kubelet::Kubelet;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::cluster::Flags;
use winpool_e2e::servers::lending::{lend, lend_cluster_with};
use winpool_e2e::servers::requests::{sample, scrape};
use winpool_operator::Options;

use crate::drift::no_drift;
use history::{Recorder, Version, examine, nodes};
use ledger::{GROUP, Ledger, survivors};
use writers::{Writer, careless_operator};

const WRITERS: u64 = 8;

/// The controller notices a silent kubelet within seconds instead of a minute.
const HASTY: Flags<'static> = Flags {
    controller_manager: &[
        "--node-monitor-grace-period=4s",
        "--node-monitor-period=1s",
        "--node-eviction-rate=100",
        "--secondary-node-eviction-rate=100",
        "--large-cluster-size-threshold=1",
    ],
    kwok: &["--node-lease-duration-seconds=8"],
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_foreign_edit_survives_while_pools_change() {
    race(50, Duration::from_secs(25)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make chaos-long"]
async fn every_foreign_edit_survives_minutes_of_it() {
    race(50, Duration::from_mins(5)).await;
}

/// Writers, pools, and the node-lifecycle controller about kubelets that come and go.
async fn race(count: usize, time: Duration) {
    let harness = Harness::with(lend_cluster_with(HASTY).await.unwrap()).await;
    let (client, cluster) = (harness.client.clone(), harness.cluster());
    let kubelets = join(&client, count).await;
    let names: Vec<String> = kubelets.iter().map(|kubelet| kubelet.name().to_owned()).collect();
    for name in &names {
        cluster.node_ready(name).await.unwrap();
    }
    let (operator, metrics) = operator(&harness);
    let recorder = Recorder::start(&client).await;

    let (ledger, stop) = (Arc::new(Ledger::default()), CancellationToken::new());
    let mut tasks = JoinSet::new();
    for seed in 0..WRITERS {
        tasks.spawn(Writer::new(&client, names.clone(), seed, &ledger).run(stop.clone()));
    }
    tasks.spawn(flap(kubelets, stop.clone()));
    tasks.spawn(fall_silent(client.clone(), names.clone(), stop.clone()));
    let end = async {
        tokio::time::sleep(time).await;
        // A busy machine needs longer for enough races.
        let enough = async || Ok((ledger.edits().len() > 20 * count).then_some(()));
        let result = wait_for("there are enough edits", Duration::from_mins(3), enough).await;
        stop.cancel();
        result.unwrap();
    };
    let (changes, ()) = tokio::join!(pools::change(&harness, &stop), end);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }

    pools::delete(&harness, "second").await;
    harness.apply_pool(json!({})).await;
    for name in &names {
        cluster.node_ready(name).await.unwrap();
    }
    no_drift(&client, Duration::from_mins(1), "after the race").await;
    harness.ready("default").await;
    let (end, revision) = now(&client).await;
    let findings = examine(&recorder.until(revision).await, &ledger);
    let lost = survivors(&ledger, &end);

    let (edits, conflicts) = (ledger.edits().len(), ledger.conflicts());
    println!(
        "races: {count} nodes, {time:?}: {edits} foreign edits acknowledged, {conflicts} refused as too late; \
         {changes} changes of pools; {findings}; winpool's requests: {}",
        requests_of(metrics).await
    );
    operator.stop().await;
    assert!(findings.faults.is_empty(), "{}", findings.faults.join("\n"));
    assert!(lost.is_empty(), "{}", lost.join("\n"));
    assert_eq!(findings.by_writers, edits, "the watch saw every edit");
    // Enough races have happened.
    assert!(findings.by_winpool > count && findings.unreachable > 0, "{findings}, {edits} edits");
}

async fn join(client: &Client, count: usize) -> Vec<Kubelet> {
    let mut kubelets = Vec::new();
    for number in 0..count {
        let group = if number % 2 == 0 { "a" } else { "b" };
        let node = SimulatedNode::server_2022(&format!("win-{number:02}")).label(GROUP, group);
        kubelets.push(node.join(client).await.unwrap());
    }
    kubelets
}

/// Starts the operator with its own account, and returns the address of its metrics.
fn operator(harness: &Harness) -> (Operator, SocketAddr) {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let options = Options { leader_election: false, listen: Some(listen), ..Options::default() };
    (Operator::start_with(harness.account.config.clone(), options), listen)
}

/// The responses to winpool's writes of nodes.
async fn requests_of(metrics: SocketAddr) -> String {
    let text = scrape(metrics).await.unwrap();
    let count = |code: &str| {
        let name = format!(r#"winpool_kube_requests_total{{verb="patch",resource="nodes",code="{code}"}}"#);
        format!("{} {code}", sample(&text, &name).unwrap_or_default())
    };
    ["200", "422", "409", "403", "error", "cancelled"].map(count).join(", ")
}

/// Kubelets that say that they are not ready, until kwok says that they are: the node-lifecycle controller taints and
/// untaints them at once.
async fn flap(kubelets: Vec<Kubelet>, stop: CancellationToken) {
    let mut dice = Dice::new(42);
    while !stop.is_cancelled() {
        kubelets[dice.roll(kubelets.len())].report_ready(false).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Kubelets whose heartbeats stop: another holder has their Lease for a while, which kwok respects.
async fn fall_silent(client: Client, names: Vec<String>, stop: CancellationToken) {
    const SILENCE: u64 = 8;
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let mut dice = Dice::new(43);
    while !stop.is_cancelled() {
        let name = &names[dice.roll(names.len())];
        let lease = json!({"spec": {
            "holderIdentity": "nobody", "leaseDurationSeconds": SILENCE,
            "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
        }});
        merge(&leases, name, lease).await;
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// All nodes, and the newest of their revisions.
async fn now(client: &Client) -> (BTreeMap<String, Version>, u64) {
    let list = nodes(client).list(&ListParams::default()).await.unwrap();
    let versions: BTreeMap<_, _> = list.iter().map(|node| (node.name_any(), Version::of(node))).collect();
    let youngest = versions.values().map(|version| version.revision).max().unwrap();
    (versions, youngest)
}

/// Proves that the examination detects a lost edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_race_test_detects_an_operator_that_writes_taints_like_kubectl() {
    let server = lend().await.unwrap();
    let client = server.client();
    join(&client, 4).await;
    let names: Vec<String> = (0..4).map(|number| format!("win-{number:02}")).collect();
    let recorder = Recorder::start(&client).await;
    let (ledger, stop) = (Arc::new(Ledger::default()), CancellationToken::new());
    let mut tasks = JoinSet::new();
    for seed in 0..WRITERS {
        tasks.spawn(Writer::new(&client, names.clone(), seed, &ledger).run(stop.clone()));
    }
    tasks.spawn(careless_operator(client.clone(), names, stop.clone()));
    // An edit may be seen before it is in the ledger: only winpool's name counts.
    let by_winpool = |fault: &String| fault.contains("winpool changed what belongs to others");
    let seen = async || Ok(examine(&recorder.so_far(), &ledger).faults.iter().any(by_winpool).then_some(()));
    wait_for("an edit is lost", LIMIT, seen).await.unwrap();
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let (_, revision) = now(&client).await;
    let findings = examine(&recorder.until(revision).await, &ledger);
    println!("a careless operator beside {} foreign edits: {findings}", ledger.edits().len());
    assert!(findings.faults.iter().any(by_winpool), "{}", findings.faults.join("\n"));
}
