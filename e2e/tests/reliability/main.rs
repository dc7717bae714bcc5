//! What holds when everything happens at once, with any input, and for a long time: `docs/reliability.md`.
//!
//! The long runs are ignored by default; `make chaos` runs them too.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod drift;
mod generated;
mod races;
mod soak;
