//! The table of nodes: what this process knows about them, the sums over the nodes of each pool, and the next request
//! for each node.
//!
//! An interpreter shows the table what the watch shows, asks for the next step of a node, executes it, and passes on
//! the answer. The operator, `winpool plan` and the model in the tests are such interpreters, and decide nothing. The
//! table has no clock and no lock.

pub mod assessment;
pub mod capability_labels;
pub mod numbers;
pub(crate) mod others;
pub(crate) mod table;

pub use self::numbers::NodeCount;
pub use self::others::{NODE_GROUPS, OtherNodes};
pub use self::table::{NodeAnswer, NodeEvent, NodeNote, NodeStep, NodeTable};
