//! Single faults. Every test checks which requests winpool sends: that shows when a fault is no longer handled.

use std::time::Duration;

use serde_json::json;
use winpool_e2e::harness::OS_WINDOWS;
use winpool_e2e::harness::objects::{has_taint, taints};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError};
use winpool_e2e::servers::faults::traffic::Passing;

use crate::stage::{ALL, FOR_EVER, Stage, WINDOWS_2022, hits};

impl Stage {
    pub async fn is_marked(&self, name: &str) {
        let node = self.harness.is_marked(name).await;
        assert!(has_taint(&node, OS_WINDOWS), "{:?}", taints(&node));
    }
}

/// An operator, the node `win` and an empty pool, on a network with this rule.
async fn with_faults(rule: impl Fn(&Passing) -> Option<Fault> + Send + Sync + 'static) -> (Stage, Operator) {
    let stage = Box::pin(Stage::new()).await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(rule);
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    (stage, operator)
}

#[tokio::test]
async fn a_write_without_an_answer_is_sent_again_or_found_done() {
    let (sent_again, found_done) = (["patch nodes -", "patch nodes 200"], ["create runtimeclasses 201"]);
    let cases: [(_, _, _, &[&str]); 3] = [
        ("patch", "nodes", (1, Fault::Swallow), &sent_again),
        ("create", "runtimeclasses", (1, Fault::Mute), &found_done),
        ("patch", "nodes", (2, Fault::Drop), &["patch nodes -", "patch nodes -", "patch nodes 200"]),
    ];
    for (verb, resource, (count, fault), expected) in cases {
        let (stage, operator) = with_faults(hits(verb, resource, 0..count, fault)).await;
        stage.is_marked("win").await;
        stage.harness.ready("default").await;
        assert_eq!(stage.about(resource), expected, "{fault:?}");
        operator.stop().await;
    }
}

#[tokio::test]
async fn a_node_patch_whose_response_is_lost_is_not_applied_twice() {
    let stage = Stage::new().await;
    // The cache does not show it either.
    stage.proxy.inject(|passing| {
        hits("patch", "nodes", 0..1, Fault::Lose)(passing)
            .or_else(|| hits("watch", "nodes", ALL, Fault::Stall { after: 1, lasts: FOR_EVER })(passing))
    });
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    stage.join("win", WINDOWS_2022).await;
    assert_eq!(stage.until_about("nodes", 2).await[..2], ["patch nodes 200", "patch nodes 422"]);
    stage.proxy.calm();
    stage.harness.nodes_until("default", "counts the node", |nodes| nodes.converged == 1).await;
    assert_eq!(stage.count("patch nodes 200"), 1);
}

#[tokio::test]
async fn a_truncated_response_is_an_error() {
    let (stage, _operator) = with_faults(|passing| {
        let first = passing.number == 0 && matches!(passing.asked.verb, "get" | "list" | "create" | "patch");
        first.then_some(Fault::Halve)
    })
    .await;
    stage.harness.ready("default").await;
    stage.is_marked("win").await;
    assert_eq!(stage.count("patch nodes 200"), 1, "{:?}", stage.about("nodes"));
    for resource in ["nodes", "windowspools", "runtimeclasses"] {
        let lists = stage.count(&format!("list {resource} 200"));
        assert!(lists >= 2, "{resource}: {lists}");
    }
}

#[tokio::test]
async fn a_write_that_comes_too_late_is_sent_again_without_a_read() {
    for (error, code) in [(InjectedError::Conflict, 409), (InjectedError::FailedTest, 422)] {
        let (stage, operator) = with_faults(move |passing| {
            hits("patch", "nodes", 0..1, Fault::Refuse(error))(passing)
                .or_else(|| hits("create", "runtimeclasses", 0..1, Fault::Refuse(InjectedError::Conflict))(passing))
        })
        .await;
        stage.is_marked("win").await;
        assert_eq!(stage.about("nodes"), [format!("patch nodes {code}"), "patch nodes 200".to_owned()]);
        assert_eq!(stage.about("runtimeclasses"), ["create runtimeclasses 409", "create runtimeclasses 201"]);
        operator.stop().await;
    }
}

#[tokio::test]
async fn too_many_requests_cause_the_requested_pause_and_a_growing_backoff() {
    let (stage, _operator) = with_faults(hits("patch", "nodes", 0..3, Fault::Refuse(InjectedError::TooMany))).await;
    stage.is_marked("win").await;
    let passed = stage.proxy.passed();
    let sent: Vec<_> = passed.iter().filter(|passed| passed.summary().starts_with("patch nodes")).collect();
    let pauses: Vec<_> = sent.windows(2).map(|two| two[1].request.received - two[0].request.received).collect();
    assert_eq!(pauses.len(), 3, "{pauses:?}");
    // The requested pause, plus half a second that doubles each time, plus jitter.
    for (pause, least) in pauses.iter().zip([2500, 3000, 4000]) {
        assert!(*pause >= Duration::from_millis(least), "{pauses:?}");
    }
}

#[tokio::test]
async fn server_errors_are_retried() {
    let asked = [
        ("patch", "nodes", 500),
        ("create", "runtimeclasses", 503),
        ("patch", "windowspools", 500),
        ("patch", "windowspools/status", 503),
        ("list", "daemonsets", 500),
        ("list", "nodes", 503),
    ];
    let (stage, _operator) = with_faults(move |passing| {
        let (.., code) = asked
            .iter()
            .find(|(verb, resource, _)| (*verb, *resource) == (passing.asked.verb, passing.asked.resource))?;
        let refusal = if *code == 500 { InjectedError::Internal } else { InjectedError::Unavailable };
        (passing.number == 0).then_some(Fault::Refuse(refusal))
    })
    .await;
    stage.harness.ready("default").await;
    stage.is_marked("win").await;
    let passed = stage.proxy.passed();
    for (verb, resource, code) in asked {
        let met = passed
            .iter()
            .filter(|passed| (passed.request.asked.verb, passed.request.asked.resource) == (verb, resource));
        let codes: Vec<_> = met.filter_map(|passed| passed.code).collect();
        assert_eq!(codes[0], code, "{verb} {resource}");
        assert!(codes[1..].iter().all(|code| *code < 300), "{verb} {resource}: {codes:?}");
    }
}

#[tokio::test]
async fn the_deletion_of_a_class_lists_no_pods() {
    let stage = Stage::new().await;
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({"runtimeClasses": [{"name": "extra", "version": "2022"}]})).await;
    stage.proxy.inject(hits("list", "pods", ALL, Fault::Refuse(InjectedError::Internal)));
    stage.harness.apply_pool(json!({})).await;
    let is_gone = async || Ok(stage.harness.classes().get_opt("extra").await?.is_none().then_some(()));
    wait_for("the class is gone", LIMIT, is_gone).await.unwrap();
    assert_eq!(stage.injected().values().sum::<usize>(), 0);
}
