//! Objects that others keep or write, and the metrics of pools that are gone.

use std::net::{Ipv4Addr, SocketAddr};

use winpool_e2e::{
    free_port,
    harness::schema::{self, with_schema},
    prelude::*,
    scrape,
};

use crate::held_taints::is_seen;

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

#[tokio::test]
async fn the_last_pool_leaves_no_series_when_it_is_deleted() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
    let operator = harness.operator_at(address);
    harness.apply_until_ready(json!({"mode": "DryRun"})).await;
    let series = async |pool: &str| {
        let (text, of_pool) = (scrape(address).await.unwrap(), format!("pool=\"{pool}\""));
        text.lines().filter(|line| line.contains(&of_pool)).map(str::to_owned).collect::<Vec<_>>()
    };
    let counted = async || Ok(series("default").await.iter().any(|line| line.contains("winpool_nodes{")).then_some(()));
    wait_for("the pool has series", LIMIT, counted).await.unwrap();
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    let mut left = Vec::new();
    let gone = wait_for("the deleted pool has no series", LIMIT, async || {
        left = series("default").await;
        Ok(left.is_empty().then_some(()))
    });
    gone.await.unwrap_or_else(|error| panic!("{error}: {left:#?}"));
    operator.stop().await;
}

#[tokio::test]
async fn a_status_with_values_of_another_release_keeps_the_record_of_taints() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let operator = harness.operator().await;
    let wants = |key: &str| json!({"taints": [{"key": format!("{key}/os"), "value": "win", "effect": "NoSchedule"}]});
    harness.apply_until_ready(wants("first")).await;
    // The node keeps the first taint until it may get the second one.
    harness.run_web("win").await;
    is_seen(&harness).await;
    harness.apply_pool(wants("second")).await;
    harness.nodes_until("default", "holds the second taint", |nodes| nodes.held == 1).await;
    operator.stop().await;

    let newer = json!({"nodeSelector": {"a": "b"}});
    with_schema(&harness.client, &newer, true, |schema| {
        schema["properties"]["status"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    })
    .await;
    let class = json!({"name": "c", "build": "Any", "handler": "h", "state": "Renewed", "nodes": 1});
    let status = Patch::Merge(json!({"status": {"runtimeClasses": [class]}}));
    let newer_status = async || {
        let pools = schema::untyped(&harness.client);
        // The API server may still validate by the schema before.
        let Ok(patched) = pools.patch_status("default", &PatchParams::default(), &status).await else {
            return Ok(None);
        };
        Ok((patched.data["status"]["runtimeClasses"][0]["state"] == "Renewed").then_some(()))
    };
    wait_for("the newer status is accepted", LIMIT, newer_status).await.unwrap();

    let operator = harness.operator().await;
    let is_readable = async || Ok(harness.pools().get("default").await.ok().map(|_| ()));
    wait_for("winpool replaces what it cannot read", LIMIT, is_readable).await.unwrap();
    let holds = |pool: &WindowsPool| condition_text(pool, "TaintsApplied").is_some_and(|(_, _, m)| m.contains("web"));
    let pool = harness.pool_until("default", "holds its second taint", holds).await;
    assert_eq!(recorded_in(&pool.status.unwrap()), ["first/os=win:NoSchedule", "second/os=win:NoSchedule"]);
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    assert!(lasting_taints(&harness.node("win").await).is_empty(), "the first taint is removed");
    operator.stop().await;
}
