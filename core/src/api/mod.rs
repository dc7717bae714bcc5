//! The `WindowsPool` API: spec, status, names and validation. The doc comments of its fields are what
//! `kubectl explain windowspool.spec` prints.

pub mod names;
mod pool;
pub(crate) mod quantity;
mod status;
mod taint;
pub mod validation;

pub(crate) use pool::{DEFAULT_ARCHITECTURE, PROCESS_ISOLATION_HANDLER};
pub use pool::{Mode, NamedBuild, Overhead, RuntimeClassSpec, WindowsPool, WindowsPoolSpec, crd};
pub use status::{
    BuildStatus, ClassState, NodeCounts, Problem, Revisions, RuntimeClassStatus, Summary, WindowsPoolStatus,
};
pub use taint::{ParseTaintError, Taint};

#[cfg(test)]
mod tests;
