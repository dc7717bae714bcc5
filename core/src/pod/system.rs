//! Operating systems of nodes.

use crate::api::names;

/// An operating system of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum System {
    Windows,
    Linux,
}

impl System {
    /// The system of this name. There are only Linux and Windows nodes.
    pub(super) fn named(name: &str) -> Self {
        if name == names::WINDOWS { Self::Windows } else { Self::Linux }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::Windows => Self::Linux,
            Self::Linux => Self::Windows,
        }
    }

    /// The value of `kubernetes.io/os`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Windows => names::WINDOWS,
            Self::Linux => "linux",
        }
    }
}
