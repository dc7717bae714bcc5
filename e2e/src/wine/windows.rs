//! The Windows versions that machines can have.

/// A Windows Server, with the values of its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Such as 20348.
    pub build: u32,
    /// Such as 2655.
    pub revision: u32,
    pub product: &'static str,
}

pub const WINDOWS_2019: Windows = Windows { build: 17763, revision: 6189, product: "Windows Server 2019 Datacenter" };
pub const WINDOWS_2022: Windows = Windows { build: 20348, revision: 2655, product: "Windows Server 2022 Datacenter" };
pub const WINDOWS_2025: Windows = Windows { build: 26100, revision: 4061, product: "Windows Server 2025 Datacenter" };

impl Windows {
    /// The value of the label `node.kubernetes.io/windows-build`.
    pub fn label(self) -> String {
        format!("10.0.{}", self.build)
    }

    /// `status.nodeInfo.kernelVersion`.
    pub fn kernel_version(self) -> String {
        format!("10.0.{}.{}", self.build, self.revision)
    }
}
