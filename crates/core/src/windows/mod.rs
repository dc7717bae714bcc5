//! Facts about Windows: builds, products and spellings of its taint.
//!
//! A Windows node reports its build in `status.nodeInfo.kernelVersion`, which the kubelet reads from the registry once
//! when it starts (kubernetes/kubernetes `pkg/kubelet/winstats/version.go`). Its first three parts are the value of
//! the label `node.kubernetes.io/windows-build` (kubernetes/api `core/v1/well_known_labels.go`). A host refuses a
//! process-isolated container of another build, except for a few pairs such as 2022 images on Windows Server 2025
//! (Microsoft, "Windows container version compatibility"). Everything here is therefore keyed by the build, not by the
//! product name: Windows Server 2019 and version 1809 are one build with two names, and the `osImage` of a 2019 node
//! may be `Windows Server Datacenter`.
//!
//! - [`build`]: parses and formats builds.
//! - [`builds`]: the table of Windows Server releases. A new release of Windows is a new row there.
//! - [`compatibility`]: the hosts that run the images of a build.
//! - [`container_runtime`]: the container runtime of a node, which limits compatibility.
//! - [`taint`]: the spellings of the taint that keeps Linux pods off Windows nodes.

pub mod build;
pub mod builds;
pub mod compatibility;
pub mod container_runtime;
pub mod taint;

pub use build::{Build, KernelVersion, ReportedVersion};
pub use container_runtime::ContainerRuntime;

/// Parses a number of digits only. `str::parse` alone would accept `+1`.
pub fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
