//! Installing, upgrading and uninstalling `config/` and `charts/winpool` on a real control plane.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod chart;
mod equal;
mod helm;
mod kustomize;
mod scene;
mod values;
