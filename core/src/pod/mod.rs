//! Reads pods and pod templates, and applies the rules of the API server and the scheduler.
//!
//! Decisions, lint rules and explanations all use [`PodSpec`] and [`Class`], so they get the same answers.

pub mod affinity;
mod class;
mod daemon_set;
pub mod errors;
mod metadata;
mod object;
mod spec;
mod start_status;
mod system;
mod target;
pub mod tolerations;
mod workload_kind;

pub use class::Class;
pub(crate) use class::selector_of;
pub use daemon_set::DaemonSet;
pub use errors::{Cause, Certainty, KnownError, known_error};
pub use metadata::WireMetadata;
pub use object::{Pod, PodProgress, WirePod, container_states, controlled_by, has_run};
pub use spec::PodSpec;
pub use start_status::{ContainerFailure, StartStatus};
pub use system::System;
pub use target::{ARCH_KEYS, BETA_OS, OS_KEYS, SYSTEM_LABELS};
pub use target::{is_on_windows_only, selects_windows};
pub use tolerations::{Tolerance, tolerance, tolerate};
pub use workload_kind::{LISTED_KINDS, WorkloadKind};
