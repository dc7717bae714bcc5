//! What Windows is: builds, products and taint spellings, as facts without opinion.
//!
//! A Windows node tells its build in `status.nodeInfo.kernelVersion`, which the kubelet reads from the registry once
//! when it starts (kubernetes/kubernetes `pkg/kubelet/winstats/version.go`). The first three parts of it are the value
//! of the label `node.kubernetes.io/windows-build` (kubernetes/api `core/v1/well_known_labels.go`). A process-isolated
//! container is refused by a host of another build, apart from few pairs such as 2022 images on Windows Server 2025
//! (Microsoft, "Windows container version compatibility"). So the build, not the product name, is what everything here
//! is keyed by: Windows Server 2019 and version 1809 are one build with two names, and a 2019 node may call itself
//! `Windows Server Datacenter` in `osImage`.
//!
//! - [`build`]: reading and writing builds.
//! - [`compatibility`]: which hosts run the images of a build.
//! - [`container_runtime`]: what a node reports as its container runtime, which has a say in that.
//! - [`image`]: what the name of a container image says about its build.
//! - [`kubernetes`]: which builds the documentation of a Kubernetes version lists.
//! - [`product`]: the table of Windows Server releases. A new release of Windows is one new row there.
//! - [`taint`]: the spellings under which clusters already keep Linux pods off their Windows nodes.

pub mod build;
pub mod compatibility;
pub mod container_runtime;
pub mod image;
pub mod kubernetes;
pub mod product;
pub mod taint;

pub use build::{Build, KernelVersion};
pub use container_runtime::ContainerRuntime;
pub use kubernetes::{KubernetesSupport, KubernetesVersion};
