//! A Windows machine whose kubelet is real: `kubelet.exe` under Wine.
//!
//! The kubelet and its writes to the API server are real. Windows is Wine with the registry of a Windows Server, and a
//! stand-in that runs nothing replaces containerd. `e2e/kubelet/README.md` lists the limits.

pub mod judge;
pub mod machine;
mod prefix;
mod programs;
pub mod session;
pub mod windows;
