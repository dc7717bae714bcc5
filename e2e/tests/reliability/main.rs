//! Races, generated input and long runs: `docs/reliability.md`.
//!
//! The long runs are ignored by default; `make chaos-long` runs them.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

mod absence;
mod drift;
mod generated;
mod hostile;
mod races;
mod soak;

/// The binary with the profile of the tests, or the one that the environment names.
async fn program() -> PathBuf {
    match std::env::var_os("WINPOOL_PROGRAM") {
        Some(other) => other.into(),
        None => winpool_e2e::scene::program::operator_program().await.unwrap(),
    }
}
