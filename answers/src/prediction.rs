//! Predicts which workloads become unschedulable if nodes get a taint, from templates, classes, admission policies and
//! rollouts.
//!
//! A check fixes nodes, classes and questions when it starts. Then it receives every template, and after that every
//! pod, one by one, and keeps only what matters.

mod answer;
mod assigned;
mod lists;
mod placement;
mod seen;
mod state;

use winpool_core::plan::QUESTIONS;

pub use state::WorkloadCheck;

/// A set of questions.
type Mask = u64;

fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    (0..QUESTIONS).filter(move |bit| mask & (1 << bit) != 0)
}
