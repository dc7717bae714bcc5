//! Runs programs for Windows under Wine, as a user at a prompt does.

use super::prefix;
use super::windows::WINDOWS_2022;
use crate::error::{Error, FileContext, Result, text};
use crate::machine::assets::off_the_runtime;
use crate::machine::guard::{Directory, Guard};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A Windows on which programs run. Its processes and files end with it.
pub struct Session {
    prefix: PathBuf,
    _directory: Directory,
}

/// The output of a program, and its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    pub code: Option<i32>,
    pub out: String,
    pub error: String,
}

impl Session {
    /// Installs a Windows without drive Z:, so that no path leads to the Linux file system.
    pub async fn start() -> Result<Self> {
        off_the_runtime(|| {
            if let Some(missing) = prefix::missing() {
                return Err(Error::WineMissing(missing));
            }
            let directory = Guard::get()?.directory("session")?;
            let prefix = directory.path().join("wine");
            prefix::install(&prefix)?;
            prefix::write_registry(&prefix, "session", WINDOWS_2022)?;
            prefix::forget_server(&prefix)?;
            Ok(Self { prefix, _directory: directory })
        })
        .await
    }

    /// Writes a file below `C:\`; its path has slashes.
    pub fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        let file = self.drive().join(path);
        let directory = file.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(directory).when("make the directory", directory)?;
        fs::write(&file, content).when("write", &file)
    }

    /// The directory that is drive `C:`.
    pub fn drive(&self) -> PathBuf {
        self.prefix.join("drive_c")
    }

    /// Runs a program in `C:\` with these variables.
    pub fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Printed> {
        let mut command = prefix::in_wine(text(&self.prefix)?, prefix::WINE, arguments)?;
        command.current_dir(self.drive()).envs(variables.iter().copied()).stdin(Stdio::null());
        let output = command.output().map_err(|source| prefix::not_started(prefix::WINE, source))?;
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Printed { code: output.status.code(), out: printed(&output.stdout), error: printed(&output.stderr) })
    }

    /// Runs a program whose output nobody reads, and returns its exit code.
    pub fn run_without_reader(&self, arguments: &[&str]) -> Result<Option<i32>> {
        let mut command = prefix::in_wine(text(&self.prefix)?, prefix::WINE, arguments)?;
        command.current_dir(self.drive()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |source| prefix::not_started(prefix::WINE, source);
        let mut child = command.spawn().map_err(failed)?;
        drop(child.stdout.take());
        Ok(child.wait().map_err(failed)?.code())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Ok(prefix) = text(&self.prefix) {
            prefix::end(prefix);
        }
    }
}
