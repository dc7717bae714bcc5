//! Checks that a cluster is as planned, and that the writes have stopped.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use winpool::read::forecast::snapshot;
use winpool::read::view;
use winpool_analysis::explain::forecast::{Snapshot, forecast};
use winpool_core::api::WindowsPoolStatus;
use winpool_core::plan::pools::pool::GuardedPool;
use winpool_e2e::servers::requests::Requests;

/// The cluster as decisions see it.
pub async fn look(client: &Client) -> Snapshot {
    snapshot(view::decisions(client).await.unwrap().view)
}

/// The pending changes of the operator. Empty if every node and every class is as planned.
pub async fn drift(client: &Client) -> Vec<String> {
    let forecast = forecast(&look(client).await).unwrap().forecast;
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

/// The requests until a moment, and the statuses of the pools at that moment.
struct Moment {
    requests: Requests,
    /// `status.lastSeen` of each pool, and the rest of its status.
    statuses: BTreeMap<String, (Option<Time>, WindowsPoolStatus)>,
}

impl Moment {
    async fn now(client: &Client) -> Self {
        let pools: Api<GuardedPool> = Api::all(client.clone());
        let status = |pool: GuardedPool| {
            let mut status = pool.status.clone().unwrap_or_default();
            (pool.name_any(), (status.last_seen.take(), status))
        };
        let statuses = pools.list(&ListParams::default()).await.unwrap().into_iter().map(status).collect();
        Self { requests: Requests::until_now(client).await.unwrap(), statuses }
    }

    /// The writes since then, but for those that only renewed `status.lastSeen`; empty if there were no others.
    fn writes_since(&self, before: &Self) -> String {
        let is_renewed = |name: &str, (seen, rest): &(Option<Time>, WindowsPoolStatus)| {
            before.statuses.get(name).is_some_and(|(before, same)| seen != before && rest == same)
        };
        let renewed = self.statuses.iter().filter(|(name, status)| is_renewed(name, status)).count();
        let new = self.requests.since(&before.requests);
        if writes(&new) <= u64::try_from(renewed).unwrap() { String::new() } else { new.text() }
    }
}

/// Waits until nothing was written for this time.
pub async fn writes_stop(client: &Client, quiet: Duration, limit: Duration, when: &str) {
    let deadline = Instant::now() + limit;
    let mut before = Moment::now(client).await;
    let mut since = Instant::now();
    while since.elapsed() < quiet {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = Moment::now(client).await;
        let new = now.writes_since(&before);
        if !new.is_empty() {
            assert!(Instant::now() < deadline, "{when}: writes do not stop within {limit:?}: {new}");
            (before, since) = (now, Instant::now());
        }
    }
}

/// Counts the writes within this time.
pub async fn writes_within(client: &Client, time: Duration) -> String {
    let before = Moment::now(client).await;
    tokio::time::sleep(time).await;
    Moment::now(client).await.writes_since(&before)
}
