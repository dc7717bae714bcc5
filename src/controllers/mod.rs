//! The node and the pool controller: watch, call the plan, apply.

pub mod node;
pub mod pool;
mod queue;

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Node, node::v1::RuntimeClass};
use kube::{Api, Client, core::PartialObjectMeta, runtime::reflector::Store};
use tokio::sync::watch;
pub use winpool_core::plan::GuardedPool;

use crate::{
    api_server::pods::ListedPod,
    cache::{index::Index, node::CachedNode},
    election::Leadership,
    metrics::Metrics,
    policy::Publisher,
    write::Applier,
};

/// What both controllers share.
pub struct Context {
    /// Writes.
    pub applier: Applier,
    /// Whether this process leads. Without that it keeps its caches and does nothing.
    pub leadership: Leadership,
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
    /// What the cluster's control plane tells of itself.
    pub control_plane: pool::ControlPlane,
    /// Which caches are filled.
    pub synced: Synced,
    /// Tells the pool controller that something changed which pools are made from.
    pub changed: watch::Sender<()>,
    /// Lists what is not cached.
    pub client: Client,
    /// How long a write that was refused is not sent again.
    pub(crate) patience: Duration,
}

impl Context {
    /// Begins and ends the terms of leadership, for ever. Each starts all over: another process may have led in between.
    pub async fn follow_leadership(&self) -> Infallible {
        loop {
            let term = self.leadership.begun().await;
            tracing::info!("leads: this process writes to the cluster");
            self.metrics.leads(true);
            self.index.begin_anew(|| self.nodes.state());
            self.policy.open(term);
            self.changed.send_replace(());

            self.leadership.ended(term).await;
            self.policy.withdraw();
            self.metrics.leads(false);
            self.metrics.keep_pools(|_| false);
            tracing::warn!("leads no more: another process has the Lease, or it could not be renewed");
        }
    }

    /// The term of leadership, once all is ready for it.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.leadership.term().filter(|term| self.policy.term() == Some(*term))
    }
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
