//! The node and the pool controller: watch, call the plan, apply.

mod guarded;
pub mod node;
pub mod pool;
mod retry;

use std::sync::Arc;

use futures::{Stream, stream};
use k8s_openapi::api::{core::v1::Node, node::v1::RuntimeClass};
use kube::{
    Api,
    core::PartialObjectMeta,
    runtime::{reflector::Store, watcher},
};
use tokio::sync::watch;
use winpool_core::windows::KubernetesVersion;

pub use guarded::GuardedPool;

use crate::{apply::Applier, index::Index, metrics::Metrics, node::CachedNode, pod::ListedPod, policy::Publisher};

/// What both controllers share.
pub struct Context {
    /// Writes.
    pub applier: Applier,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// What the nodes add up to.
    pub index: Arc<Index>,
    /// What the nodes are judged by.
    pub policy: Publisher,
    /// The cached nodes.
    pub nodes: Store<CachedNode>,
    /// Nodes with all their metadata, to be read when somebody contests them.
    pub metadata: Api<PartialObjectMeta<Node>>,
    /// The cached pools.
    pub pools: Store<GuardedPool>,
    /// Pods, to be listed when it matters who uses what.
    pub pods: Api<ListedPod>,
    /// The cached RuntimeClasses, all of the cluster's.
    pub classes: Store<RuntimeClass>,
    /// The version of the cluster's Kubernetes; `None` when it could not be read.
    pub kubernetes: Option<KubernetesVersion>,
    /// Which caches are filled.
    pub synced: Synced,
    /// Tells the pool controller that something changed which pools are made from.
    pub changed: watch::Sender<()>,
}

/// Which caches have seen their first list whole. A cache's own `wait_until_ready` wakes one waiter only.
pub struct Synced {
    nodes: watch::Sender<bool>,
    pools: watch::Sender<bool>,
    classes: watch::Sender<bool>,
    all: watch::Sender<bool>,
}

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// Nodes.
    Nodes,
    /// WindowsPools.
    Pools,
    /// RuntimeClasses.
    Classes,
}

impl Synced {
    /// Nothing is filled yet.
    #[must_use]
    pub fn new() -> Self {
        let flag = || watch::Sender::new(false);
        Self { nodes: flag(), pools: flag(), classes: flag(), all: flag() }
    }

    /// A cache has its first list.
    pub fn filled(&self, cache: Cache) {
        let flag = match cache {
            Cache::Nodes => &self.nodes,
            Cache::Pools => &self.pools,
            Cache::Classes => &self.classes,
        };
        flag.send_replace(true);
        let all = [&self.nodes, &self.pools, &self.classes].iter().all(|flag| *flag.borrow());
        self.all.send_if_modified(|known| std::mem::replace(known, all) != all);
    }

    /// Whether all caches are filled.
    #[must_use]
    pub fn all(&self) -> bool {
        *self.all.borrow()
    }

    /// The same, to be waited for.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.all.subscribe()
    }
}

impl Default for Synced {
    fn default() -> Self {
        Self::new()
    }
}

/// Says once that a watch fails, and once that it works again.
fn outages<T>(kind: &'static str) -> impl FnMut(&watcher::Result<T>) + Send + 'static {
    let mut failing = false;
    move |event| match event {
        Ok(_) if std::mem::take(&mut failing) => tracing::info!(kind, "watch works again"),
        Ok(_) => {}
        Err(error) if std::mem::replace(&mut failing, true) => tracing::debug!(kind, %error, "watch still fails"),
        Err(error) => tracing::warn!(kind, %error, "watch fails; trying again, with growing pauses"),
    }
}

/// One item for each change; changes that come while nobody looks become one.
fn changes<T: Send + Sync + 'static>(receiver: watch::Receiver<T>) -> impl Stream<Item = ()> + Send + 'static {
    stream::unfold(receiver, |mut receiver| async move { receiver.changed().await.ok().map(|()| ((), receiver)) })
}
