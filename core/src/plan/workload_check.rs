//! The input and the results of a workload check, which finds the workloads that would become unschedulable if nodes got
//! a taint.

mod answer;
mod class_source;
mod scope;

pub use answer::{CheckAnswer, PODS};
pub use class_source::ClassSource;
pub(super) use scope::workload_name;
pub use scope::{CheckScope, PlannedNode, PoolMembers, QUESTIONS, TaintQuestion, WorkloadName};
