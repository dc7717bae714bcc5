//! The node and the pool controller: they watch, let the core decide, and write.

pub mod node;
pub mod pool;
mod queue;

use std::{convert::Infallible, sync::Arc, time::Duration};

use k8s_openapi::api::{core::v1::Node, node::v1::RuntimeClass};
use kube::{Api, Client, core::PartialObjectMeta, runtime::reflector::Store};
use tokio::sync::watch;
pub use winpool_core::plan::GuardedPool;
use winpool_core::plan::reconcile::Pauses;

use crate::{
    api_server::pods::ListedPod,
    cache::{index::Index, node::CachedNode},
    election::Leadership,
    metrics::Metrics,
    policy::Publisher,
    write::Applier,
};

/// The state that both controllers share.
pub struct Context {
    pub applier: Applier,
    /// A process that does not lead keeps its caches up to date and writes nothing.
    pub leadership: Leadership,
    pub metrics: Arc<Metrics>,
    pub index: Arc<Index>,
    /// The policy that nodes are assessed by.
    pub policy: Publisher,
    pub nodes: Store<CachedNode>,
    /// Nodes with all their metadata, read when another writer reverts winpool's changes.
    pub metadata: Api<PartialObjectMeta<Node>>,
    pub pools: Store<GuardedPool>,
    /// Pods, listed when it matters who uses a RuntimeClass.
    pub pods: Api<ListedPod>,
    /// The cached RuntimeClasses: all in the cluster.
    pub classes: Store<RuntimeClass>,
    pub control_plane: pool::ControlPlane,
    /// Shows which caches are filled.
    pub synced: Synced,
    /// Notifies the pool controller that something changed that pools are made from.
    pub changed: watch::Sender<()>,
    /// Lists objects that are not cached.
    pub client: Client,
    /// The pause after a write that was refused.
    pub(crate) patience: Duration,
    pub(crate) pauses: Pauses,
}

impl Context {
    /// Follows the terms of leadership, for ever. Each term starts afresh, because another process may have led in
    /// between.
    pub async fn follow_leadership(&self) -> Infallible {
        loop {
            let term = self.leadership.begun().await;
            tracing::info!("this process leads and writes to the cluster");
            self.metrics.leads(true);
            self.index.begin_anew(|| self.nodes.state());
            self.policy.open(term);
            self.changed.send_replace(());

            self.leadership.ended(term).await;
            self.policy.withdraw();
            self.metrics.leads(false);
            self.metrics.gauges.keep_pools(|_| false);
            tracing::warn!("this process no longer leads: another process has the Lease, or it could not be renewed");
        }
    }

    /// The current term, once both the index and the policy belong to it.
    pub fn term(&self) -> Option<u64> {
        self.leadership.term().filter(|term| self.policy.term() == Some(*term))
    }
}

/// Shows which caches have received their first list. A cache's own `wait_until_ready` wakes only one waiter.
#[derive(Default)]
pub struct Synced {
    nodes: watch::Sender<bool>,
    pools: watch::Sender<bool>,
    classes: watch::Sender<bool>,
    all: watch::Sender<bool>,
}

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    Nodes,
    Pools,
    Classes,
}

impl Synced {
    /// Records that a cache has received its first list.
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

    /// Returns true if all caches are filled.
    pub fn all(&self) -> bool {
        *self.all.borrow()
    }

    /// Becomes true when all caches are filled.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.all.subscribe()
    }
}
