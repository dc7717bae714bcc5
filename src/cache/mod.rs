//! Cached nodes, and the index of what they add up to.

pub mod index;
pub mod node;
pub(crate) mod shared;
