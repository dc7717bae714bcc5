//! The watch of pods fails, has gaps, or is not served. No class that a pod uses is deleted.

use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::POOL;
use winpool_e2e::harness::objects::{condition, problems};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::workloads::pod_of;
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::servers::faults::schedule::{Fault, InjectedError};
use winpool_e2e::servers::faults::traffic::Passing;

use crate::stage::{ALL, Stage, WINDOWS_2022, hits};

/// The time within which a watch that failed works again.
const AGAIN: Duration = Duration::from_mins(2);

fn declaring(class: Option<&str>) -> Value {
    let classes: Vec<Value> = class.map(|name| json!({"name": name, "version": "2022"})).into_iter().collect();
    json!({"taintPolicy": "TaintOnly", "runtimeClassDiscovery": "Disabled", "runtimeClasses": classes})
}

/// A cluster whose pool has a class of its own, and an operator.
async fn stage_with_class() -> (Stage, Operator) {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    let operator = stage.operator();
    stage.harness.apply_until_ready(declaring(Some("own"))).await;
    (stage, operator)
}

async fn create_user(stage: &Stage, pod: &str) {
    stage
        .harness
        .create_pod(pod_of("Deployment", "web", pod, json!({"runtimeClassName": "own", "nodeName": "win"})))
        .await;
}

async fn class_is_gone(stage: &Stage) {
    let classes = stage.harness.classes();
    let is_gone = async || Ok(classes.get_opt("own").await?.is_none().then_some(()));
    wait_for("the class is gone", AGAIN, is_gone).await.unwrap();
}

#[tokio::test]
async fn a_class_whose_user_came_in_a_gap_of_the_watch_is_released_and_not_deleted() {
    let (stage, _operator) = stage_with_class().await;
    // The watch expires, and the API server does not yet answer the request for the new list.
    let gap = |passing: &Passing| {
        hits("watch", "pods", 0..1, Fault::Expire)(passing).or(hits("watch", "pods", 1..2, Fault::Swallow)(passing))
    };
    stage.interrupt(create_user(&stage, "late"), gap).await;
    stage.proxy.faulted(2, AGAIN).await.unwrap();
    stage.harness.apply_pool(declaring(Some("other"))).await;
    stage.harness.class_until("other", "is made", |_| true).await;
    stage.proxy.calm();
    let released = |class: &RuntimeClass| !class.labels().contains_key(POOL);
    stage.harness.class_until("own", "is released", released).await;
}

#[tokio::test]
async fn an_api_server_without_streaming_lists_is_asked_for_pages() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    stage.proxy.inject(hits("watch", "pods", 0..1, Fault::Refuse(InjectedError::Invalid)));
    let _operator = stage.operator();
    stage.harness.apply_until_ready(declaring(Some("own"))).await;
    stage.harness.apply_pool(declaring(None)).await;
    class_is_gone(&stage).await;
    let asked: Vec<_> =
        stage.proxy.passed().iter().map(winpool_e2e::servers::faults::traffic::Passed::summary).collect();
    assert!(asked.iter().any(|summary| summary == "list pods 200"), "{asked:?}");
}

#[tokio::test]
async fn while_the_watch_of_pods_fails_no_class_is_deleted_and_the_pool_says_so() {
    let (stage, _operator) = stage_with_class().await;
    let unavailable = || Fault::Refuse(InjectedError::Unavailable);
    stage.interrupt(async {}, move |passing| hits("watch", "pods", ALL, unavailable())(passing)).await;
    let is_unknown = |pool: &WindowsPool| condition(pool, "WorkloadsHealthy") == Some("Unknown");
    stage.harness.pool_until("default", "does not know its pods", is_unknown).await;
    stage.harness.apply_pool(declaring(None)).await;
    let is_named = |pool: &WindowsPool| problems(pool).contains("stays until winpool sees the pods again");
    stage.harness.pool_until("default", "says why the class stays", is_named).await;
    assert!(stage.harness.classes().get_opt("own").await.unwrap().is_some());
    stage.proxy.calm();
    class_is_gone(&stage).await;
}

#[tokio::test]
async fn a_process_that_is_killed_after_it_helped_a_pod_names_its_workload_when_it_starts_again() {
    let stage = Stage::new().await;
    stage.join("win", WINDOWS_2022).await;
    let operator = stage.process().await;
    stage.harness.apply_until_ready(json!({})).await;
    stage.proxy.inject(hits("patch", "windowspools/status", ALL, Fault::Swallow));
    stage.harness.run_pod("web", json!({"nodeSelector": {"kubernetes.io/os": "windows"}})).await;
    assert_eq!(stage.until_about("pods", 1).await, ["patch pods 200"]);
    operator.kill();
    stage.proxy.calm();
    let helped = |pool: &WindowsPool| {
        let helped = pool.status.iter().flat_map(|status| &status.helped_workloads);
        helped.map(|workload| workload.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(helped(&stage.harness.pools().get("default").await.unwrap()), [""; 0], "no status was written");
    operator.start_again().unwrap();
    stage.harness.pool_until("default", "names the workload", |pool| helped(pool) == ["Pod default/web"]).await;
    operator.kill();
}
