//! winpool with real kubelets: kubelet.exe under Wine, a real scheduler, real controllers.
//!
//! They need Wine, so they are not part of `make test`: `make kubelet-test`. Each test says in its comment what it would have
//! caught. What the kubelet does is asserted too: a Kubernetes in which that changes fails here, and says where.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod admission;
mod born_tainted;
mod deletion;
mod leftovers;
mod outage;
mod pods;
mod refusals;
mod registration;
mod repair;
mod stage;
mod test_real;
mod upgrade;
mod versions;
