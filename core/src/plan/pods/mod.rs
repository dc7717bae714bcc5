//! The table of pods: one picture of all unfinished pods, which a watch keeps up to date.
//!
//! An interpreter shows the table what the watch of pods and the watch of Events show. Every question about pods is a function
//! of the table: who uses a RuntimeClass, which pods were created before their class got its selector, which pods fail
//! because of Windows, and which pods for Windows lack a toleration. The table has no clock and no client, and no question costs a request.

mod daemon_set;
mod event;
mod fact;
mod failure;
mod health;
mod help;
mod history;
mod placement;
mod table;
mod toleration;
mod users;

pub use daemon_set::Objector;
pub use event::{PodEvent, REASONS};
pub use fact::{PodFact, PodStage};
pub use health::{ClusterFacts, PodHealth, PodSummary, PoolFailures, WorkloadFailure};
pub use help::{PoolHelp, TolerationAnswer, TolerationRequest};
pub use placement::Placement;
pub use table::{COUNT_INTERVAL, PodPauses, PodTable, UnknownPods};
pub use toleration::WindowsNodes;
pub(super) use users::describe_users;
pub use users::{ClassPods, ClassUsers};
