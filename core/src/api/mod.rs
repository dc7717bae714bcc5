//! The `WindowsPool` API: spec, status, names and validation. `kubectl explain windowspool.spec` prints the doc
//! comments of its fields.

#![deny(missing_docs, reason = "users read them")]

mod choices;
pub mod names;
mod pool;
pub mod quantity;
mod runtime_class;
mod status;
mod taint;
pub mod validation;

#[cfg(test)]
mod tests;

pub use choices::{DeletionPolicy, HostMatch, Isolation, Mode, RuntimeClassDiscovery, TaintPolicy};
pub use pool::{NamedBuild, PodDefaults, WindowsPool, WindowsPoolSpec};
pub use runtime_class::{ANY_VERSION, DEFAULT_ARCHITECTURE};
#[cfg(test)]
pub(crate) use runtime_class::{HYPERV_ISOLATION_HANDLER, PROCESS_ISOLATION_HANDLER};
pub use runtime_class::{Overhead, RuntimeClassSpec};
pub use status::{
    BuildStatus, ClassState, HelpedWorkload, NodeCounts, ObjectReference, Problem, Revisions, RuntimeClassStatus,
    Summary, TaintStatus, VendorStatus, WindowsPoolStatus, number,
};
pub use taint::{ParseTaintError, Taint};
