//! Objects that others keep.

use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::json;
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{condition, problems};
use winpool_e2e::harness::{Harness, merge};

const KEEP: &str = "example.com/keep";

#[tokio::test]
async fn a_class_that_a_foreign_finalizer_keeps_is_deleted_once_and_named_until_it_is_gone() {
    let (harness, log) = Harness::audited().await;
    harness.join("win").await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({"runtimeClasses": [{"name": "mine", "version": "2022"}]})).await;
    merge(&harness.classes(), "mine", json!({"metadata": {"finalizers": [KEEP]}})).await;
    harness.apply_pool(json!({})).await;
    let is_going = |class: &RuntimeClass| class.metadata.deletion_timestamp.is_some();
    harness.class_until("mine", "is being deleted", is_going).await;
    let names_it = |pool: &WindowsPool| problems(pool).contains(KEEP) && condition(pool, "Ready") == Some("False");
    harness.pool_until("default", "names the finalizer", names_it).await;
    harness.node_events_are_seen().await;
    let about_it = || log.requests().into_iter().filter(|request| request.resource == "runtimeclasses");
    let sent: Vec<_> = about_it().filter(|r| r.name == "mine" && r.verb == "delete").map(|r| r.code).collect();
    assert_eq!(sent, [200]);
    assert!(about_it().count() < 10, "{:?}", about_it().map(|r| (r.verb, r.code)).collect::<Vec<_>>());

    merge(&harness.classes(), "mine", json!({"metadata": {"finalizers": null}})).await;
    harness.ready("default").await;
    assert!(harness.classes().get_opt("mine").await.unwrap().is_none());
    operator.stop().await;
}
