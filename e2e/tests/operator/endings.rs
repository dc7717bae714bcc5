//! The deletion of a pool ends even if something blocks it.

use std::time::Duration;

use winpool_e2e::prelude::*;

/// The time that a deletion waits in these tests: long enough to read status meanwhile.
const PATIENCE: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_failed_handover_of_a_class_delays_a_deletion_for_a_limited_time() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let options = Options { leader_election: false, patience: PATIENCE, ..Options::default() };
    let _operator = Operator::start_with(harness.account.config.clone(), options);
    let declared = |handler: &str| json!([{"name": "mine", "version": "2022", "handler": handler}]);
    harness.apply_pool_named("a-older", json!({"runtimeClasses": declared("first")})).await;
    harness.ready("a-older").await;
    harness.run_pod("user", json!({"nodeName": "win", "runtimeClassName": "mine"})).await;
    let younger = json!({"nodeSelector": {"none": "such"}, "runtimeClasses": declared("second")});
    harness.apply_pool_named("b-younger", younger).await;
    harness.pool_until("b-younger", "is reported", |_| true).await;
    let class = harness.classes().get("mine").await.unwrap();

    harness.delete_pool("a-older").await;
    harness.waits_for("a-older", "mine").await;
    harness.pool_is_gone("a-older").await;
    let now = harness.classes().get("mine").await.unwrap();
    assert_eq!((now.uid(), now.handler), (class.uid(), "first".to_owned()), "a pod uses it");
}
