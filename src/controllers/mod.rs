//! The controllers of nodes, pools and tolerations: they watch, let the core decide, and write.

pub mod node;
pub mod pods;
pub mod pool;
mod queue;
pub mod tolerations;
mod watch_health;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::reflector::Store;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winpool_core::plan::Now;
use winpool_core::plan::nodes::{NodeEvent, OtherNodes};
use winpool_core::plan::pools::pool::Policy;
use winpool_core::plan::reconcile::Pauses;

use crate::leadership::Leadership;
use crate::metrics::Metrics;
use crate::nodes::SharedNodes;
use crate::write::Applier;

pub use pods::SharedPods;
pub use watch_health::WatchHealth;
pub use winpool_core::plan::pools::pool::GuardedPool;

/// The state that both controllers share.
pub struct Context {
    pub applier: Applier,
    /// A process that does not lead keeps its caches up to date and writes nothing.
    pub leadership: Leadership,
    pub metrics: Arc<Metrics>,
    /// The Windows nodes.
    pub nodes: Arc<SharedNodes>,
    /// Nodes that came back with another operating system. They count for no pool.
    pub reimaged: SharedNodes,
    /// All nodes without the label of Windows nodes.
    pub others: Mutex<OtherNodes>,
    /// The term of leadership in which nodes may be written.
    pub open_term: Mutex<Option<u64>>,
    pub pools: Store<GuardedPool>,
    /// The cached RuntimeClasses: all in the cluster.
    pub classes: Store<RuntimeClass>,
    /// The name of the pod of this process, if it runs in the cluster.
    pub own_pod: Option<String>,
    /// The kinds whose caches have not received their first list. A cache's own `wait_until_ready` wakes only one waiter.
    pub unlisted: watch::Sender<Vec<&'static str>>,
    /// Cancelled once winpool is being uninstalled. From then on all pools are treated as deleted.
    pub uninstalled: CancellationToken,
    /// The names of pools that do not exist, and whose nodes and classes are cleaned up too.
    pub missing: BTreeSet<String>,
    /// Cancelled once nothing is left to do for them.
    pub clean: CancellationToken,
    /// Shows which kinds cannot be read.
    pub watch_health: Arc<WatchHealth>,
    pub pods: SharedPods,
    /// Notifies the pool controller that something changed that pools are made from.
    pub changed: watch::Sender<()>,
    /// Lists objects that are not cached.
    pub client: Client,
    /// The pause after a write that was refused.
    pub(crate) patience: Duration,
    pub(crate) pauses: Pauses,
}

impl Context {
    /// Follows the terms of leadership, and never ends. Each term begins without the state of the last one, because
    /// another process may have led since.
    pub async fn follow_leadership(&self) -> Infallible {
        loop {
            let term = self.leadership.begun().await;
            tracing::info!("this process leads and writes to the cluster");
            self.metrics.leader.set(1);
            for nodes in [&*self.nodes, &self.reimaged] {
                nodes.lock().observe(NodeEvent::TermBegan, Instant::now());
            }
            self.pods.lock().help.begin_term();
            *self.open_term.lock() = Some(term);
            self.changed.send_replace(());

            self.leadership.ended(term).await;
            *self.open_term.lock() = None;
            self.nodes.write_by(None);
            self.reimaged.write_by(None);
            self.metrics.leader.set(0);
            self.metrics.gauges.keep_pools(|_| false);
            tracing::warn!("this process no longer leads: another process has the Lease, or it could not be renewed");
        }
    }

    /// Records that a cache has received its first list.
    pub fn listed(&self, kind: &'static str) {
        let place = |kinds: &Vec<_>| kinds.iter().position(|other| *other == kind);
        self.unlisted.send_if_modified(|kinds| place(kinds).map(|place| kinds.remove(place)).is_some());
    }

    /// The pools as the cache shows them; all of them as deleted while winpool is being uninstalled.
    pub fn pools(&self) -> Vec<Arc<GuardedPool>> {
        let pools = self.pools.state();
        if !self.uninstalled.is_cancelled() {
            return pools;
        }
        let missing = self.missing.iter().map(|name| GuardedPool::missing(name).deleted());
        pools.iter().map(|pool| pool.deleted()).chain(missing).map(Arc::new).collect()
    }

    /// The current term, once the nodes belong to it.
    pub fn term(&self) -> Option<u64> {
        self.leadership.term().filter(|term| *self.open_term.lock() == Some(*term))
    }

    /// Lets nodes be written by this policy.
    pub fn publish(&self, policy: &Arc<Policy>) {
        self.reimaged.lock().count_by(Policy::clone(policy), Instant::now());
        for nodes in [&*self.nodes, &self.reimaged] {
            nodes.write_by(Some(Arc::clone(policy)));
        }
    }
}

/// The present moment.
pub(crate) fn now() -> Now {
    Now { instant: Instant::now(), time: Timestamp::now() }
}

/// The watched kinds.
pub const NODES: &str = "Nodes";
pub const OTHERS: &str = "other Nodes";
pub const POOLS: &str = "WindowsPools";
pub const CLASSES: &str = "RuntimeClasses";
