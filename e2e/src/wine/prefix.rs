//! Wine: its location, the Windows of each machine, and the end of its processes.

use super::windows::Windows;
use crate::error::{Error, FileContext, Result};
use crate::machine::assets::{cache_folder, fingerprint, make_once};
use crate::machine::go::progress;
use crate::machine::guard::Guard;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The message about a missing Wine, with its packages.
const CHECK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kubelet/wine.sh");

/// The directories in which Debian and Ubuntu install Wine's programs.
pub(super) const WINE: &str = "/usr/lib/wine/wine64";
const SERVER: &str = "/usr/lib/wine/wineserver64";
/// The directory of Wine's sockets, below a prefix.
const SOCKETS: &str = "sockets";
/// The directories of Wine's own DLLs.
const DLLS: &str = "/usr/lib/x86_64-linux-gnu/wine/x86_64-windows";
const COMPILER: &str = "x86_64-w64-mingw32-gcc";

/// Functions that Wine 8 lacks, as C source.
const SHIMS: [(&str, &str); 2] = [
    ("bcryptprimitives", include_str!("../../kubelet/shims/bcryptprimitives.c")),
    ("pdh", include_str!("../../kubelet/shims/pdh.c")),
];

/// Returns the reason if no kubelet can run here. It installs nothing.
pub(super) fn missing() -> Option<String> {
    match Command::new(CHECK).env_remove("CI").output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(not_started(CHECK, error).to_string()),
    }
}

/// The environment of a Wine program with the Windows in `prefix`.
pub(super) fn environment(prefix: &str) -> Vec<(&'static str, String)> {
    vec![
        ("WINEPREFIX", prefix.to_owned()),
        // Wine keeps its sockets in a directory there. Debian's Wine uses this variable.
        ("TMPDIR", format!("{prefix}/{SOCKETS}")),
        ("WINESERVER", SERVER.to_owned()),
        ("WINEARCH", "win64".to_owned()),
        ("WINEDEBUG", "fixme-all".to_owned()),
        // pdh.dll is the shim. .NET, a browser and the desktop's menu are not needed.
        ("WINEDLLOVERRIDES", "pdh=n;mscoree,mshtml,winemenubuilder.exe=".to_owned()),
        ("PATH", "/usr/bin:/bin".to_owned()),
    ]
}

/// Creates a separate Windows in the directory `prefix`, without drive Z:, so that no path leads to the Linux file
/// system.
pub(super) fn install(prefix: &Path) -> Result<()> {
    let template = template()?;
    let drive = prefix.join("drive_c");
    fs::create_dir_all(prefix.join("dosdevices")).when("make the directory", prefix)?;
    fs::create_dir_all(drive.join("ProgramData")).when("make the directory", &drive)?;
    fs::create_dir_all(drive.join("users/root/Temp")).when("make the directory", &drive)?;
    let link = prefix.join("dosdevices/c:");
    symlink("../drive_c", &link).when("make the link", &link)?;
    // All machines share the programs of Windows, which nothing writes.
    let link = drive.join("windows");
    symlink(template.join("drive_c/windows"), &link).when("make the link", &link)?;
    for file in ["user.reg", "userdef.reg", ".update-timestamp"] {
        let to = prefix.join(file);
        fs::copy(template.join(file), &to).when("write", &to)?;
    }
    Ok(())
}

/// Writes the registry of this Windows to `prefix`.
pub(super) fn write_registry(prefix: &Path, machine: &str, windows: Windows) -> Result<()> {
    let file = template()?.join("system.reg");
    let mut registry = fs::read_to_string(&file).when("read", &file)?;
    let Windows { build, revision, product } = windows;
    let id = fingerprint(&[machine]);
    // Values of a repeated key are added to it.
    let keys = [
        (
            r"Software\\Microsoft\\Windows NT\\CurrentVersion",
            format!(
                "\"CurrentBuild\"=\"{build}\"\n\"CurrentBuildNumber\"=\"{build}\"\n\"UBR\"=dword:{revision:08x}\n\
                 \"ProductName\"=\"{product}\"\n\"CurrentVersion\"=\"6.3\"\n\"InstallationType\"=\"Server\"\n\
                 \"CurrentMajorVersionNumber\"=dword:0000000a\n\"CurrentMinorVersionNumber\"=dword:00000000"
            ),
        ),
        (r"System\\HardwareConfig", format!("\"LastConfig\"=\"{{{id}-0000-4000-8000-000000000000}}\"")),
        (
            r"System\\CurrentControlSet\\Control\\Session Manager\\Memory Management\\PrefetchParameters",
            "\"BootId\"=dword:00000008".to_owned(),
        ),
        // A driver of Wine that searches for USB devices of the Linux machine.
        (r"System\\CurrentControlSet\\Services\\wineusb", "\"Start\"=dword:00000004".to_owned()),
    ];
    for (key, values) in keys {
        // Writing to a String never fails.
        let _ = write!(registry, "\n[{key}] 1\n{values}\n");
    }
    let file = prefix.join("system.reg");
    fs::write(&file, registry).when("write", &file)
}

