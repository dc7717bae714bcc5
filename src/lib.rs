//! winpool: a Kubernetes operator that makes Windows nodes safe to run beside Linux ones.
//!
//! This crate is the thin shell: it watches, calls [`winpool_core::plan`], and applies. What a node or a RuntimeClass
//! should be is decided in `winpool-core`, which knows no client.

pub mod apply;
pub mod causes;
pub mod cleanup;
pub mod cli;
pub mod client;
pub mod controllers;
pub mod index;
pub mod installation;
pub mod leader;
pub mod metrics;
pub mod node;
pub mod pod;
pub mod policy;
pub mod requests;
pub mod server;
mod shared;
pub mod telemetry;

mod operator;
mod pages;
mod rival;
mod together;

pub use operator::{Error, Options, crd_yaml, run};
