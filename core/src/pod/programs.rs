//! The programs and paths of containers, as far as they show an operating system.

use serde::Deserialize;

use super::system::is_windows_path;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireMount {
    pub mount_path: Option<String>,
}

/// A volume, of which only the path on the node is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireVolume {
    host_path: Option<WireHostPath>,
}

#[derive(Deserialize)]
struct WireHostPath {
    path: Option<String>,
}

/// A probe, or a handler of a container's lifecycle.
#[derive(Deserialize)]
pub(super) struct WireAction {
    pub exec: Option<WireExec>,
}

#[derive(Deserialize)]
pub(super) struct WireExec {
    pub command: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireLifecycle {
    pub post_start: Option<WireAction>,
    pub pre_stop: Option<WireAction>,
}

impl WireVolume {
    /// True if it is a path of the node that only Windows has.
    pub fn is_of_windows(&self) -> bool {
        let path = self.host_path.as_ref().and_then(|host| host.path.as_deref());
        path.is_some_and(is_windows_path)
    }
}
