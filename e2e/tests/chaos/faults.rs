//! One fault after the other, and what winpool does about each. Every test says at its end which requests it took: that
//! is where it shows when a fault is no longer handled.

use std::time::Duration;

use serde_json::json;
use winpool_core::api::WindowsPool;
use winpool_e2e::{
    Fault, Refusal,
    harness::{OS_WINDOWS, POOL, has_taint, label, taints},
};

use crate::stage::{ALL, FOR_EVER, Stage, WINDOWS_2022, hits};

/// How long an impatient operator does not send what was refused.
const PATIENCE: Duration = Duration::from_secs(2);

impl Stage {
    pub async fn is_marked(&self, name: &str) {
        let node = self.harness.node_until(name, "is marked", |node| label(node, POOL).is_some()).await;
        assert!(has_taint(&node, OS_WINDOWS), "{:?}", taints(&node));
    }
}

fn blocked(count: i64) -> impl Fn(&WindowsPool) -> bool {
    move |pool| pool.status.as_ref().is_some_and(|status| status.nodes.blocked == count)
}

#[tokio::test]
async fn a_write_that_is_never_answered_is_given_up_and_sent_again() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(hits("patch", "nodes", 0..1, Fault::Swallow));
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.is_marked("win").await;
    assert_eq!(stage.about("nodes"), ["patch nodes -", "patch nodes 200"]);
    operator.stop().await;
}

#[tokio::test]
async fn a_write_that_was_done_and_never_answered_is_given_up_and_found_done() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(hits("create", "runtimeclasses", 0..1, Fault::Mute));
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.ready("default").await;
    assert_eq!(stage.about("runtimeclasses"), ["create runtimeclasses 201"]);
    operator.stop().await;
}

#[tokio::test]
async fn a_write_whose_connection_breaks_is_sent_again() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(hits("patch", "nodes", 0..2, Fault::Drop));
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.is_marked("win").await;
    assert_eq!(stage.about("nodes"), ["patch nodes -", "patch nodes -", "patch nodes 200"]);
    operator.stop().await;
}

#[tokio::test]
async fn a_node_patch_whose_answer_is_lost_is_not_done_twice() {
    let stage = Stage::new().await;
    // The cache does not show it either.
    stage.proxy.inject(|passing| {
        hits("patch", "nodes", 0..1, Fault::Lose)(passing)
            .or_else(|| hits("watch", "nodes", ALL, Fault::Stall { after: 1, lasts: FOR_EVER })(passing))
    });
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.ready("default").await;
    stage.join("win", WINDOWS_2022).await;
    let expected = ["patch nodes 200", "patch nodes 422", "get nodes 200"];
    assert_eq!(stage.until_about("nodes", expected.len()).await, expected);
    stage.proxy.calm();
    let converged = |pool: &WindowsPool| pool.status.as_ref().is_some_and(|status| status.nodes.converged == 1);
    stage.harness.pool_until("default", "counts the node", converged).await;
    assert_eq!(stage.about("nodes"), expected, "that was all");
    operator.stop().await;
}

#[tokio::test]
async fn a_class_whose_answer_is_lost_is_found_made() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    // The cache does not show it either.
    stage.proxy.inject(|passing| {
        hits("create", "runtimeclasses", 0..1, Fault::Lose)(passing)
            .or_else(|| hits("watch", "runtimeclasses", ALL, Fault::Stall { after: 0, lasts: FOR_EVER })(passing))
    });
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.ready("default").await;
    let expected = ["create runtimeclasses 201", "create runtimeclasses 409", "get runtimeclasses 200"];
    assert_eq!(stage.about("runtimeclasses")[..3], expected);
    stage.is_marked("win").await;
    operator.stop().await;
}

#[tokio::test]
async fn half_an_answer_is_none() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(|passing| {
        let first = passing.number == 0 && matches!(passing.asked.verb, "get" | "list" | "create" | "patch");
        first.then_some(Fault::Halve)
    });
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.ready("default").await;
    stage.is_marked("win").await;
    let passed = stage.proxy.passed();
    let accepted = passed.iter().filter(|passed| passed.summary() == "patch nodes 200").count();
    assert_eq!(accepted, 1, "{:?}", stage.about("nodes"));
    for resource in ["nodes", "windowspools", "runtimeclasses"] {
        let lists = passed.iter().filter(|passed| passed.summary() == format!("list {resource} 200")).count();
        assert!(lists >= 2, "{resource}: {lists}");
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_conflict_is_followed_by_a_fresh_read_at_once() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    let conflict = Fault::Refuse(Refusal::Conflict);
    stage.proxy.inject(move |passing| {
        hits("patch", "nodes", 0..1, conflict)(passing)
            .or_else(|| hits("create", "runtimeclasses", 0..1, conflict)(passing))
    });
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.is_marked("win").await;
    assert_eq!(stage.about("nodes"), ["patch nodes 409", "get nodes 200", "patch nodes 200"]);
    let classes = ["create runtimeclasses 409", "get runtimeclasses 404", "create runtimeclasses 201"];
    assert_eq!(stage.about("runtimeclasses"), classes);
    operator.stop().await;
}

