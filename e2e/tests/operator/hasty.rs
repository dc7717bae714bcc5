//! Pools that are deleted while winpool writes their nodes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::face;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::audit::USER;
use winpool_e2e::servers::webhook::HoldingWebhook;

/// The API server ends a request whose client has left, so a write that winpool gave up marks no node later.
#[tokio::test]
async fn a_write_that_a_slow_webhook_holds_up_marks_no_node_after_the_end_of_its_pool() {
    let (harness, log) = Harness::audited().await;
    harness.join("win").await;
    let before = face(&harness.node("win").await);
    let webhook = HoldingWebhook::register(&harness.server, "slow.example.com", USER).await.unwrap();
    let nodes = Api::<Node>::all(Client::try_from(harness.account.config.clone()).unwrap());
    let (dry_run, nothing) = (PatchParams { dry_run: true, ..PatchParams::default() }, Patch::Merge(json!({})));
    let is_called = async || {
        let _ = tokio::time::timeout(Duration::from_millis(200), nodes.patch("win", &dry_run, &nothing)).await;
        Ok((webhook.held() > 0).then_some(()))
    };
    wait_for("the API server calls the webhook", LIMIT, is_called).await.unwrap();
    let probes = webhook.held();
    let operator = harness.operator().await;
    harness.apply_pool(json!({"taintPolicy": "TaintOnly", "runtimeClassDiscovery": "Disabled"})).await;
    let writes = async || Ok((webhook.held() > probes).then_some(()));
    wait_for("a write of the operator is held up", LIMIT, writes).await.unwrap();
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    webhook.release();
    // They are answered, or ended by the API server.
    let held = webhook.held();
    let ended = async || Ok((log.patches("win").len() >= held).then_some(()));
    wait_for("all writes have ended", 2 * LIMIT, ended).await.unwrap();
    operator.stop().await;
    let codes: Vec<_> = log.patches("win").iter().map(|patch| patch.code).collect();
    assert_eq!(face(&harness.node("win").await), before, "{codes:?}");
}
