//! A process ends although requests are not answered, and another one leads.

use std::time::Duration;

use serde_json::json;
use winpool_e2e::harness::operator::{Operator, options};
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError};
use winpool_e2e::servers::faults::traffic::Passing;
use winpool_operator::Options;

use crate::stage::{Stage, WINDOWS_2022};

/// A process that gets SIGTERM ends in time, whatever the API server does not answer.
#[tokio::test]
async fn a_process_ends_in_time_whatever_request_is_not_answered() {
    type Unanswered = fn(&Passing) -> bool;
    let cases: [(&str, Unanswered); 5] = [
        ("the first lists", |passing| matches!(passing.asked.verb, "list" | "watch")),
        ("all requests", |_| true),
        ("the list of DaemonSets", |passing| passing.path.starts_with("/apis/apps/v1/daemonsets")),
        ("writes of nodes", |passing| passing.asked.verb == "patch" && passing.asked.resource == "nodes"),
        ("writes of status", |passing| {
            passing.asked.verb == "patch" && passing.asked.resource == "windowspools/status"
        }),
    ];
    for (what, is_unanswered) in cases {
        let stage = Stage::new().await;
        stage.join("win", WINDOWS_2022).await;
        stage.harness.apply_pool(json!({})).await;
        stage.proxy.inject(move |passing| is_unanswered(passing).then_some(Fault::Swallow));
        let installed = Options { installation: Some("winpool".to_owned()), ..options() };
        let operator = Operator::start_with(stage.config(), installed);
        stage.proxy.faulted(1, Duration::from_mins(1)).await.unwrap();
        println!("{what}");
        operator.stop().await;
        // Another one can continue at once, or after the Lease has expired.
        stage.proxy.calm();
        let next = Operator::start_with(stage.config(), options());
        stage.harness.is_tainted("win").await;
        next.stop().await;
    }
}

/// Two processes and an API server that is too busy for both, also for the Lease.
#[tokio::test]
async fn after_an_api_server_was_too_busy_for_the_lease_one_of_two_processes_leads() {
    let stage = Stage::new().await;
    stage.join("before", WINDOWS_2022).await;
    let candidates = [stage.candidate(), stage.candidate()];
    stage.harness.apply_until_ready(json!({})).await;
    stage.harness.is_tainted("before").await;
    stage.proxy.inject(|_| Some(Fault::Refuse(InjectedError::TooMany)));
    stage.join("meanwhile", WINDOWS_2022).await;
    let is_quiet = async || {
        let passed = stage.proxy.passed();
        let mut leases = passed.iter().filter(|passed| passed.request.asked.resource == "leases");
        let (first, last) = (leases.next(), leases.next_back());
        let lasts = first.zip(last).map(|(first, last)| last.request.received - first.request.received);
        Ok(lasts.filter(|lasts| *lasts > Duration::from_secs(20)))
    };
    wait_for("nobody could renew the Lease", Duration::from_mins(2), is_quiet).await.unwrap();
    let refused = stage.proxy.passed();
    let of_leases = refused.iter().filter(|passed| passed.request.asked.resource == "leases").count();
    assert!(of_leases <= 40, "{of_leases} requests");
    stage.proxy.calm();
    stage.harness.is_tainted("meanwhile").await;
    stage.harness.nodes_until("default", "has both nodes", |nodes| nodes.converged == 2).await;
    for candidate in candidates {
        candidate.stop().await;
    }
}
