//! Pods and pod templates: how they are read, and what the API server and the scheduler make of them.

pub(crate) mod affinity;
pub mod class;
pub(crate) mod spec;
pub(crate) mod tolerations;
mod workload;

pub use spec::{Pod, PodProgress, PodSpec, tells_the_system};
pub use tolerations::{Tolerance, tolerance, tolerate};
pub use workload::{LISTED_KINDS, Workload, WorkloadKind};
