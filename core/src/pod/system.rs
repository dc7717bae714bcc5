//! Operating systems of nodes, and of the programs that containers run.

use crate::api::names;

/// An operating system of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Ends of the names of Windows programs.
const WINDOWS_PROGRAMS: [&str; 3] = [".exe", ".cmd", ".bat"];
/// Programs that run Windows programs on Linux.
const EMULATORS: [&str; 2] = ["wine", "wine64"];

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
