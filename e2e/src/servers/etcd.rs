//! The store of the API servers. One etcd serves many of them, each with its own key prefix.

use crate::error::{FileContext, Result, text};
use crate::machine::assets::Component;
use crate::machine::guard::{Directory, Guard};
use crate::machine::process::{Launch, Process};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The address of etcd: a socket in its directory, which is also the working directory of its clients. So it needs no
/// free port, and no other user of the machine can reach it. etcd requires a port in the name and ignores it.
pub(crate) const ENDPOINT: &str = "unix://etcd.sock:0";
const SOCKET: &str = "etcd.sock:0";
/// The directory of its data, and that of their copy.
const DATA: &str = "data";
const BACKUP: &str = "backup";

/// A running etcd with empty data, stopped when this is dropped.
pub struct Etcd {
    process: Process,
    directory: Directory,
}

impl Etcd {
    /// Starts etcd and waits until it is healthy.
    pub async fn start() -> Result<Self> {
        let program = Component::Etcd.path().await?;
        let directory = Guard::get()?.directory("etcd")?;
        let nowhere = "http://127.0.0.1:0";
        let data = directory.path().join(DATA);
        let arguments = [
            format!("--data-dir={}", text(&data)?),
            // A test's data need not survive a power failure.
            "--unsafe-no-fsync".to_owned(),
            format!("--listen-client-urls={ENDPOINT}"),
            format!("--advertise-client-urls={nowhere}"),
            "--listen-peer-urls=unix://peer.sock:0".to_owned(),
            format!("--initial-advertise-peer-urls={nowhere}"),
            "--name=winpool-e2e".to_owned(),
            format!("--initial-cluster=winpool-e2e={nowhere}"),
            "--log-level=warn".to_owned(),
        ];
        let process = Process::start(Launch {
            name: "etcd",
            program: &program,
            arguments: arguments.into(),
            directory: directory.path(),
            logs: directory.path(),
        })?;
        let etcd = Self { process, directory };
        etcd.until_healthy().await?;
        Ok(etcd)
    }

    /// Ends etcd with SIGKILL, starts it again on its data, and waits until it is healthy.
    pub async fn restart(&self) -> Result<()> {
        self.process.start_again()?;
        self.until_healthy().await
    }

    /// Copies the data, while etcd is stopped (SIGSTOP).
    pub fn back_up(&self) -> Result<()> {
        self.process.pause()?;
        let copied = self.copy(DATA, BACKUP);
        self.process.go_on()?;
        copied
    }

    /// Ends etcd with SIGKILL, starts it again on the copied data, and waits until it is healthy. Its revisions are
    /// those of the backup.
    pub async fn restore(&self) -> Result<()> {
        self.process.kill();
        let data = self.directory().join(DATA);
        std::fs::remove_dir_all(&data).when("remove", &data)?;
        self.copy(BACKUP, DATA)?;
        self.restart().await
    }

    /// Copies a directory in etcd's own.
    fn copy(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.directory().join(from), self.directory().join(to));
        let copied = Command::new("cp").arg("-r").args([&from, &to]).status().when("copy", &from)?;
        if copied.success() { Ok(()) } else { Err(io::Error::other("cp failed")).when("copy", &from) }
    }

    async fn until_healthy(&self) -> Result<()> {
        let socket = self.directory.path().join(SOCKET);
        self.process.until(async || is_healthy(&socket).unwrap_or(false)).await
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The directory with its socket and its data.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

/// Sends one plain HTTP request. A client library would be most of the crate.
fn is_healthy(socket: &Path) -> io::Result<bool> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    stream.write_all(b"GET /health HTTP/1.0\r\nHost: etcd\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.contains(r#""health":"true""#))
}
