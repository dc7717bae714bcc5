//! One process of the operator: what its watches have shown, and what it remembers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use winpool_core::node::NodeObject;
use winpool_core::plan::nodes::{NodeEvent, NodeTable};
use winpool_core::plan::pools::pool::{GuardedPool, Policy};
use winpool_core::plan::reconcile::{Memory, Pauses};

/// A process, with its tables of nodes. It has no other caches.
#[derive(Clone, Debug)]
pub struct Operator {
    pub memory: Memory,
    /// The Windows nodes.
    pub windows: NodeTable,
    /// The nodes that came back with another system.
    pub reimaged: NodeTable,
    /// The policy by which it changes nodes.
    pub published: Option<Arc<Policy>>,
}

impl Operator {
    /// A process without memory. `patience` is the pause after a refusal, and the time that a deletion waits without progress.
    pub fn new(patience: Duration) -> Self {
        Self {
            memory: Memory::new(patience, Pauses::default()),
            windows: NodeTable::new(patience),
            reimaged: NodeTable::new(patience),
            published: None,
        }
    }

    /// Counts nodes by these pools from now on.
    pub fn count(&mut self, pools: &[Arc<GuardedPool>], now: Instant) {
        let policy = self.memory.policy(pools);
        self.windows.count_by(policy.clone(), now);
        self.reimaged.count_by(policy, now);
    }

    /// A list of all nodes. Returns the names of the nodes whose next step is due.
    pub fn list(&mut self, nodes: impl IntoIterator<Item = Arc<NodeObject>>, now: Instant) -> Vec<Arc<str>> {
        let (windows, others) = nodes.into_iter().partition(|object| object.node.is_windows());
        let mut due = self.windows.observe(NodeEvent::Listed(windows), now);
        due.extend(self.reimaged.observe(NodeEvent::Listed(others), now));
        due
    }

    /// The watch shows a node as it is now. Returns its name if its next step is due.
    pub fn see(&mut self, node: Arc<NodeObject>, now: Instant) -> Vec<Arc<str>> {
        let is_windows = node.node.is_windows();
        self.table(!is_windows).observe(NodeEvent::Deleted(Arc::clone(&node.name)), now);
        self.table(is_windows).observe(NodeEvent::Seen(node), now)
    }

    /// The node is gone.
    pub fn lose(&mut self, name: &str, now: Instant) {
        for table in [&mut self.windows, &mut self.reimaged] {
            table.observe(NodeEvent::Deleted(name.into()), now);
        }
    }

    /// The table of Windows nodes, or that of the others.
    pub fn table(&mut self, is_windows: bool) -> &mut NodeTable {
        if is_windows { &mut self.windows } else { &mut self.reimaged }
    }

    /// Changes nodes by this policy from now on. Returns the names of the nodes whose next step is due.
    pub fn publish(&mut self, policy: &Arc<Policy>, now: Instant) -> Vec<Arc<str>> {
        self.published = Some(Arc::clone(policy));
        let tables = [&mut self.windows, &mut self.reimaged].into_iter();
        tables.flat_map(|table| table.write_by(Some(Arc::clone(policy)), now)).collect()
    }
}
