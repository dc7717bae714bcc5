//! The loop of a pool, driven step by step on a cluster in memory.

mod approvals;
mod checks;
mod classes;
mod cluster;
mod deletion;
mod host_match;
mod labels;
mod rare_states;
mod reverted;
mod status;
mod taken_over;
mod widened;
