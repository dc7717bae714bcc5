//! The `WindowsPool` API: spec, status and names. `kubectl explain windowspool.spec` prints the doc
//! comments of its fields.

#![deny(missing_docs, reason = "users read them")]

pub mod names;
mod pool;
pub mod quantity;
mod status;
mod taint;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use self::pool::HYPERV_ISOLATION_HANDLER;
pub(crate) use self::pool::ONLY_WINDOWS_TAINTS;
pub use self::pool::{
    ANY_VERSION, DEFAULT_ARCHITECTURE, DeletionPolicy, HostMatch, Isolation, Mode, NamedBuild, Overhead,
    PROCESS_ISOLATION_HANDLER, PodDefaults, RuntimeClassDiscovery, RuntimeClassSpec, TaintPolicy, WindowsPool,
    WindowsPoolSpec,
};
pub use self::status::{
    BuildStatus, ClassState, HelpedWorkload, NodeCounts, ObjectReference, Problem, RuntimeClassStatus, Summary,
    TaintStatus, WindowsPoolStatus, number,
};
pub use self::taint::{Effect, Taint, UnreadableTaint};