#[tokio::test]
async fn a_patch_whose_tests_fail_without_a_reason_blocks_its_node_for_a_while() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(hits("patch", "nodes", ALL, Fault::Refuse(Refusal::FailedTest)));
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    let pool = stage.harness.pool_until("default", "says that the node is blocked", blocked(1)).await;
    let problems = json!(pool.status.unwrap().problems).to_string();
    assert!(problems.contains("tests fail although the node is as it was read"), "{problems}");
    assert_eq!(stage.about("nodes")[..2], ["patch nodes 422", "get nodes 200"], "the same patch is not sent again");
    stage.proxy.calm();
    stage.is_marked("win").await;
    stage.harness.pool_until("default", "is rid of the problem", blocked(0)).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_patch_that_is_invalid_is_sent_in_parts_and_then_no_more_for_a_while() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.harness.edit_node("win", json!({"metadata": {"labels": {"node.kubernetes.io/windows-build": null}}})).await;
    stage.proxy.inject(hits("patch", "nodes", 0..1, Fault::Refuse(Refusal::Invalid)));
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.is_marked("win").await;
    let requests = stage.about("nodes");
    assert_eq!(requests[..3], ["patch nodes 422", "patch nodes 200", "patch nodes 200"]);
    // A patch that was computed before the operator saw its own last one comes too late, and changes nothing.
    assert!(!requests[3..].contains(&"patch nodes 200".to_owned()), "{requests:?}");

    stage.proxy.inject(hits("patch", "nodes", ALL, Fault::Refuse(Refusal::Invalid)));
    stage.join("other", WINDOWS_2022).await;
    let pool = stage.harness.pool_until("default", "says that a node is blocked", blocked(1)).await;
    assert!(json!(pool.status.unwrap().problems).to_string().contains("made-up answer"), "in the refuser's words");
    stage.proxy.calm();
    stage.is_marked("other").await;
    let passed = stage.proxy.passed();
    let sent: Vec<_> = passed.iter().filter(|passed| passed.request.path.starts_with("/api/v1/nodes/other")).collect();
    for two in sent.windows(2) {
        let pause = two[1].request.received - two[0].request.received;
        assert!(pause >= PATIENCE, "{pause:?} between {} and {}", two[0].summary(), two[1].summary());
    }
    operator.stop().await;
}

#[tokio::test]
async fn too_many_requests_are_answered_with_the_pause_that_is_asked_for_and_growing_ones() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(hits("patch", "nodes", 0..3, Fault::Refuse(Refusal::TooMany)));
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.is_marked("win").await;
    let passed = stage.proxy.passed();
    let sent: Vec<_> = passed.iter().filter(|passed| passed.summary().starts_with("patch nodes")).collect();
    let pauses: Vec<_> = sent.windows(2).map(|two| two[1].request.received - two[0].request.received).collect();
    assert_eq!(pauses.len(), 3, "{pauses:?}");
    // What the server asks for, then half a second, doubled each time, and jitter on top.
    for (pause, least) in pauses.iter().zip([2500, 3000, 4000]) {
        assert!(*pause >= Duration::from_millis(least), "{pauses:?}");
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_server_that_fails_is_asked_again() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    let asked = [
        ("patch", "nodes", 500),
        ("create", "runtimeclasses", 503),
        ("patch", "windowspools", 500),
        ("patch", "windowspools/status", 503),
        ("list", "pods", 500),
        ("list", "nodes", 503),
        ("get", "version", 500),
    ];
    stage.proxy.inject(move |passing| {
        let (.., code) = asked
            .iter()
            .find(|(verb, resource, _)| (*verb, *resource) == (passing.asked.verb, passing.asked.resource))?;
        let refusal = if *code == 500 { Refusal::Internal } else { Refusal::Unavailable };
        (passing.number == 0).then_some(Fault::Refuse(refusal))
    });
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.ready("default").await;
    stage.is_marked("win").await;
    let passed = stage.proxy.passed();
    for (verb, resource, code) in asked {
        let met = passed
            .iter()
            .filter(|passed| (passed.request.asked.verb, passed.request.asked.resource) == (verb, resource));
        let codes: Vec<_> = met.filter_map(|passed| passed.code).collect();
        assert_eq!(codes[0], code, "{verb} {resource}");
        // The version is only told in status.
        assert!(resource == "version" || codes[1..].iter().all(|code| *code < 300), "{verb} {resource}: {codes:?}");
    }
    operator.stop().await;
}

#[tokio::test]
async fn a_look_at_pods_that_fails_does_not_put_a_class_off() {
    let stage = Stage::new().await;
    let operator = stage.operator();
    let spec = |handler: &str| json!({"runtimeClasses": [{"name": "extra", "version": "2022", "handler": handler}]});
    stage.harness.apply_pool(spec("first")).await;
    stage.harness.ready("default").await;
    stage.proxy.inject(hits("list", "pods", 0..1, Fault::Refuse(Refusal::Internal)));
    stage.harness.apply_pool(spec("second")).await;
    stage.harness.class_until("extra", "has the second handler", |class| class.handler == "second").await;
    assert_eq!(stage.injected().values().sum::<usize>(), 1);
    operator.stop().await;
}

#[tokio::test]
async fn a_slow_server_is_waited_for() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(|passing| (passing.asked.verb != "watch").then_some(Fault::Delay(Duration::from_secs(1))));
    let operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.ready("default").await;
    stage.is_marked("win").await;
    assert_eq!(stage.about("nodes"), ["patch nodes 200"]);
    assert_eq!(stage.about("runtimeclasses"), ["create runtimeclasses 201"]);
    operator.stop().await;
}
