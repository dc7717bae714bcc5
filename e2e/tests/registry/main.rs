//! Tests of image platforms: winpool's client with a real registry, and its matching rule against containerd's code.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod client;
mod live;
mod platforms;
