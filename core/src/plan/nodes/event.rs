//! The events that the table takes in, and the notes that it returns.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::plan::node::NodePlan;

use super::object::NodeObject;

/// News about nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// A list of all nodes. Earlier changes are unknown.
    Listed(Vec<Arc<NodeObject>>),
    /// A watch event that shows a node.
    Seen(Arc<NodeObject>),
    /// The node with this name was deleted.
    Deleted(Arc<str>),
    /// On these nodes, and on no others, pods run that are to get tolerations before the nodes get taints.
    PodsAwaited(BTreeSet<Arc<str>>),
    /// A term of leadership began. Another process may have led since.
    TermBegan,
}

/// A note for logs, Events and metrics.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeNote {
    /// A patch was accepted.
    Written {
        pool: Option<String>,
        plan: Box<NodePlan>,
        /// The time since the node first needed its plan, if it has the whole of it now.
        waited: Option<Duration>,
    },
    /// The API server refuses to change the node.
    Refused { message: String, pause: Duration },
    /// Another writer, described here, keeps reverting changes to the node.
    Contested { writer: String, pause: Duration },
    /// An attempt failed for this reason, in one word.
    Failed { reason: &'static str, pause: Duration },
}
