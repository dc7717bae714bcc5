//! Pools that are deleted while winpool writes their nodes.

use futures::{TryStreamExt, pin_mut};
use kube::api::{WatchEvent, WatchParams};
use winpool_e2e::prelude::*;

const ROUNDS: usize = 20;

/// Returns when the operator has recorded the taints of the pool: the next that it does is to write the nodes.
async fn recorded(harness: &Harness, version: &str) {
    let named = WatchParams::default().fields("metadata.name=default");
    let pools = harness.pools();
    let events = pools.watch(&named, version).await.unwrap();
    pin_mut!(events);
    let recorded = async {
        while let Some(event) = events.try_next().await.unwrap() {
            if let WatchEvent::Added(pool) | WatchEvent::Modified(pool) = event
                && pool.status.is_some_and(|status| !status.managed_taints.is_empty())
            {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, recorded).await.unwrap();
}

#[tokio::test]
async fn a_pool_that_is_deleted_while_its_nodes_are_written_leaves_no_mark() {
    let harness = Harness::new().await;
    for number in 0..3 {
        harness.join(&format!("win-{number}")).await;
    }
    let faces = async || -> Vec<Value> {
        let nodes = harness.nodes().list(&ListParams::default()).await.unwrap();
        nodes.items.iter().map(face).collect()
    };
    let before = faces().await;
    let pools = harness.pools();
    for round in 0..ROUNDS {
        let operator = harness.operator().await;
        let version = pools.list_metadata(&ListParams::default()).await.unwrap();
        let version = version.metadata.resource_version.unwrap();
        harness.apply_pool(json!({"taintPolicy": "Always", "runtimeClassDiscovery": "Disabled"})).await;
        recorded(&harness, &version).await;
        harness.delete_pool("default").await;
        harness.pool_is_gone("default").await;
        // Pending writes end with it.
        operator.stop().await;
        assert_eq!(faces().await, before, "after round {round}");
    }
}
