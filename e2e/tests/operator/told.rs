//! Events tell what happened to the taints of a pool.

use k8s_openapi::api::events::v1::Event;
use serde_json::json;
use winpool_e2e::harness::{Harness, OS_WINDOWS};

use super::held_taints::WEB;

/// Waits for an Event of this reason and type about this object, and returns its note.
async fn told(harness: &Harness, (kind, name): (&str, &str), (type_, reason): (&str, &str)) -> String {
    let is_about = |event: &Event| {
        let regarding = event.regarding.clone().unwrap_or_default();
        (regarding.kind.as_deref(), regarding.name.as_deref()) == (Some(kind), Some(name))
            && (event.type_.as_deref(), event.reason.as_deref()) == (Some(type_), Some(reason))
    };
    harness.event_until(&format!("{reason} about {kind} {name}"), is_about).await.note.unwrap_or_default()
}

#[tokio::test]
async fn events_tell_when_a_taint_is_held_and_added() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let _operator = harness.operator().await;
    harness.run_web("win").await;
    harness.apply_pool(json!({})).await;
    let pool = ("WindowsPool", "default");
    let held = told(&harness, pool, ("Warning", "DaemonSetsNotTolerating")).await;
    assert!(held.contains(OS_WINDOWS) && held.contains(WEB), "{held}");

    harness.apply_pool(json!({"taintPolicy": "TaintOnly"})).await;
    assert_eq!(told(&harness, pool, ("Normal", "TaintsAdded")).await, "every node is tainted");
    let without_pods = told(&harness, ("DaemonSet", "web"), ("Warning", "DaemonSetWithoutPods")).await;
    assert!(without_pods.contains("1 node ") && without_pods.contains("key: os"), "{without_pods}");
}
