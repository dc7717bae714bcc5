//! The workload check: finds the workloads that would become unschedulable if nodes got a taint.
//!
//! A check fixes nodes, classes and questions when it starts. Then it receives every template, and after that every
//! pod, one by one, and keeps only what matters.

mod answer;
mod assigned;
mod class_source;
mod lists;
mod node_choice;
mod placement;
mod scope;
mod seen;
mod state;

pub use answer::{CheckAnswer, PODS};
pub use class_source::ClassSource;
pub(super) use node_choice::ForWindows;
pub use node_choice::NodeChoice;
pub(super) use scope::QUESTIONS;
pub use scope::{CheckScope, PlannedNode, PoolMembers, TaintQuestion};
pub use state::WorkloadCheck;