/// Lets the next Wine program in `prefix` start its own server. One that was killed may still accept connections for a
/// moment.
pub(super) fn forget_server(prefix: &Path) -> Result<()> {
    let sockets = prefix.join(SOCKETS);
    // Neither exists at first.
    let _ = fs::remove_dir_all(&sockets);
    let _ = fs::remove_file(prefix.join("wineserver"));
    fs::create_dir(&sockets).when("make the directory", &sockets)
}

/// Ends every Wine process in `prefix`, and waits until they have ended. Wine starts its own in separate sessions.
pub(super) fn end(prefix: &str) {
    let mark = format!("WINEPREFIX={prefix}");
    loop {
        let ids: Vec<_> = entries("/proc").filter(|process| runs_in(process, mark.as_bytes())).collect();
        if ids.is_empty() {
            return;
        }
        let ids = ids.iter().filter_map(|process| process.file_name());
        // An error means that it has ended already.
        let _ = Command::new("kill").args(["-s", "KILL"]).args(ids).stderr(Stdio::null()).status();
    }
}

/// True if the process has this in its environment. Each thread is checked: the first one may have ended, and then the
/// process seems to have no environment.
fn runs_in(process: &Path, mark: &[u8]) -> bool {
    entries(process.join("task")).any(|thread| {
        let environment = fs::read(thread.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark)
    })
}

fn entries(directory: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// A Windows as Wine creates it, with the shims: created once, and shared by all machines.
fn template() -> Result<PathBuf> {
    let version = Command::new(WINE).arg("--version").output().map_err(|source| not_started(WINE, source))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let fingerprint = fingerprint(&[&version, SHIMS[0].1, SHIMS[1].1]);
    let target = cache_folder()?.join(format!("wine-prefix-{fingerprint}"));
    make_once(&target, "Wine's copy of Windows", |directory| {
        progress("making Wine's copy of Windows, once");
        // Files of an earlier attempt.
        let _ = fs::remove_dir_all(directory);
        fs::create_dir_all(directory).when("make the directory", directory)?;
        forget_server(directory)?;
        let prefix = crate::error::text(directory)?;
        wine(prefix, WINE, &["wineboot", "-i"])?;
        // Waits until the registry is written.
        wine(prefix, SERVER, &["-w"])?;
        end(prefix);
        let system = directory.join("drive_c/windows/system32");
        link_to_installation(&system)?;
        SHIMS.iter().try_for_each(|(name, source)| compile(&system, name, source))
    })?;
    Ok(target)
}

/// Wine copies all its DLLs, 600 MB. Links are enough.
fn link_to_installation(system: &Path) -> Result<()> {
    for entry in fs::read_dir(system).when("read", system)?.flatten() {
        let (installed, copy) = (Path::new(DLLS).join(entry.file_name()), entry.path());
        if installed.is_file() && copy.is_file() {
            fs::remove_file(&copy).when("remove", &copy)?;
            symlink(&installed, &copy).when("make the link", &copy)?;
        }
    }
    Ok(())
}

fn compile(system: &Path, name: &str, source: &str) -> Result<()> {
    let (file, library) = (system.join(format!("{name}.c")), system.join(format!("{name}.dll")));
    // It may be a link to Wine's own.
    let _ = fs::remove_file(&library);
    fs::write(&file, source).when("write", &file)?;
    let mut command = Command::new(COMPILER);
    command.args(["-shared", "-O2", "-s", "-o"]).arg(&library).arg(&file).arg("-ladvapi32");
    run(command, COMPILER, Stdio::null()).map(drop)
}

fn wine(prefix: &str, program: &str, arguments: &[&str]) -> Result<()> {
    run(in_wine(prefix, program, arguments)?, program, Stdio::null()).map(drop)
}

/// Runs a program of Windows that lies in `C:\` of this prefix, with a file as its input, and returns what it prints.
pub(super) fn run_program(prefix: &str, program: &str, input: fs::File) -> Result<String> {
    let mut command = in_wine(prefix, WINE, &[program])?;
    command.current_dir(Path::new(prefix).join("drive_c"));
    run(command, program, input.into())
}

pub(super) fn in_wine(prefix: &str, program: &str, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment(prefix)).env("HOME", prefix);
    command.process_group(Guard::get()?.process_group());
    Ok(command)
}

fn run(mut command: Command, program: &str, input: Stdio) -> Result<String> {
    let output = command.stdin(input).output().map_err(|source| not_started(program, source))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::ToolFailed {
        command: program.to_owned(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

pub(super) fn not_started(program: &str, source: std::io::Error) -> Error {
    Error::NotStarted { program: program.to_owned(), source }
}
