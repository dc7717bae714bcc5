//! What winpool knows and decides: the `WindowsPool` API, what Windows is, and what each Node and RuntimeClass
//! should be.
//!
//! Everything here is a function of its arguments. There is no client, no clock, no log and no metric, so the same
//! input gives the same plan, and planning on a planned state gives an empty plan.

pub mod api;
pub mod election;
pub mod explain;
pub mod image;
pub mod labels;
pub mod lint;
pub mod plan;
pub mod pod;
pub mod render;
pub mod windows;
pub mod words;
