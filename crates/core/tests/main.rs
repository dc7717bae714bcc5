//! The tests of the core, in one binary: they link once.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod capability_labels;
mod common;
mod consent;
mod contradictions;
mod election;
mod evidence;
mod node_plan;
mod nodes;
mod ownership;
mod patch;
mod pods;
mod policies;
mod properties;
mod protocol;
mod reconcile;
mod release;
mod runtime_class_conflict;
mod runtime_class_plan;
mod status;
mod uninstall;
