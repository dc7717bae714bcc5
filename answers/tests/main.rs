//! The tests of the answers, in one binary: they link once.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the tests of the core use the rest")]
#[path = "../../core/tests/common/mod.rs"]
mod common;
mod forecast;
mod images;
mod lint;
mod pod_explanation;
mod readers;
mod remedies;
mod render;
