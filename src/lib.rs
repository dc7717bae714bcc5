//! winpool: a Kubernetes operator that makes Windows nodes safe to run beside Linux ones.
//!
//! This crate is the thin shell: it watches, calls [`winpool_core::plan`], and applies. What a node or a RuntimeClass
//! should be is decided in `winpool-core`, which knows no client.

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
