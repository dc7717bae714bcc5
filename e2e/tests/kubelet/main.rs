//! winpool with real kubelets: kubelet.exe under Wine, a real scheduler, real controllers.
//!
//! They need Wine, so they are not part of `make test`: run `make kubelet-test`. The comment of each test says what it
//! catches. The tests also assert the kubelet's own behaviour, so they fail on a Kubernetes version that changes it.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests fail by panicking")]

mod admission;
mod born_tainted;
mod command_line;
mod deletion;
mod failing_pods;
mod labels;
mod leftovers;
mod outage;
mod pods;
mod refusals;
mod registration;
mod repair;
mod stage;
mod test_real;
mod upgrade;
