//! The Go toolchain: builds a package of a pinned module, and finds a module's source.

use crate::error::FileContext;
use crate::guard::tail;
use crate::{Error, Result};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A go.mod of this crate, with its settings.
pub(crate) struct Module {
    pub directory: &'static str,
    pub go_mod: &'static str,
    pub go_sum: &'static str,
    /// Build tags.
    pub tags: &'static str,
    /// The time of a build on two cores, as text.
    pub duration: &'static str,
}

impl Module {
    /// The version of a dependency in go.mod.
    pub(crate) fn version_of(&self, module: &str) -> Result<&'static str> {
        self.go_mod
            .lines()
            .filter_map(|line| line.trim().trim_start_matches("require ").split_once(' '))
            .find(|(name, _)| *name == module)
            .and_then(|(_, rest)| rest.split(' ').next())
            .ok_or_else(|| Error::NotPinned { module: module.to_owned() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("go");
        command
            .args(arguments)
            .current_dir(self.directory)
            .env("CGO_ENABLED", "0")
            .env("GOWORK", "off")
            .env("GOFLAGS", "-mod=readonly")
            .stdin(Stdio::null());
        command
    }
}

/// Settings of a build besides the package.
#[derive(Default)]
pub(crate) struct Options<'a> {
    pub linker_flags: &'a str,
    /// `GOOS`; that of this machine by default.
    pub os: Option<&'a str>,
    /// A file that replaces source files of the Go standard library.
    pub overlay: Option<&'a str>,
}

/// Builds `package` to the file `target`.
pub(crate) fn build(module: &Module, package: &str, options: &Options<'_>, name: &str, target: &Path) -> Result<()> {
    let output = target.with_added_extension("log");
    let log = File::create(&output).when("write", &output)?;
    let target = crate::error::text(target)?;
    let started = Instant::now();
    progress(&format!("building {name} from Go modules ({}, once)", module.duration));
    let build = module
        .command(&["build", "-trimpath", "-tags", module.tags, "-ldflags", options.linker_flags, "-o", target])
        .args(options.overlay.iter().flat_map(|overlay| ["-overlay", overlay]))
        .arg(package)
        .envs(options.os.map(|os| ("GOOS", os)))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|source| Error::GoMissing { component: name.to_owned(), source })?;
    let status = watch(build, name, started).when("wait for the build in", Path::new(module.directory))?;
    if !status.success() {
        return Err(Error::GoFailed {
            command: format!("go build {package}"),
            status: status.to_string(),
            tail: tail(&output, 20),
        });
    }
    progress(&format!("{name} is built, {} s", started.elapsed().as_secs()));
    std::fs::remove_file(&output).when("remove", &output)
}

/// Waits for the build, and reports from time to time that it continues.
fn watch(mut build: Child, name: &str, started: Instant) -> std::io::Result<std::process::ExitStatus> {
    let mut next_word = Duration::from_secs(20);
    loop {
        if let Some(status) = build.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() >= next_word {
            progress(&format!("still building {name}, {} s", next_word.as_secs()));
            next_word += Duration::from_secs(20);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The directory with the source of `dependency`, downloaded if necessary.
pub(crate) fn source_folder(module: &Module, dependency: &str) -> Result<PathBuf> {
    run(module, &["mod", "download", dependency])?;
    let directory = run(module, &["list", "-m", "-f", "{{.Dir}}", dependency])?;
    Ok(PathBuf::from(directory.trim()))
}

/// Runs `go` in the module's directory and returns its output.
pub(crate) fn run(module: &Module, arguments: &[&str]) -> Result<String> {
    let output = module
        .command(arguments)
        .output()
        .map_err(|source| Error::GoMissing { component: "the control plane".to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::GoFailed {
        command: format!("go {}", arguments.join(" ")),
        status: output.status.to_string(),
        tail: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Prints to standard error. Not with `eprintln!`, which a test captures until it fails.
pub(crate) fn progress(message: &str) {
    // Nobody reads it.
    let _ = writeln!(std::io::stderr(), "winpool-e2e: {message}");
}
