//! What watches keep of the cluster, and what that adds up to.

pub mod index;
pub mod node;
pub(crate) mod shared;
