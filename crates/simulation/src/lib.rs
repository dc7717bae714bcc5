//! A cluster in memory, for predictions and tests: an API server that executes winpool's requests, and the operator as a value.
//! Nothing here decides.

mod cluster;
mod operator;
pub mod request;

pub use cluster::{Cluster, Unfinished};
pub use operator::Operator;
