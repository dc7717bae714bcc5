//! winpool with an API server that fails in every possible way: `make chaos`. See docs/reliability.md.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
mod crashes;
mod endings;
mod faults;
mod mixed;
mod outages;
mod rare_states;
mod stage;
mod truth;
mod unreadable;
mod watches;
