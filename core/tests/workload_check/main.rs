//! Who would become unschedulable by a taint: every clause of what a workload check counts.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod controllers;
mod placement;
mod pods;
mod property;
mod scene;
