//! Tests of winpool on a real Kubernetes control plane. Every test has its own API server. Tests start in the order of their
//! names, so `agreement`, which takes longest, is among the first.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod adoption;
mod agreement;
mod check;
mod cleanup;
mod compatible;
mod contested;
mod deletion;
mod denials;
mod dry_run;
mod empty_pool;
mod failing_pods;
mod hasty;
mod held_taints;
mod host_match;
mod invalid_pools;
mod leadership;
mod lifecycle;
mod monitoring;
mod plan;
mod policies;
mod quiet;
mod rare_states;
mod refusals;
mod rehearsal;
mod repair;
mod rescued;
mod reverted;
mod rights;
mod shuffled;
mod stolen;
mod stored;
mod taint_change;
mod told;
mod tolerations;
mod uninstall;
mod validation;
mod workloads;
