//! winpool's operator: it makes Windows nodes safe to run beside Linux ones.
//!
//! This crate is a thin shell: it watches, calls [`winpool_core::plan`], and writes. The crate `winpool-core` decides
//! how a node or a RuntimeClass should be, and has no client.

pub mod cleanup;
pub mod commands;
pub mod controllers;
pub mod election;
pub mod leadership;
pub mod metrics;
pub mod nodes;
pub mod server;
pub mod telemetry;
pub mod uninstall;
pub mod write;

mod operator;
mod together;

pub use operator::{Error, Options, connect, run};
