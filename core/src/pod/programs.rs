//! The programs and paths of containers, as far as they show an operating system.

use serde::Deserialize;
use serde_json::Value;

use super::{
    spec::WireContainer,
    system::{System, is_windows_path, program_of},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireMount {
    mount_path: Option<String>,
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
pub(super) struct WireHandler {
    exec: Option<WireExec>,
}

#[derive(Deserialize)]
struct WireExec {
    command: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireLifecycle {
    post_start: Option<WireHandler>,
    pre_stop: Option<WireHandler>,
}

impl WireVolume {
    /// True if it is a path of the node that only Windows has.
    pub fn is_of_windows(&self) -> bool {
        let path = self.host_path.as_ref().and_then(|host| host.path.as_deref());
        path.is_some_and(is_windows_path)
    }
}

impl WireContainer {
    /// Returns the system of the first program that shows one, or else Windows if a path is one of Windows.
    pub fn program(&self) -> Option<System> {
        let lists = [&self.command, &self.args].into_iter().flatten().filter_map(Value::as_array);
        let of_lifecycle = self.lifecycle.iter().flat_map(|all| all.post_start.iter().chain(&all.pre_stop));
        let probes = self.startup_probe.iter().chain(&self.liveness_probe).chain(&self.readiness_probe);
        let mut commands = probes.chain(of_lifecycle).filter_map(|handler| handler.exec.as_ref()?.command.as_ref());
        let mounts = self.volume_mounts.iter().flatten().filter_map(|mount| mount.mount_path.as_deref());
        let has_windows_path = || self.working_dir.as_deref().into_iter().chain(mounts).any(is_windows_path);
        program_of(lists.flatten().filter_map(Value::as_str))
            .or_else(|| commands.find_map(|words| program_of(words.iter().map(String::as_str))))
            .or_else(|| has_windows_path().then_some(System::Windows))
    }
}
