//! Pools that change continuously.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use winpool_e2e::harness::Harness;

use super::ledger::GROUP;

/// The pause between two changes: shorter than the nodes need for one.
const PACE: Duration = Duration::from_millis(700);

/// A change of a pool.
enum Step {
    Apply(&'static str, Value),
    Delete(&'static str),
}

/// Taints are added, changed and retired, a pool is deleted and recreated, another one takes nodes over.
fn steps() -> Vec<Step> {
    let taint = |key: &str, value: &str| json!({"key": key, "value": value, "effect": "NoSchedule"});
    let soft = json!({"key": "dedicated/os", "value": "windows", "effect": "PreferNoSchedule"});
    let (windows, capital, old) = (taint("os", "windows"), taint("os", "Windows"), taint("os", "Win1809"));
    let dedicated = taint("dedicated/os", "windows");
    // Without classes there is no wait for the API server to see their tolerations.
    let bare = |mut spec: Value| {
        spec["runtimeClassDiscovery"] = json!("Disabled");
        spec
    };
    vec![
        Step::Apply("default", bare(json!({}))),
        Step::Apply("default", bare(json!({"taints": [windows, dedicated]}))),
        Step::Apply("default", bare(json!({"taints": [capital], "retiredTaints": [windows, old]}))),
        Step::Apply("default", bare(json!({"taints": [windows, soft], "retiredTaints": [capital]}))),
        Step::Delete("default"),
        Step::Apply("default", bare(json!({"taints": [dedicated]}))),
        Step::Apply("default", bare(json!({"taints": [dedicated], "nodeSelector": {GROUP: "a"}}))),
        Step::Apply("second", bare(json!({"nodeSelector": {GROUP: "b"}}))),
        Step::Apply("second", bare(json!({"taints": [windows, dedicated]}))),
        Step::Delete("default"),
        Step::Apply("default", json!({"nodeSelector": {GROUP: "a"}})),
        Step::Delete("second"),
        Step::Apply("default", bare(json!({"taintPolicy": "Never"}))),
    ]
}

/// Deletes it and waits until it is gone. Then its nodes are clean.
pub async fn delete(harness: &Harness, name: &str) {
    if harness.pools().get_opt(name).await.unwrap().is_some() {
        harness.delete_pool(name).await;
        harness.pool_is_gone(name).await;
    }
}

/// Repeats the steps until it is stopped. Returns their number.
pub async fn change(harness: &Harness, stop: &CancellationToken) -> usize {
    let mut made = 0;
    for step in steps().iter().cycle() {
        if stop.is_cancelled() {
            break;
        }
        match step {
            Step::Apply(name, spec) => harness.apply_pool_named(name, spec.clone()).await,
            Step::Delete(name) => delete(harness, name).await,
        }
        made += 1;
        tokio::time::sleep(PACE).await;
    }
    made
}
