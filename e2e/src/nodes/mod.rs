//! Simulated nodes: the reports of a kubelet without a machine.

pub mod kubelet;
pub mod samples;
pub mod simulated;
mod windows;
