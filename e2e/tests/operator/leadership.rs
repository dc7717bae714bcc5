//! Leader election on a real API server, and its effect on writes.

use std::time::{Duration, Instant};

use json_patch::Patch as JsonPatch;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use winpool_client::error::{Failure, RequestError};
use winpool_core::election::{LEASE_DURATION, RENEW_DEADLINE};
use winpool_e2e::harness::objects::label;
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::network::proxy::Proxy;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::lending::lend;
use winpool_operator::election::{Elector, Seized};
use winpool_operator::leadership::Leadership;
use winpool_operator::write::Applier;

const NAMESPACE: &str = "default";

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn holder(client: &Client) -> Option<String> {
    leases(client).get_opt("winpool").await.unwrap()?.spec?.holder_identity
}

/// A candidate that takes part in the election until it resigns.
struct Contender {
    leadership: Leadership,
    resign: CancellationToken,
    task: JoinHandle<bool>,
}

impl Contender {
    fn new(client: Client) -> Self {
        let (elector, resign) = (Elector::new(client, NAMESPACE), CancellationToken::new());
        let leadership = elector.leadership();
        Self { leadership, resign: resign.clone(), task: tokio::spawn(elector.run(resign, CancellationToken::new())) }
    }

    async fn leads(&self) -> u64 {
        wait_for("it leads", LIMIT, async || Ok(self.leadership.term())).await.unwrap()
    }

    async fn resigns(self) {
        self.resign.cancel();
        assert!(!self.task.await.unwrap(), "the history did not go back");
    }
}

/// Writes a node without end, through the fence, and over a network of its own. Returns when the last write was accepted.
async fn write_until_refused(applier: &Applier) -> (u64, Timestamp) {
    let (mut number, mut last) = (0, Timestamp::now());
    loop {
        let label = json!([{"op": "add", "path": "/metadata/labels/example.com~1number", "value": number.to_string()}]);
        let patch: JsonPatch = serde_json::from_value(label).unwrap();
        match applier.patch_node("win", patch).await {
            Ok(_) => (number, last) = (number + 1, Timestamp::now()),
            Err(RequestError::Failed { failure: Failure::NotLeading, .. }) => return (number, last),
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_leader_that_cannot_renew_its_lease_stops_writing_before_it_expires() {
    let server = lend().await.unwrap();
    let client = server.client();
    SimulatedNode::server_2022("win").join(&client).await.unwrap();
    let config = server.config().unwrap();
    let proxy = Proxy::start(config.cluster_url.port_u16().unwrap()).await.unwrap();
    let mut through_proxy = config.clone();
    through_proxy.cluster_url = format!("https://127.0.0.1:{}", proxy.port()).parse().unwrap();
    let cut_off = Contender::new(Client::try_from(through_proxy).unwrap());
    let first_term = cut_off.leads().await;
    let other = Contender::new(client.clone());
    let applier = |contender: &Contender| Applier::new(client.clone(), contender.leadership.clone());
    let (of_cut_off, of_other) = (applier(&cut_off), applier(&other));
    assert_eq!(write_until_refused(&of_other).await.0, 0, "a standby writes nothing");

    let never_two = async {
        loop {
            assert!(cut_off.leadership.term().is_none() || other.leadership.term().is_none(), "two lead");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let story = async {
        let writing = tokio::spawn(async move { write_until_refused(&of_cut_off).await });
        // A renewal or two, so that it is not the first one that counts.
        let first = leases(&client).get("winpool").await.unwrap().resource_version();
        let renewed = async || Ok((leases(&client).get("winpool").await?.resource_version() != first).then_some(()));
        wait_for("the Lease is renewed", LIMIT, renewed).await.unwrap();
        proxy.cut();
        let cut = Instant::now();
        let (writes, last) = writing.await.unwrap();
        let stopped = cut.elapsed();
        let lease = leases(&client).get("winpool").await.unwrap();
        let renewal = lease.spec.unwrap().renew_time.unwrap().0;
        let good_until = renewal + RENEW_DEADLINE;
        assert!(
            last <= good_until,
            "the last of {writes} writes was accepted at {last}, leadership ended at {good_until}"
        );
        assert!(other.leadership.term().is_none(), "the Lease has not run out yet");
        other.leads().await;
        let taken_over = cut.elapsed();
        println!("leader cut off: its last write of {writes} after {stopped:?}, the other leads after {taken_over:?}");
        let waited = Duration::try_from(Timestamp::now().duration_since(renewal)).unwrap();
        assert!(waited >= LEASE_DURATION, "{waited:?}");

        proxy.mend();
        other.resign.cancel();
        assert!(cut_off.leads().await > first_term, "it stood by all the time");
    };
    tokio::select! {
        () = never_two => {}
        () = story => {}
    }
    other.resigns().await;
    cut_off.resigns().await;
    assert_eq!(holder(&client).await, None);
}

#[tokio::test]
async fn a_lease_taken_by_force_stops_the_leader_until_it_is_released() {
    let (harness, audit) = Harness::audited().await;
    let operators = ["winpool-a", "winpool-b"].map(|user| Operator::elected(&harness.server, user));
    harness.apply_pool(json!({})).await;
    harness.join("before").await;
    harness.is_marked("before").await;
    harness.ready("default").await;

    let looks = || audit.requests().iter().filter(|r| r.resource == "leases" && r.verb == "get").count();
    let (leader, looks_before) = (holder(&harness.client).await, looks());
    let (started, client) = (Instant::now(), harness.client.clone());
    let taking = tokio::spawn(Seized::take(client, NAMESPACE, Duration::from_mins(10)));
    let taken = async || Ok(Some(holder(&harness.client).await).filter(|holder| *holder != leader));
    wait_for("the Lease is taken", LIMIT, taken).await.unwrap();
    // The leader stopped long before its Lease expired, because it saw the new holder.
    let looked = async || Ok((looks() > looks_before).then_some(()));
    wait_for("the leader makes sure whose Lease it is", LIMIT, looked).await.unwrap();
    let stopped = audit.requests().len();
    harness.join("meanwhile").await;
    let seized = taking.await.unwrap().unwrap();
    println!("Lease taken from a leader: certain after {:?}", started.elapsed());
    assert!(started.elapsed() >= LEASE_DURATION);

    // The new holder may write, and no other process does.
    let applier = Applier::new(harness.client.clone(), seized.leadership.clone());
    let patch: JsonPatch =
        serde_json::from_value(json!([{"op": "add", "path": "/metadata/labels/x", "value": "y"}])).unwrap();
    applier.patch_node("meanwhile", patch).await.unwrap();
    assert_eq!(label(&harness.node("meanwhile").await, POOL), None);
    assert_eq!(audit.requests().split_off(stopped), Vec::new(), "operators ask nothing and write nothing");

    let released = Instant::now();
    seized.release(None).await.unwrap();
    harness.is_marked("meanwhile").await;
    println!("Lease released: an operator has written after {:?}", released.elapsed());
    for operator in operators {
        operator.stop().await;
    }
    assert_eq!(holder(&harness.client).await, None, "the last one released it");

    let started = Instant::now();
    let seized = Seized::take(harness.client.clone(), NAMESPACE, Duration::from_mins(10)).await.unwrap();
    assert!(started.elapsed() < LEASE_DURATION, "no process held it: nothing to wait for");
    seized.release(None).await.unwrap();
}
