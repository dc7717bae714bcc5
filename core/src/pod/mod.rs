//! Reads pods and pod templates, and applies the rules of the API server and the scheduler.
//!
//! Decisions, lint rules and explanations all use [`PodSpec`] and [`Class`], so they get the same answers.

pub(crate) mod affinity;
mod class;
pub mod errors;
mod object;
mod spec;
mod target;
pub(crate) mod tolerations;
mod workload;

pub use class::Class;
pub use errors::{KnownError, known_error};
pub(crate) use object::WireMetadata;
pub use object::{Pod, PodProgress};
pub use spec::{Container, ContainerList, PodSpec};
pub(crate) use target::{BETA_OS, OS_KEYS};
pub use target::{Target, selects_windows, tells_the_system};
pub use tolerations::{Tolerance, tolerance, tolerate};
pub use workload::{LISTED_KINDS, Workload, WorkloadKind};
