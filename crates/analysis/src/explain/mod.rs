//! Explanations for users: the changes that winpool would make, the state of nodes, pods and pools, and the workloads
//! that are pinned to a Windows version. Code that writes to a cluster does not depend on this module.

pub mod blockers;
pub mod difference;
pub mod forecast;
pub mod groups;
pub mod images;
pub mod installation;
pub mod node;
pub mod pod;
pub mod pod_count;
pub mod pod_defaults;
pub mod pool_change;
pub mod report;
pub mod scale;
pub mod status;
mod subject;
pub mod upgrade;
