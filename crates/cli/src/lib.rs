//! `winpool`: answers about Windows nodes and workloads. It changes nothing in a cluster.

pub mod commands;
mod error;
pub mod manifests;
mod print;
pub mod read;

pub use error::Error;
