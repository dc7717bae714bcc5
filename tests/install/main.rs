//! `config/` and `charts/winpool`: what they say, and what becomes of them on a real control plane.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod equal;
mod helm;
mod kustomize;
mod scene;
