//! The deletion of a pool ends although requests fail.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::json;
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{BUILD, condition, has_taint, label, problems};
use winpool_e2e::harness::operator::{Operator, options};
use winpool_e2e::harness::{APPLIED, OS_WINDOWS, POOL};
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError};
use winpool_e2e::servers::faults::traffic::Passing;
use winpool_operator::Options;

use crate::stage::{ALL, Stage, WINDOWS_2022, hits};

/// The time that a deletion waits in these tests: long enough to read status meanwhile.
const PATIENCE: Duration = Duration::from_secs(8);

fn patient(stage: &Stage) -> Operator {
    let options = Options { leader_election: false, patience: PATIENCE, ..Options::default() };
    Operator::start_with(stage.config(), options)
}

/// Deletes a pool while these requests fail. Waits until the pool has named this object as what it waits for, and is gone.
async fn ends(verb: &'static str, resource: &'static str, object: &str) -> (Stage, Operator) {
    let stage = Stage::new().await;
    stage.join("stuck", WINDOWS_2022).await;
    let operator = patient(&stage);
    stage.harness.apply_until_ready(json!({})).await;
    stage.proxy.inject(hits(verb, resource, ALL, Fault::Refuse(InjectedError::Internal)));
    stage.harness.delete_pool("default").await;
    let names_it = |pool: &WindowsPool| condition(pool, "Ready") != Some("True") && problems(pool).contains(object);
    stage.harness.pool_until("default", &format!("says that it waits for {object}"), names_it).await;
    stage.harness.pool_is_gone("default").await;
    (stage, operator)
}

#[tokio::test]
async fn nodes_that_cannot_be_written_delay_a_deletion_for_a_limited_time() {
    let (stage, _operator) = ends("patch", "nodes", "stuck").await;
    assert!(has_taint(&stage.harness.node("stuck").await, OS_WINDOWS));
    let class = stage.harness.classes().get("windows-2022").await.unwrap();
    assert_eq!(class.labels().get(POOL), None, "it is released");
}

#[tokio::test]
async fn classes_that_cannot_be_deleted_delay_a_deletion_for_a_limited_time() {
    let (stage, _operator) = ends("delete", "runtimeclasses", "windows-2022").await;
    assert!(!has_taint(&stage.harness.node("stuck").await, OS_WINDOWS));
}

#[tokio::test]
async fn reimaged_nodes_are_cleaned_before_their_deleted_pool_is_removed() {
    let stage = Stage::new().await;
    let harness = &stage.harness;
    let mut kubelets = Vec::new();
    for number in 0..5 {
        let node = SimulatedNode::windows(WINDOWS_2022).name(&format!("win-{number}"));
        kubelets.push(harness.join_node(node).await);
    }
    let operator = stage.operator();
    harness.apply_until_ready(json!({})).await;
    operator.stop().await;
    for kubelet in &kubelets {
        kubelet.reimage(SimulatedNode::linux()).await.unwrap();
    }
    harness.delete_pool("default").await;

    stage.proxy.inject(hits("patch", "nodes", ALL, Fault::Delay(Duration::from_secs(1))));
    let _operator = patient(&stage);
    harness.pool_is_gone("default").await;
    let is_clean = |node: &Node| {
        let has_label = [POOL, BUILD].iter().any(|key| label(node, key).is_some());
        !has_label && !has_taint(node, OS_WINDOWS) && !node.annotations().contains_key(APPLIED)
    };
    let mut left = Vec::new();
    for kubelet in &kubelets {
        let node = harness.node(kubelet.name()).await;
        if !is_clean(&node) {
            left.push(node.name_any());
        }
    }
    assert_eq!(left, Vec::<String>::new(), "these keep what winpool added, and no pool is left to remove it");
}

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
