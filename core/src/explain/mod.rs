//! Answers for people: what winpool would change, why a node or a pod is as it is, and what pins workloads to a Windows
//! version. Nothing that writes to a cluster depends on it.

pub mod blockers;
pub mod forecast;
pub mod images;
pub mod node;
pub mod pod;
pub mod scheduling;
pub mod status;
