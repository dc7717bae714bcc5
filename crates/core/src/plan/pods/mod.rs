//! The table of pods: one picture of all unfinished pods, which a watch keeps up to date.
//!
//! An interpreter shows the table what the watch of pods and the watch of Events show. Every question about pods is a function
//! of the table: who uses a RuntimeClass, which pods were created before their class got its selector, which pods fail
//! because of Windows, and which pods for Windows lack a toleration. The table has no clock and no client, and no question costs
//! a request.

pub(crate) mod fact;
pub(crate) mod failures;
pub(crate) mod history;
pub(crate) mod table;
pub(crate) mod tolerations;

pub use crate::plan::classes::runtime_class::ClassUsers;
pub use crate::plan::pods::fact::{PodFact, PodStage};
pub use crate::plan::pods::failures::{
    ClassPods, PodEvent, PodHealth, PodSummary, PoolFailures, REASONS, WorkloadFailure,
};
pub use crate::plan::pods::table::{COUNT_INTERVAL, PodPauses, PodTable, UnknownPods};
pub use crate::plan::pods::tolerations::{
    ClusterFacts, IS_ENDING, PoolHelp, TolerationAnswer, TolerationRequest, WindowsNodes,
};
