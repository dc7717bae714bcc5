//! Reads pods and pod templates, and applies the rules of the API server and the scheduler.
//!
//! Decisions, lint rules and explanations all use [`PodSpec`] and [`Class`], so they get the same answers.

pub mod affinity;
pub mod errors;
mod object;
pub(crate) mod placement;
mod spec;
pub mod tolerations;

pub use self::errors::{Cause, KnownError, known_error};
pub use self::object::{
    ContainerStatus, DaemonSet, FieldManager, Pod, PodProgress, PodStatus, StartStatus, StateReason, WireMetadata,
    WirePod, container_states, controlled_by, has_run,
};
pub use self::placement::Placement;
pub(crate) use self::placement::Placements;
pub(crate) use self::spec::selector_of;
pub use self::spec::{
    ARCH_KEYS, BETA_OS, Class, OS_KEYS, PodSpec, SYSTEM_LABELS, System, is_on_windows_only, selects_windows,
};
pub use self::tolerations::{Tolerance, tolerance, tolerate};
