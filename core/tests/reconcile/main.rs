//! The loop of a pool, driven step by step on a cluster in memory.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod approvals;
mod checks;
mod classes;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod deletion;
mod rare_states;
mod status;
