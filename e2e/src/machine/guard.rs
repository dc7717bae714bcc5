//! Ends all children and removes all files when this process ends.
//!
//! Drop handlers are not enough: statics are never dropped, and a killed test binary drops nothing. So each process
//! has one shell, the guard, that reads a pipe which only this process holds open. When the process ends in any way,
//! the pipe closes. The guard then ends its process group, which all children belong to, and removes the directory in
//! which they all live. `PR_SET_PDEATHSIG` would only do the first half, needs a separate program without unsafe code,
//! and fires when the *thread* that started the child ends, which is too early for a test.

use crate::error::{Error, FileContext, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

/// The guard ignores TERM, because it is a member of the group that it ends and still has to remove a directory.
/// Wine's processes leave the group; they are found by their environment. Each thread is checked: the first one may
/// have ended, and then the process seems to have no environment. A process may write while the directory is being
/// removed, hence several attempts. `-s`, because dash accepts no process group after `kill -TERM`.
const SCRIPT: &str = r#"
cat >/dev/null
trap '' TERM
kill -s TERM -- -$$
for file in $(grep -lszF "WINEPREFIX=$1/" /proc/[0-9]*/task/[0-9]*/environ); do
    pid=${file#/proc/}
    kill -s KILL "${pid%%/*}"
done
for try in 1 2 3 4 5; do rm -rf -- "$1" 2>/dev/null && break; sleep 0.1; done
kill -s KILL -- -$$
"#;

pub(crate) struct Guard {
    /// Its standard input is the pipe. It is never waited for.
    shell: Child,
    root: PathBuf,
}

static GUARD: OnceLock<std::result::Result<Guard, (PathBuf, std::io::ErrorKind)>> = OnceLock::new();

impl Guard {
    /// The guard of this process, started at first use.
    pub(crate) fn get() -> Result<&'static Self> {
        let guard = GUARD.get_or_init(|| Self::start().map_err(|error| (std::env::temp_dir(), error.kind())));
        guard.as_ref().map_err(|(path, kind)| Error::File {
            action: "set up a temporary directory and its guard in",
            path: path.clone(),
            source: (*kind).into(),
        })
    }

    fn start() -> std::io::Result<Self> {
        let root = tempfile::Builder::new().prefix("winpool-e2e-").tempdir()?;
        let shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "winpool-e2e-guard"])
            .arg(root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { shell, root: root.keep() })
    }

    pub(crate) fn process_group(&self) -> i32 {
        self.shell.id().cast_signed()
    }

    /// A new, empty directory. It is removed when it is dropped, and at the latest when this process ends.
    pub(crate) fn directory(&self, purpose: &str) -> Result<Directory> {
        let directory = tempfile::Builder::new()
            .prefix(&format!("{purpose}-"))
            .tempdir_in(&self.root)
            .when("make a directory in", &self.root)?;
        Ok(Directory(directory))
    }
}

/// A temporary directory with logs. If a test panics, it prints the ends of the logs and keeps the files.
pub(crate) struct Directory(TempDir);

impl Directory {
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    fn show_logs(&self) {
        let Ok(entries) = std::fs::read_dir(self.path()) else {
            return;
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "log") {
                eprintln!("--- {}\n{}", path.display(), tail(&path, 15));
            }
        }
    }

    /// Moves the directory away from the guard.
    fn keep(&self) -> std::io::Result<PathBuf> {
        let kept = tempfile::Builder::new().prefix("winpool-e2e-failed-").tempdir()?.keep();
        std::fs::rename(self.path(), &kept)?;
        Ok(kept)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.show_logs();
        match self.keep() {
            Ok(kept) => eprintln!("--- the logs are kept in {}", kept.display()),
            Err(error) => eprintln!("--- the logs could not be kept: {error}"),
        }
    }
}

pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all_lines: Vec<&str> = text.lines().collect();
    all_lines[all_lines.len().saturating_sub(lines)..].join("\n")
}
