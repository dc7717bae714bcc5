//! Pools: what they ask for, their status, and their end.

pub(crate) mod deletion;
pub mod pool;
pub mod status;
pub mod verdict;
