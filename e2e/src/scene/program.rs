//! The programs as processes.

use crate::error::{Error, FileContext, Result, text};
use crate::machine::guard::Guard;
use crate::machine::process::{Launch, Process, free_port};
use crate::machine::usage::Usage;
use crate::servers::api_server::ApiServer;
use crate::servers::requests::sample;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

/// The limit for any condition. A measured process may have much work.
const LIMIT: Duration = Duration::from_mins(5);

/// The interval between requests to an endpoint: short enough to measure milliseconds.
const INTERVAL: Duration = Duration::from_micros(500);

/// Starts `winpool-operator run` as the user of `kubeconfig`, with these arguments and a free port for its endpoints. Its log
/// is beside the kubeconfig.
pub async fn start_winpool(kubeconfig: &Path, arguments: &[&str]) -> Result<Process> {
    let program = operator_program().await?;
    let directory = kubeconfig.parent().unwrap_or(Path::new("/"));
    let arguments = ["run", "--listen", "127.0.0.1:0"].iter().chain(arguments).map(ToString::to_string).collect();
    let launch = Launch { name: "winpool", program: &program, arguments, directory, logs: directory };
    Process::start_in(launch, vec![("KUBECONFIG", text(kubeconfig)?.to_owned()), ("RUST_BACKTRACE", "1".to_owned())])
}

/// Builds the programs with the profile of the test, once, and returns the path of this one.
pub async fn program(name: &str) -> Result<PathBuf> {
    static PROGRAMS: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(PROGRAMS.get_or_try_init(build).await?.join(name))
}

/// The program of the operator.
pub async fn operator_program() -> Result<PathBuf> {
    program("winpool-operator").await
}

/// Cargo builds only the binaries of a test's own package, so these are built separately, with the profile of the test: the
/// test is `target/<profile>/deps/<name>-…`.
async fn build() -> Result<PathBuf> {
    let test = std::env::current_exe().map_err(|source| Error::NotStarted { program: "winpool".to_owned(), source })?;
    let directory = test.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned();
    let release = directory.file_name().is_some_and(|name| name == "release").then_some("--release");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(&cargo);
    // As the Makefile builds them, so that no dependency is compiled twice.
    command.args(["build", "--quiet", "--locked", "--workspace", "--examples"]).args(release);
    command.args(["--bin", "winpool", "--bin", "winpool-operator"]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let output = command.output().await.map_err(|source| Error::NotStarted { program: cargo, source })?;
    if output.status.success() {
        return Ok(directory);
    }
    Err(Error::ToolFailed {
        command: "cargo build --bin winpool --bin winpool-operator".to_owned(),
        status: output.status.to_string(),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Starts a process that ends with this one, and returns its id.
pub fn start_child(mut command: Command) -> Result<(Child, u32)> {
    let program = command.as_std().get_program().display().to_string();
    let started = command.process_group(Guard::get()?.process_group()).kill_on_drop(true).spawn();
    let child = started.map_err(|source| Error::NotStarted { program: program.clone(), source })?;
    match child.id() {
        Some(pid) => Ok((child, pid)),
        None => Err(Error::Died { program, status: "at once".to_owned(), tail: String::new() }),
    }
}

/// A running `winpool-operator run`.
pub struct Program {
    process: Child,
    pid: u32,
    address: SocketAddr,
    started: Instant,
}

impl Program {
    /// Starts it as an administrator. Its log is in the directory of the API server.
    pub fn start(program: &Path, server: &ApiServer) -> Result<Self> {
        Self::start_with(program, server, server.kubeconfig(), &[])
    }

    /// Starts it with this kubeconfig and these environment variables.
    pub fn start_with(
        program: &Path,
        server: &ApiServer,
        kubeconfig: &Path,
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let log = server.directory().join("winpool.log");
        let log = File::options().create(true).append(true).open(&log).when("write", &log)?;
        let mut command = Command::new(program);
        command.args(["run", "--listen", &address.to_string()]).env("KUBECONFIG", kubeconfig).stderr(log);
        command.envs(variables.iter().copied());
        let started = Instant::now();
        let (process, pid) = start_child(command)?;
        Ok(Self { process, pid, address, started })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the time from its start until this path answers 200.
    pub async fn answers(&self, path: &str) -> Result<Duration> {
        self.until(path, |_| true).await
    }

    /// Waits until it leads and has reconciled its pools once.
    pub async fn leads(&self) -> Result<()> {
        self.until("/metrics", |text| sample(text, "winpool_leader") == Some(1.0)).await?;
        Ok(())
    }

    /// Waits until this holds for the response of this path. Returns the time from its start.
    pub async fn until(&self, path: &str, holds: impl Fn(&str) -> bool) -> Result<Duration> {
        let (mut last, asked) = (String::new(), Instant::now());
        while asked.elapsed() < LIMIT {
            if let Some((code, body)) = self.get(path).await {
                if code == 200 && holds(&body) {
                    return Ok(self.started.elapsed());
                }
                last = body;
            }
            tokio::time::sleep(INTERVAL).await;
        }
        let (what, seen) = (format!("winpool answers {path} as it should"), format!("Its last answer: {last}"));
        Err(Error::Timeout { what, limit: LIMIT, seen })
    }

    /// Returns code and body of the response, or `None` while nothing answers.
    async fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: winpool\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// The CPU time and memory that it has used.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    /// Sends SIGTERM and waits for its end.
    pub async fn stop(mut self) -> Result<()> {
        let told = Command::new("kill").args(["-TERM", &self.pid.to_string()]).status().await;
        let status = match told {
            Ok(told) if told.success() => match tokio::time::timeout(LIMIT, self.process.wait()).await {
                Ok(Ok(ended)) if ended.success() => return Ok(()),
                Ok(ended) => ended.as_ref().map_or_else(ToString::to_string, ExitStatus::to_string),
                Err(_) => "told to end, and still running".to_owned(),
            },
            Ok(_) => "before it was told to".to_owned(),
            Err(source) => return Err(Error::NotStarted { program: "kill".to_owned(), source }),
        };
        Err(Error::Died { program: "winpool".to_owned(), status, tail: String::new() })
    }
}
