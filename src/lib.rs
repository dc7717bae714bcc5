//! winpool: a Kubernetes operator that makes Windows nodes safe to run beside Linux ones.
//!
//! This crate is a thin shell: it watches, calls [`winpool_core::plan`], and writes. The crate `winpool-core` decides
//! how a node or a RuntimeClass should be, and has no client.

pub mod api_server;
pub mod cache;
pub mod cli;
pub mod controllers;
pub mod election;
pub mod metrics;
pub mod policy;
pub mod registry;
pub mod removal;
pub mod server;
pub mod telemetry;
pub mod write;

mod operator;
mod other_writer;

pub use operator::{Error, Options, crd_yaml, run};
