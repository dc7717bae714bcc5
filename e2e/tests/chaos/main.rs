//! What winpool makes of an API server that fails in every way that it can: `make chaos`. See docs/reliability.md.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../operator/account.rs"]
#[allow(dead_code, reason = "shared with the tests of the operator, which use all of it")]
mod account;
mod clocks;
mod crashes;
mod faults;
#[path = "../operator/guarded.rs"]
mod guarded;
mod mixed;
mod outages;
mod stage;
mod stale;
#[path = "../operator/support.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests of the operator, which use all of it")]
mod support;
mod watches;
