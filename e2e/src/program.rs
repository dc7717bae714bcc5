//! The program `winpool` as a process, to be killed like one.

use crate::error::text;
use crate::process::{Launch, Process};
use crate::{Error, Result};
use std::path::{Path, PathBuf};
use tokio::process::Command;
use tokio::sync::OnceCell;

/// Starts `winpool run` as the user of `kubeconfig`, with these arguments and any free port for its endpoints. Its log lies
/// beside the kubeconfig.
///
/// # Errors
/// When the program cannot be built or started.
pub async fn start_winpool(kubeconfig: &Path, arguments: &[&str]) -> Result<Process> {
    let program = winpool_program().await?;
    let folder = kubeconfig.parent().unwrap_or(Path::new("/"));
    let arguments = ["run", "--listen", "127.0.0.1:0"].iter().chain(arguments).map(ToString::to_string).collect();
    let launch = Launch { name: "winpool", program, arguments, folder, logs: folder };
    Process::start_in(launch, vec![("KUBECONFIG", text(kubeconfig)?.to_owned()), ("RUST_BACKTRACE", "1".to_owned())])
}

/// The program of the profile that the tests have, built by now.
///
/// # Errors
/// When it cannot be built.
pub async fn winpool_program() -> Result<&'static Path> {
    static PROGRAM: OnceCell<PathBuf> = OnceCell::const_new();
    PROGRAM.get_or_try_init(build).await.map(PathBuf::as_path)
}

/// Cargo builds the programs of a test's own package only, so it is told to, for the profile that the test has itself: the
/// test is `target/<profile>/deps/<name>-…`.
async fn build() -> Result<PathBuf> {
    let test = std::env::current_exe().map_err(|source| Error::NotStarted { program: "winpool".to_owned(), source })?;
    let folder = test.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned();
    let release = folder.file_name().is_some_and(|name| name == "release").then_some("--release");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(&cargo);
    command.args(["build", "--quiet", "--locked", "-p", "winpool", "--bin", "winpool"]).args(release);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = command.output().await.map_err(|source| Error::NotStarted { program: cargo, source })?;
    if output.status.success() {
        return Ok(folder.join("winpool"));
    }
    Err(Error::ToolFailed {
        command: "cargo build -p winpool".to_owned(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
