//! A process of the control plane, with its log.

use crate::error::{Error, FileContext, Result};
use crate::machine::guard::{Guard, tail};
use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The limit until a process answers. Starting takes seconds, more on a busy machine.
const START_LIMIT: Duration = Duration::from_mins(3);

const PORTS_TO_TRY: usize = 5;

/// A running process, killed when this is dropped.
///
/// It belongs to no async runtime, so a server may outlive the test that started it.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    directory: PathBuf,
    environment: Vec<(&'static str, String)>,
    child: Mutex<Child>,
    log: PathBuf,
}

pub(crate) struct Launch<'a> {
    pub name: &'static str,
    pub program: &'a Path,
    pub arguments: Vec<String>,
    pub directory: &'a Path,
    /// The directory of `<name>.log`.
    pub logs: &'a Path,
}

impl Process {
    /// Starts the process. The caller has to check that it works.
    pub(crate) fn start(launch: Launch<'_>) -> Result<Self> {
        Self::start_in(launch, Vec::new())
    }

    /// Like [`Self::start`], with these environment variables.
    pub(crate) fn start_in(launch: Launch<'_>, environment: Vec<(&'static str, String)>) -> Result<Self> {
        let log = launch.logs.join(format!("{}.log", launch.name));
        let output = File::create(&log).when("write", &log)?;
        let child = spawn(launch.program, &launch.arguments, launch.directory, &environment, output)?;
        Ok(Self {
            name: launch.name,
            program: launch.program.to_owned(),
            arguments: launch.arguments,
            directory: launch.directory.to_owned(),
            environment,
            child: Mutex::new(child),
            log,
        })
    }

    /// Kills the process (SIGKILL) and starts it again with the same arguments. It appends to its log.
    pub fn start_again(&self) -> Result<()> {
        self.kill();
        let output = File::options().append(true).open(&self.log).when("write", &self.log)?;
        *self.child() = spawn(&self.program, &self.arguments, &self.directory, &self.environment, output)?;
        Ok(())
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub fn kill(&self) {
        let mut child = self.child();
        // An error means that it has ended already.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Stops it (SIGSTOP): its connections stay open, and it does not answer.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Continues it (SIGCONT).
    pub fn go_on(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").args(["-s", signal, &self.pid().to_string()]).status();
        let status = status.map_err(|source| Error::NotStarted { program: "kill".to_owned(), source })?;
        if status.success() { Ok(()) } else { self.check() }
    }

    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Fails with the end of the log if the process has ended.
    pub fn check(&self) -> Result<()> {
        let status = match self.child().try_wait() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        Err(Error::Died { program: self.name.to_owned(), status, tail: tail(&self.log, 20) })
    }

    /// Waits until `ready` returns true; fails at once if the process ends instead.
    pub(crate) async fn until(&self, mut ready: impl AsyncFnMut() -> bool) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while !ready().await {
            self.check()?;
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: format!("{} answers", self.name),
                    limit: START_LIMIT,
                    seen: format!("The end of its log:\n{}", tail(&self.log, 20)),
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Another process may have answered on the port that this one did not get.
        self.check()
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(
    program: &Path,
    arguments: &[String],
    directory: &Path,
    environment: &[(&'static str, String)],
    output: File,
) -> Result<Child> {
    let errors = output.try_clone().when("write the log of", program)?;
    Command::new(program)
        .args(arguments)
        .current_dir(directory)
        // The user's proxies, feature gates and home directories must not affect the control plane.
        .env_clear()
        .env("HOME", directory)
        // A tenth of the CPU time of API servers is garbage collection otherwise.
        .env("GOGC", "200")
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .process_group(Guard::get()?.process_group())
        .spawn()
        .map_err(|source| Error::NotStarted { program: program.display().to_string(), source })
}

/// Starts a server on a free port of 127.0.0.1 and waits until it is ready.
///
/// Another process may take the port between the search and its use. Only that causes another attempt.
pub(crate) async fn start_on_free_port(
    launch: impl Fn(u16) -> Result<Process>,
    ready: impl AsyncFn(u16) -> bool,
) -> Result<(Process, u16)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let port = free_port()?;
        let process = launch(port)?;
        match process.until(async || ready(port).await).await {
            Ok(()) => return Ok((process, port)),
            Err(Error::Died { tail, .. }) if tries < PORTS_TO_TRY && tail.contains("address already in use") => {}
            Err(error) => return Err(error),
        }
    }
}

/// A port that is free now and that this process has not given out before, so that two servers that start at the same
/// time never get the same one.
pub fn free_port() -> Result<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let port = bound.map_err(Error::Port)?.port();
        let mut given = GIVEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if given.insert(port) {
            return Ok(port);
        }
    }
}
