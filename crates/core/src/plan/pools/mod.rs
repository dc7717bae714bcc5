//! Pools: what they ask for, and what they may do at this moment.

pub mod consent;
pub mod objector;
pub mod pool;
pub(crate) mod spec;
