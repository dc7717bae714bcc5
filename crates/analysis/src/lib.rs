//! winpool's answers to people: what is wrong, why, and what to do. All of it is pure.

pub mod autoscalers;
pub mod crd;
pub mod explain;
pub mod finding;
pub mod fix;
pub mod image;
pub mod kinds;
pub mod kubernetes;
pub mod lint;
pub mod placement;
pub mod pod;
pub mod pod_security;
pub mod reference;
pub mod remedy;
pub mod render;
pub mod snapshot;
pub mod support;
pub mod system;
pub mod verdict;
pub mod view;
pub mod workload;
