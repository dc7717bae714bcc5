//! What is measured.

pub mod cache;
pub mod converge;
pub mod core;
pub mod join;
pub mod look;
pub mod migration;
pub mod quiet;
pub mod restart;
pub mod start;
