//! Workloads that a taint would make unschedulable: one test for each rule of the workload check.

mod controllers;
mod memory;
mod placement;
mod pods;
mod property;
mod scene;
mod start;
