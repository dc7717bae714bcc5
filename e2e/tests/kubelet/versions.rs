//! Every version of every node, in the order of the writes.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use futures::TryStreamExt;
use kube::api::{WatchEvent, WatchParams};
use tokio::task::JoinHandle;
use winpool_e2e::prelude::*;

/// Records from its creation on.
pub struct Versions {
    seen: Arc<Mutex<Vec<(Instant, Node)>>>,
    nodes: Api<Node>,
    watch: JoinHandle<kube::Result<()>>,
}

impl Versions {
    pub async fn of(nodes: Api<Node>) -> Self {
        let version = nodes.list_metadata(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
        let parameters = WatchParams::default().timeout(280);
        let events = nodes.watch(&parameters, &version).await.unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&seen);
        let watch = tokio::spawn(async move {
            let record = events.try_for_each(|event| {
                if let WatchEvent::Added(node) | WatchEvent::Modified(node) = event {
                    recorded.lock().unwrap().push((Instant::now(), node));
                }
                std::future::ready(Ok(()))
            });
            record.await
        });
        Self { seen, nodes, watch }
    }

    /// All versions of this node until now.
    pub async fn until_now(&self, name: &str) -> Vec<Node> {
        self.timed_until_now(name).await.into_iter().map(|(_, node)| node).collect()
    }

    /// The same, each with the time at which it was seen.
    pub async fn timed_until_now(&self, name: &str) -> Vec<(Instant, Node)> {
        let now = self.nodes.get(name).await.unwrap().resource_version();
        wait_for(&format!("the watch has the newest version of node {name}"), LIMIT, async || {
            assert!(!self.watch.is_finished(), "the watch has ended");
            let seen = self.seen.lock().unwrap().clone();
            let of_node: Vec<_> = seen.into_iter().filter(|(_, node)| node.name_any() == name).collect();
            Ok(of_node.iter().any(|(_, node)| node.resource_version() == now).then_some(of_node))
        })
        .await
        .unwrap()
    }
}

impl Drop for Versions {
    fn drop(&mut self) {
        self.watch.abort();
    }
}
