//! Checks that a cluster is as planned, and that the writes have stopped.

use std::time::{Duration, Instant};

use kube::Client;
use winpool::read::forecast::snapshot;
use winpool::read::view;
use winpool_analysis::explain::forecast::{Snapshot, forecast};
use winpool_e2e::servers::requests::Requests;

/// The cluster as decisions see it.
pub async fn look(client: &Client) -> Snapshot {
    snapshot(view::decisions(client).await.unwrap().view)
}

/// The pending changes of the operator. Empty if every node and every class is as planned.
pub async fn drift(client: &Client) -> Vec<String> {
    let forecast = forecast(look(client).await).forecast;
    let nodes = forecast.nodes.into_iter().flat_map(|node| {
        let name = node.name;
        node.changes
            .into_iter()
            .map(move |c| format!("Node/{name}: {} from {} to {}: {}", c.field, c.from, c.to, c.reason))
    });
    let classes = forecast.runtime_classes.into_iter().flat_map(|class| {
        let what = format!("RuntimeClass/{}, {}", class.name, class.action);
        class.changes.into_iter().map(move |c| format!("{what}: {} from {} to {}: {}", c.field, c.from, c.to, c.reason))
    });
    nodes.chain(classes).collect()
}

/// Waits until every node and every class is as planned.
pub async fn no_drift(client: &Client, limit: Duration, when: &str) {
    let deadline = Instant::now() + limit;
    loop {
        let left = drift(client).await;
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{when}: not as planned after {limit:?}:\n{}", left.join("\n"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Counts all writes except Leases and `nodes/status`, which kubelets write.
fn writes(requests: &Requests) -> u64 {
    let resources = ["nodes", "runtimeclasses", "windowspools", "windowspools/status", "events"];
    resources.into_iter().map(|resource| requests.writes(resource)).sum()
}

/// Waits until nothing was written for this time.
pub async fn writes_stop(client: &Client, quiet: Duration, limit: Duration, when: &str) {
    let deadline = Instant::now() + limit;
    let mut before = Requests::until_now(client).await.unwrap();
    let mut since = Instant::now();
    while since.elapsed() < quiet {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = Requests::until_now(client).await.unwrap();
        let new = now.since(&before);
        if writes(&new) > 0 {
            assert!(Instant::now() < deadline, "{when}: writes do not stop within {limit:?}: {}", new.text());
            (before, since) = (now, Instant::now());
        }
    }
}

/// Counts the writes within this time.
pub async fn writes_within(client: &Client, time: Duration) -> String {
    let before = Requests::until_now(client).await.unwrap();
    tokio::time::sleep(time).await;
    let new = Requests::until_now(client).await.unwrap().since(&before);
    if writes(&new) == 0 { String::new() } else { new.text() }
}
