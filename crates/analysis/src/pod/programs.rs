//! The programs and paths of containers, as far as they show an operating system.

use serde::Deserialize;
use winpool_core::pod::System;

/// Ends of the names of Windows programs.
const WINDOWS_PROGRAMS: [&str; 3] = [".exe", ".cmd", ".bat"];
/// Programs that run Windows programs on Linux.
const EMULATORS: [&str; 2] = ["wine", "wine64"];

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

/// Returns the system of the program that these words run: a command and its arguments.
pub(super) fn program_of<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<System> {
    let line = words.next()?.trim().to_ascii_lowercase();
    let program = line.split_whitespace().next().unwrap_or_default();
    // PowerShell also runs on Linux, where paths have slashes.
    let is_script = program.strip_suffix(".ps1").is_some_and(|path| !path.contains('/'));
    let is_windows = ["powershell", "cmd"].contains(&program)
        || WINDOWS_PROGRAMS.iter().any(|end| program.ends_with(end))
        || is_script
        || is_on_drive(program);
    let is_linux = program.starts_with("/bin/") || program.starts_with("/usr/bin/") || EMULATORS.contains(&program);
    if is_windows || !is_linux && words.any(is_on_drive) {
        Some(System::Windows)
    } else {
        is_linux.then_some(System::Linux)
    }
}

/// True for a path that only Windows has, such as `C:\app` and `\\.\pipe\engine`.
pub(super) fn is_windows_path(path: &str) -> bool {
    is_on_drive(path) || path.starts_with("\\\\")
}

/// True for a path such as `C:\app`.
fn is_on_drive(word: &str) -> bool {
    word.split_at_checked(3).is_some_and(|(start, _)| {
        start.starts_with(|c: char| c.is_ascii_alphabetic()) && (start.ends_with(":\\") || start.ends_with(":/"))
    })
}
