//! The Go toolchain: builds a package of a pinned module, and finds a module's source.

use crate::error::{Error, FileContext, Result};
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
pub(crate) struct BuildOptions<'a> {
    pub linker_flags: &'a str,
    /// `GOOS`; that of this machine by default.
    pub os: Option<&'a str>,
    /// A file that replaces source files of the Go standard library.
    pub overlay: Option<&'a str>,
}

/// Builds `packages` with one run of `go build`, so that nothing is compiled twice. `target` is the file for a single
/// package, or the directory for several.
pub(crate) fn build(
    module: &Module,
    packages: &[&str],
    options: &BuildOptions<'_>,
    name: &str,
    target: &Path,
) -> Result<()> {
    let output = target.with_added_extension("log");
    let log = File::create(&output).when("write", &output)?;
    let target = crate::error::text(target)?;
    let started = Instant::now();
    progress(&format!("building {name} from Go modules (once; {})", module.duration));
    let command = |arguments: &[&str]| {
        let mut command = module.command(arguments);
        command.args(["-tags", module.tags]).args(packages).envs(options.os.map(|os| ("GOOS", os)));
        command
    };
    // It downloads their modules too.
    let package_count = output_of(command(&["list", "-deps"]))?.lines().count();
    let overlay = options.overlay.iter().flat_map(|overlay| ["-overlay", overlay]);
    let arguments = ["build", "-v", "-trimpath", "-ldflags", options.linker_flags, "-o", target];
    let build = command(&arguments.into_iter().chain(overlay).collect::<Vec<_>>())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|source| Error::GoMissing { component: name.to_owned(), source })?;
    let status =
        watch(build, name, &output, package_count).when("wait for the build in", Path::new(module.directory))?;
    if !status.success() {
        let said = std::fs::read_to_string(&output).unwrap_or_default();
        return Err(Error::GoFailed {
            command: format!("go build {}", packages.join(" ")),
            status: status.to_string(),
            tail: said.lines().filter(|line| !is_package(line)).collect::<Vec<_>>().join("\n"),
        });
    }
    progress(&format!("built {name} in {} s", started.elapsed().as_secs()));
    std::fs::remove_file(&output).when("remove", &output)
}

/// With `-v` Go prints the name of each package that it compiles. Anything else that it prints has spaces.
fn is_package(line: &str) -> bool {
    !line.contains(' ')
}

/// Waits until the build ends. From time to time it prints how many of these packages are compiled, and how long the
/// rest takes. Packages in Go's cache are not compiled, so there may be fewer.
fn watch(mut build: Child, name: &str, log: &Path, package_count: usize) -> std::io::Result<std::process::ExitStatus> {
    const INTERVAL: Duration = Duration::from_secs(15);
    let (started, mut next_word) = (Instant::now(), INTERVAL);
    loop {
        if let Some(status) = build.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() >= next_word {
            let done = std::fs::read_to_string(log)?.lines().filter(|line| is_package(line)).count();
            progress(&still(name, started.elapsed(), done, package_count));
            next_word += INTERVAL;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The progress of a build after this time.
fn still(name: &str, elapsed: Duration, compiled: usize, package_count: usize) -> String {
    let rest = elapsed.as_secs() * package_count.saturating_sub(compiled) as u64 / compiled.max(1) as u64;
    format!(
        "still building {name}: {compiled} of at most {package_count} packages in {} s, at most {rest} s left",
        elapsed.as_secs()
    )
}

/// The directory with the source of `dependency`, downloaded if necessary.
pub(crate) fn source_folder(module: &Module, dependency: &str) -> Result<PathBuf> {
    run(module, &["mod", "download", dependency])?;
    let directory = run(module, &["list", "-m", "-f", "{{.Dir}}", dependency])?;
    Ok(PathBuf::from(directory.trim()))
}

/// Runs `go` in the module's directory and returns its output.
pub(crate) fn run(module: &Module, arguments: &[&str]) -> Result<String> {
    output_of(module.command(arguments))
}

fn output_of(mut command: Command) -> Result<String> {
    let output =
        command.output().map_err(|source| Error::GoMissing { component: "the control plane".to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Error::GoFailed {
        command: command.get_args().fold("go".to_owned(), |text, next| text + " " + &next.to_string_lossy()),
        status: output.status.to_string(),
        tail: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Prints to standard error. Not with `eprintln!`, which a test captures until it fails.
pub(crate) fn progress(message: &str) {
    // It only reports progress, so a failed write is ignored.
    let _ = writeln!(std::io::stderr(), "winpool-e2e: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_follows_from_the_packages_that_are_compiled() {
        let half_a_minute = Duration::from_secs(30);
        assert_eq!(
            still("etcd", half_a_minute, 300, 900),
            "still building etcd: 300 of at most 900 packages in 30 s, at most 60 s left"
        );
    }

    #[test]
    fn errors_of_a_build_are_not_packages() {
        let said = ["k8s.io/api/core/v1", "# winpool.dev/a", "./main.go:3:2: undefined: x", "fmt"];
        assert_eq!(said.map(is_package), [true, false, false, true]);
    }
}
