//! The table of nodes: what this process knows about them, the sums over the nodes of each pool, and the next request
//! for each node.
//!
//! An interpreter shows the table what the watch shows, asks for the next step of a node, executes it, and passes on
//! the answer. The operator, `winpool plan` and the model in the tests are such interpreters, and decide nothing. The
//! table has no clock and no lock.

mod entry;
mod event;
mod exchange;
mod object;
mod request;
mod step;
mod sums;
mod table;

pub use event::{NodeEvent, NodeNote};
pub use object::NodeObject;
pub use step::{Attempt, AttemptState, NodeAnswer, NodeStep};
pub use sums::NodeCount;
pub use table::NodeTable;
