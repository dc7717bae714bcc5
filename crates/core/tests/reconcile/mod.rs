//! The loop of a pool, driven step by step on a cluster in memory.

mod classes;
mod cluster;
mod daemon_sets;
mod deletion;
mod host_match;
mod labels;
mod rare_states;
mod reverted;
mod status;
mod taken_over;
