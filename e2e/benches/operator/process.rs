//! Processes of their own, so that processor time and memory are theirs alone.

use crate::Result;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use winpool_e2e::{ApiServer, Usage, start_child};

/// The first argument of this program when it is one of its own children.
pub const CHILD: &str = "child";

/// Whatever takes longer than this is broken.
const LIMIT: Duration = Duration::from_mins(5);

/// A child of this program that does one bare thing: see [`crate::children`]. It tells in lines how far it is.
pub struct Bare {
    process: Child,
    pid: u32,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Bare {
    /// Starts it beside this API server.
    pub fn start(arguments: &[&str], server: &ApiServer) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).args(arguments).env("KUBECONFIG", server.kubeconfig());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let (mut process, pid) = start_child(command)?;
        let (input, output) = process.stdin.take().zip(process.stdout.take()).ok_or("no pipes")?;
        Ok(Self { process, pid, input, output: BufReader::new(output).lines() })
    }

    /// Waits for its next line.
    pub async fn says(&mut self, word: &str) -> Result<()> {
        let line = tokio::time::timeout(LIMIT, self.output.next_line()).await??;
        if line.as_deref() == Some(word) { Ok(()) } else { Err(format!("a child says {line:?}, not {word}").into()) }
    }

    /// Lets it begin.
    pub async fn go(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"go\n").await?)
    }

    /// What it has used so far.
    pub fn usage(&self) -> Result<Usage> {
        Ok(Usage::of(self.pid)?)
    }

    /// Ends it.
    pub async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

/// Starts a child of this program that works without an API server, and returns what it prints: JSON.
pub async fn print(arguments: &[&str], kubeconfig: Option<&Path>) -> Result<Value> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(CHILD).args(arguments).kill_on_drop(true);
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let output = command.stderr(Stdio::inherit()).output().await?;
    if !output.status.success() {
        return Err(format!("the child {arguments:?} ended with {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
