//! The platforms of images: winpool's client with a real registry, and its rule with containerd's own code.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod client;
mod platforms;
