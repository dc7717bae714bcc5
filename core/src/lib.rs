//! winpool's facts and decisions: the `WindowsPool` API, facts about Windows, and the changes of each Node and
//! RuntimeClass.
//!
//! Everything here is a pure function. There is no client, clock, log or metric, so the same input gives the same
//! plan, and the plan for a state that was planned is empty.

pub mod api;
pub mod election;
pub mod interner;
pub mod labels;
pub mod plan;
pub mod pod;
pub mod windows;
pub mod words;
