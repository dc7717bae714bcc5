//! Pools that change continuously.

use std::time::Duration;

use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use winpool_core::api::WindowsPool;

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
    let soft = json!({"key": "dedicated", "value": "windows", "effect": "PreferNoSchedule"});
    let (windows, capital, old) = (taint("os", "windows"), taint("os", "Windows"), taint("os", "Win1809"));
    let dedicated = taint("dedicated", "windows");
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

fn pools(client: &Client) -> Api<WindowsPool> {
    Api::all(client.clone())
}

pub async fn apply(client: &Client, name: &str, spec: &Value) {
    let pool =
        json!({"apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": name}, "spec": spec});
    pools(client).patch(name, &PatchParams::apply("test").force(), &Patch::Apply(pool)).await.unwrap();
}

/// Deletes it and waits until it is gone. Then its nodes are clean.
pub async fn delete(client: &Client, name: &str) {
    let api = pools(client);
    let Some(pool) = api.get_opt(name).await.unwrap() else { return };
    api.delete(name, &DeleteParams::default()).await.unwrap();
    let gone = async || Ok(api.get_opt(name).await?.is_none_or(|now| now.uid() != pool.uid()).then_some(()));
    winpool_e2e::wait_for(&format!("pool {name} is gone"), winpool_e2e::LIMIT, gone).await.unwrap();
}

/// Repeats the steps until it is stopped. Returns their number.
pub async fn change(client: &Client, stop: &CancellationToken) -> usize {
    let mut made = 0;
    for step in steps().iter().cycle() {
        if stop.is_cancelled() {
            break;
        }
        match step {
            Step::Apply(name, spec) => apply(client, name, spec).await,
            Step::Delete(name) => delete(client, name).await,
        }
        made += 1;
        tokio::time::sleep(PACE).await;
    }
    made
}
