//! Workloads that a taint would make unschedulable: one test for each rule of the workload check.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod controllers;
mod placement;
mod pods;
mod property;
mod scene;
