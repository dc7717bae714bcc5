//! Pools: what they ask for, their status, and their end.

pub mod pool;
pub(crate) mod spec;
pub mod status;
