//! The table of nodes, shared between the tasks of this process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use winpool_core::plan::nodes::{NodeEvent, NodeTable};
use winpool_core::plan::pools::pool::Policy;

/// The table of nodes that one watch shows. The lock is never held across an await.
#[derive(Debug, Default)]
pub struct SharedNodes {
    table: Mutex<NodeTable>,
    /// Nodes whose next step is due although they have not changed.
    due: Mutex<Vec<Arc<str>>>,
    is_due: Notify,
}

impl SharedNodes {
    /// `patience` is the pause after a refusal.
    pub fn new(patience: Duration) -> Self {
        Self { table: Mutex::new(NodeTable::new(patience)), ..Self::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, NodeTable> {
        self.table.lock()
    }

    /// Lets nodes be written by this policy; `None` if this process does not lead.
    pub fn write_by(&self, policy: Option<Arc<Policy>>) {
        let names = self.lock().write_by(policy, Instant::now());
        self.due.lock().extend(names);
        self.is_due.notify_one();
    }

    /// Lets these nodes, and no others, wait for taints until their pods have tolerations.
    pub fn await_pods(&self, nodes: BTreeSet<Arc<str>>) {
        let names = self.lock().observe(NodeEvent::PodsAwaited(nodes), Instant::now());
        self.due.lock().extend(names);
        self.is_due.notify_one();
    }

    /// Waits for nodes that are due although they have not changed, and returns their names.
    pub async fn due(&self) -> Vec<Arc<str>> {
        self.is_due.notified().await;
        std::mem::take(&mut self.due.lock())
    }
}
