//! Decisions: the changes that each Node and RuntimeClass needs, and why. An empty plan sends nothing.

pub mod classes;
pub mod nodes;
pub mod patch;
pub mod pods;
pub mod pools;
pub mod reconcile;
pub mod refusal;
pub mod taints;
