//! Processes of their own, so that processor time and memory are theirs alone.

use crate::Result;
use crate::requests::sample;
use serde_json::Value;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use winpool_e2e::ApiServer;

/// The first argument of this program when it is one of its own children.
pub const CHILD: &str = "child";

/// Whatever takes longer than this is broken.
const LIMIT: Duration = Duration::from_mins(5);

/// How often an endpoint is asked: often enough to measure milliseconds by.
const INTERVAL: Duration = Duration::from_micros(500);

/// What a process has used so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Processor time, of users and of the system.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_mb: f64,
    /// The most that it ever was.
    pub peak_mb: f64,
}

impl Usage {
    /// Of this process.
    pub fn of(pid: u32) -> Result<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the name in parentheses; after it come state, parent, …, utime (14th), stime (15th).
        let fields: Vec<&str> =
            stat.rsplit_once(')').ok_or("unreadable /proc/PID/stat")?.1.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let megabytes = |key: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).ok_or("unreadable /proc/PID/status")?;
            Ok(line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<f64>()? * 1024.0 / 1e6)
        };
        // Linux counts in hundredths of a second here (USER_HZ), whatever its own clock does.
        Ok(Self { cpu_seconds: ticks / 100.0, resident_mb: megabytes("VmRSS:")?, peak_mb: megabytes("VmHWM:")? })
    }

    /// Of this very process.
    pub fn own() -> Result<Self> {
        Self::of(std::process::id())
    }
}

/// The operator, as the release program.
pub struct Operator {
    process: Child,
    pid: u32,
    address: SocketAddr,
    started: Instant,
}

impl Operator {
    /// Starts it with the rights of an administrator. Its log lies beside those of the API server.
    pub fn start(program: &Path, server: &ApiServer) -> Result<Self> {
        Self::start_with(program, server, server.kubeconfig())
    }

    /// Starts it as whoever this kubeconfig says.
    pub fn start_with(program: &Path, server: &ApiServer, kubeconfig: &Path) -> Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = File::options().create(true).append(true).open(server.folder().join("winpool.log"))?;
        let mut command = Command::new(program);
        command.args(["run", "--listen", &address.to_string()]).env("KUBECONFIG", kubeconfig).stderr(log);
        let started = Instant::now();
        let (process, pid) = spawn(command, server)?;
        Ok(Self { process, pid, address, started })
    }

    /// Its process id.
    #[allow(dead_code, reason = "shared with the long run, which stops it")]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How long it took until this path answered 200.
    pub async fn answers(&self, path: &str) -> Result<Duration> {
        self.until(path, |_| true).await
    }

    /// Waits until it leads and has looked at its pools for the first time.
    pub async fn leads(&self) -> Result<()> {
        self.until("/metrics", |text| sample(text, "winpool_leader") == Some(1.0)).await?;
        Ok(())
    }

    /// Waits until its metrics are like this; tells when that was, counted from its start.
    pub async fn until(&self, path: &str, holds: impl Fn(&str) -> bool) -> Result<Duration> {
        let (mut last, asked) = (String::new(), Instant::now());
        while asked.elapsed() < LIMIT {
            if let Ok((code, body)) = self.get(path).await {
                if code == 200 && holds(&body) {
                    return Ok(self.started.elapsed());
                }
                last = body;
            }
            tokio::time::sleep(INTERVAL).await;
        }
        Err(format!("winpool does not answer {path} as it should; its last answer: {last}").into())
    }

    async fn get(&self, path: &str) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: winpool\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP")?;
        Ok((head.split(' ').nth(1).ok_or("no HTTP")?.parse()?, body.to_owned()))
    }

    /// What it has used so far.
    pub fn usage(&self) -> Result<Usage> {
        Usage::of(self.pid)
    }

    /// Tells it to end, as Kubernetes would, and waits until it has.
    pub async fn stop(mut self) -> Result<()> {
        let told = Command::new("kill").args(["-TERM", &self.pid.to_string()]).status().await?;
        let ended = tokio::time::timeout(LIMIT, self.process.wait()).await??;
        if told.success() && ended.success() { Ok(()) } else { Err(format!("winpool ended with {ended}").into()) }
    }
}

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
        let (mut process, pid) = spawn(command, server)?;
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
        Usage::of(self.pid)
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

/// In the process group of the API server, whose guard ends it if this program cannot.
fn spawn(mut command: Command, server: &ApiServer) -> Result<(Child, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.process().pid()))?;
    let group = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_whitespace().nth(2));
    let group: i32 = group.ok_or("unreadable /proc/PID/stat")?.parse()?;
    let process = command.process_group(group).kill_on_drop(true).spawn()?;
    let pid = process.id().ok_or("ended at once")?;
    Ok((process, pid))
}
