//! Kinds that cannot be read for longer than a moment: status says so, and no node gets a taint.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use kube::{Client, Config};
use serde_json::json;
use winpool_e2e::harness::OS_WINDOWS;
use winpool_e2e::harness::objects::{condition_text, has_taint};
use winpool_e2e::harness::operator::{Operator, alone};
use winpool_e2e::machine::process::free_port;
use winpool_e2e::machine::wait::wait_for;
use winpool_operator::Options;

use crate::stage::{Stage, WINDOWS_2022};

/// The pauses between the attempts of a watch grow to a minute.
const PATIENTLY: Duration = Duration::from_mins(3);

/// A pool with a node, and an operator with endpoints.
async fn stage() -> (Stage, Operator, Client) {
    let stage = Stage::new().await;
    stage.join("before", WINDOWS_2022).await;
    let (operator, endpoints) = with_endpoints(&stage);
    stage.harness.apply_until_ready(json!({})).await;
    stage.harness.is_tainted("before").await;
    (stage, operator, endpoints)
}

fn with_endpoints(stage: &Stage) -> (Operator, Client) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let operator = Operator::start_with(stage.config(), Options { listen: Some(address), ..alone() });
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    // It would repeat a request that gets 503.
    config.default_retry = false;
    (operator, Client::try_from(config).unwrap())
}

/// True if `/readyz` answers 200.
async fn is_ready(endpoints: &Client) -> bool {
    match endpoints.request_text(http::Request::get("/readyz").body(Vec::new()).unwrap()).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 503 => false,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until Ready has this status, reason and a message with these words.
async fn says(stage: &Stage, status: &str, reason: &str, words: &str) {
    let pools = stage.harness.pools();
    let (mut seen, what) = (None, format!("Ready is {status}, {reason}, {words}"));
    let says = wait_for(&what, PATIENTLY, async || {
        seen = condition_text(&pools.get("default").await?, "Ready");
        let (is, why, message) = seen.clone().unwrap_or_default();
        Ok((is == status && why == reason && message.contains(words)).then_some(()))
    });
    says.await.unwrap_or_else(|error| panic!("{error}: {seen:?}"));
}

#[tokio::test]
async fn while_nodes_may_not_be_watched_ready_is_unknown_and_so_is_the_readiness_of_the_process() {
    let (stage, _operator, endpoints) = stage().await;
    assert!(is_ready(&endpoints).await);
    stage.harness.account.take(("watch", "", "nodes")).await;
    stage.interrupt(stage.join("unseen", WINDOWS_2022), |_| None).await;
    says(&stage, "Unknown", "ReadFailed", "cannot watch resource \"nodes\"").await;
    // The first failure was the cut connection.
    let is_unready = async || Ok((!is_ready(&endpoints).await).then_some(()));
    wait_for("the process is not ready", PATIENTLY, is_unready).await.unwrap();
    assert!(!has_taint(&stage.harness.node("unseen").await, OS_WINDOWS));

    stage.harness.account.give_back(("watch", "", "nodes")).await;
    says(&stage, "True", "Done", "2 of 2 nodes converged").await;
    assert!(is_ready(&endpoints).await);
    stage.harness.is_tainted("unseen").await;
}

#[tokio::test]
async fn a_process_that_may_not_list_nodes_from_the_start_is_not_ready_and_begins_when_it_may() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.harness.account.take(("list", "", "nodes")).await;
    let (_operator, endpoints) = with_endpoints(&stage);
    stage.harness.apply_pool(json!({})).await;
    let refused = async || {
        let lists = stage.proxy.passed();
        let mut lists = lists.iter().filter(|passed| passed.request.asked.resource == "nodes");
        Ok(lists.any(|passed| passed.code == Some(403)).then_some(()))
    };
    wait_for("a list of nodes is refused", PATIENTLY, refused).await.unwrap();
    assert!(!is_ready(&endpoints).await);
    assert!(
        stage.harness.pools().get("default").await.unwrap().status.is_none(),
        "it says nothing that it does not know"
    );
    stage.harness.account.give_back(("list", "", "nodes")).await;
    says(&stage, "True", "Done", "1 of 1 node converged").await;
    assert!(is_ready(&endpoints).await);
}
