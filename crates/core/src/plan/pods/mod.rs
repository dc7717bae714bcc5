//! The table of pods: one picture of all unfinished pods, which a watch keeps up to date.
//!
//! An interpreter shows the table what the watch of pods and the watch of Events show. Every question about pods is a function
//! of the table: who uses a RuntimeClass, which pods were created before their class got its selector, which pods fail
//! because of Windows, and which pods for Windows lack a toleration. The table has no clock and no client, and no question costs
//! a request.

pub(crate) mod fact;
pub(crate) mod failures;
pub(crate) mod table;
pub(crate) mod tolerations;

pub use crate::plan::{
    pods::{
        fact::{Placement, PodFact, PodStage},
        failures::{ClusterFacts, PodEvent, PodHealth, PodSummary, PoolFailures, REASONS, WorkloadFailure},
        table::{COUNT_INTERVAL, ClassPods, ClassUsers, PodPauses, PodTable, UnknownPods},
        tolerations::{PoolHelp, TolerationAnswer, TolerationRequest, WindowsNodes},
    },
    taints::daemon_sets::Objector,
};
