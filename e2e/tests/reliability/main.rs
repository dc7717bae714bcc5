//! What holds when everything happens at once, with any input, and for a long time: `docs/reliability.md`.
//!
//! The long runs are ignored by default; `make chaos` runs them too.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "shared with the tests of the operator")]
#[path = "../operator/account.rs"]
mod account;
#[path = "../operator/dice.rs"]
mod dice;
mod drift;
mod generated;
#[path = "../operator/guarded.rs"]
mod guarded;
#[allow(dead_code, reason = "shared with the benchmarks")]
#[path = "../../benches/operator/process.rs"]
mod process;
mod races;
#[allow(dead_code, reason = "shared with the benchmarks")]
#[path = "../../benches/operator/requests.rs"]
mod requests;
#[allow(dead_code, reason = "shared with the tests of the operator")]
#[path = "../operator/schema.rs"]
mod schema;
mod soak;
#[allow(dead_code, unused_imports, reason = "shared with the tests of the operator")]
#[path = "../operator/support.rs"]
mod support;

/// Of what is shared with the benchmarks.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
