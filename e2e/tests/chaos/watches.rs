//! Lists and watches that fail, stay silent, or repeat events.

use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;
use winpool_client::request_info::RequestInfo;
use winpool_core::api::NodeCounts;
use winpool_e2e::harness::POOL;
use winpool_e2e::harness::objects::label;
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError};
use winpool_e2e::servers::faults::traffic::Passing;

use crate::stage::{ALL, Stage, WINDOWS_2022, hits};

fn selects(count: i64) -> impl Fn(&NodeCounts) -> bool {
    move |nodes| [nodes.selected, nodes.converged] == [count; 2]
}

#[tokio::test]
async fn an_expired_watch_causes_a_new_list_without_the_nodes_that_left() {
    let stage = Stage::new().await;
    for name in ["stays", "leaves"] {
        stage.join(name, WINDOWS_2022).await;
    }
    // A list of pods fails in the same way.
    stage.proxy.inject(hits("list", "pods", 0..1, Fault::Refuse(InjectedError::Expired)));
    let _operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.nodes_until("default", "has two nodes", selects(2)).await;

    let leaves = async {
        stage.harness.nodes().delete("leaves", &DeleteParams::default()).await.unwrap();
    };
    stage.interrupt(leaves, hits("watch", "nodes", 0..2, Fault::Expire)).await;
    stage.harness.nodes_until("default", "has one node", selects(1)).await;
    let lists = stage.count("list nodes 200");
    assert!(lists >= 3, "two at the start, and again: {lists}");
}

#[tokio::test]
async fn a_node_that_joined_unseen_is_marked_after_a_new_list_of_several_pages() {
    let stage = Stage::new().await;
    // A page has 100.
    for number in 0..110 {
        stage.join(&format!("win-{number:03}"), WINDOWS_2022).await;
    }
    let _operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.harness.nodes_until("default", "has all nodes", selects(110)).await;

    // Its name puts it on the first page.
    let joins = stage.join("a-node", WINDOWS_2022);
    let slow = Fault::Delay(Duration::from_millis(300));
    let rule = move |passing: &Passing| {
        hits("watch", "nodes", 0..2, Fault::Expire)(passing).or_else(|| hits("list", "nodes", ALL, slow)(passing))
    };
    stage.interrupt(joins, rule).await;
    stage.harness.is_marked("a-node").await;
}

/// Until the pods are listed, no node gets the taint.
#[tokio::test]
async fn an_api_server_without_streaming_lists_is_asked_for_pages() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(hits("watch", "pods", 0..1, Fault::Refuse(InjectedError::Invalid)));
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    stage.harness.is_tainted("win").await;
    assert!(stage.count("list pods 200") > 0);
}

#[tokio::test]
async fn failed_lists_are_retried_with_pauses() {
    const KINDS: [&str; 3] = ["nodes", "windowspools", "runtimeclasses"];
    let stage = Stage::new().await;
    let unavailable = Fault::Refuse(InjectedError::Unavailable);
    // There are two watches of nodes.
    stage.proxy.inject(move |passing| {
        KINDS
            .into_iter()
            .find_map(|kind| hits("list", kind, 0..if kind == "nodes" { 6 } else { 3 }, unavailable)(passing))
    });
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    let passed = stage.proxy.passed();
    for kind in KINDS {
        let lists = passed.iter().filter(|passed| passed.request.asked == RequestInfo { verb: "list", resource: kind });
        let times: Vec<_> = lists.map(|passed| passed.request.received).collect();
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(last - first >= Duration::from_secs(1), "{kind}: {:?} for {} lists", last - first, times.len());
    }
}

#[tokio::test]
async fn watches_that_end_break_or_fail_are_restarted() {
    let stage = Stage::new().await;
    let faults = [
        Fault::End { after: 0 },
        Fault::Cut { after: 0 },
        Fault::Refuse(InjectedError::Internal),
        Fault::Halve,
        Fault::Drop,
        Fault::NoBookmarks,
    ];
    stage.proxy.inject(move |passing| {
        let number = usize::try_from(passing.number).unwrap();
        (passing.asked.verb == "watch").then(|| faults.get(number).copied()).flatten()
    });
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    // Each watch breaks in the middle of an event.
    for number in 0..4 {
        stage.join(&format!("win-{number}"), WINDOWS_2022).await;
        let name = format!("win-{number}");
        stage.harness.is_marked(&name).await;
    }
    stage.harness.nodes_until("default", "has all nodes", selects(4)).await;
}

#[tokio::test]
async fn a_watch_that_repeats_old_events_changes_nothing() {
    let stage = Stage::new().await;
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    stage.join("win", WINDOWS_2022).await;
    stage.harness.nodes_until("default", "has the node", selects(1)).await;
    assert_eq!(stage.about("nodes"), ["patch nodes 200"]);

    // The watch shows the node as it joined, and no later event.
    stage.interrupt(async {}, hits("watch", "nodes", ALL, Fault::Rewind { shown: 1 })).await;
    assert_eq!(stage.until_about("nodes", 2).await[..2], ["patch nodes 200", "patch nodes 422"]);
    stage.proxy.calm();
    stage.harness.nodes_until("default", "counts the node", |nodes| nodes.converged == 1).await;
    let requests = stage.about("nodes");
    assert!(requests[1..].iter().all(|request| request == "patch nodes 422"), "{requests:?}");
}

/// The longest time until a watch that shows nothing is restarted. docs/reliability.md names it.
const NOTICED: Duration = Duration::from_mins(1);

#[tokio::test]
async fn connections_that_die_silently_are_replaced_within_a_minute() {
    let stage = Stage::new().await;
    stage.join("first", WINDOWS_2022).await;
    let _operator = stage.operator();
    stage.harness.apply_until_ready(json!({})).await;
    stage.harness.is_marked("first").await;
    stage.proxy.silence();
    stage.join("win", WINDOWS_2022).await;
    stage.harness.classes().delete("windows-2022", &DeleteParams::default()).await.unwrap();
    let (nodes, classes) = (stage.harness.nodes(), stage.harness.classes());
    let repaired = async || {
        let node = nodes.get("win").await?;
        Ok(classes.get_opt("windows-2022").await?.filter(|_| label(&node, POOL).is_some()))
    };
    wait_for("the node is marked and its class exists", NOTICED, repaired).await.unwrap();
}

#[tokio::test]
async fn lists_and_watches_that_are_not_answered_are_repeated_within_a_minute() {
    let stage = Stage::new().await;
    stage.proxy.inject(|passing| {
        hits("list", "windowspools", 0..1, Fault::Swallow)(passing)
            .or_else(|| hits("watch", "nodes", 0..2, Fault::Mute)(passing))
            .or_else(|| hits("watch", "runtimeclasses", 0..1, Fault::Swallow)(passing))
    });
    let _operator = stage.operator();
    stage.harness.apply_pool(json!({})).await;
    stage.join("win", WINDOWS_2022).await;
    let nodes = stage.harness.nodes();
    let marked = async || Ok(Some(nodes.get("win").await?).filter(|node| label(node, POOL).is_some()));
    wait_for("the node is marked", NOTICED, marked).await.unwrap();
    stage.harness.ready("default").await;
}
