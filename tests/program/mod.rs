//! The binary, run as users run it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use winpool_e2e::machine::process::free_port;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::requests::sample;

/// A process, killed at the latest when this is dropped.
pub struct Program {
    process: Child,
    address: SocketAddr,
    log: PathBuf,
}

impl Program {
    /// With the permissions of an administrator.
    pub fn start(server: &ApiServer) -> Self {
        Self::start_with(server, server.kubeconfig())
    }

    /// As this user, so that the audit log tells processes apart.
    pub fn start_as(server: &ApiServer, user: &str) -> Self {
        let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(server.kubeconfig()).unwrap()).unwrap();
        let credentials = kubeconfig["users"][0]["user"].as_object_mut().unwrap();
        credentials.extend([("as".to_owned(), json!(user)), ("as-groups".to_owned(), json!(["system:masters"]))]);
        let file = server.directory().join(format!("kubeconfig-{user}"));
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        Self::start_with(server, &file)
    }

    fn start_with(server: &ApiServer, kubeconfig: &Path) -> Self {
        Self::spawn(server, |address| command(kubeconfig, address))
    }

    /// Its log is beside those of the API server, which are kept when a test fails.
    pub fn spawn(server: &ApiServer, command: impl FnOnce(SocketAddr) -> Command) -> Self {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port().unwrap()));
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let log = server.directory().join(format!("winpool-{number}.log"));
        let stderr = File::create(&log).unwrap();
        let mut command = command(address);
        let process = command.env("WINPOOL_LOG_FORMAT", "json").stderr(stderr).spawn().expect("the program starts");
        Self { process, address, log }
    }

    /// Its log, with a JSON object on each line.
    pub fn log_lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        text.lines().map(parse).collect()
    }

    /// Its log in any format.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Code and body of the answer; `None` while nothing answers.
    pub fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: winpool\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, body.to_owned()))
    }

    /// Waits until the answer is the expected one, and returns its body.
    pub async fn answers(&mut self, path: &str, what: &str, holds: impl Fn(u16, &str) -> bool) -> String {
        let mut last = None;
        let result = wait_for(&format!("winpool {what}"), LIMIT, async || {
            assert_eq!(self.process.try_wait().unwrap(), None, "it has ended");
            last = self.get(path);
            Ok(last.clone().filter(|(code, body)| holds(*code, body)))
        })
        .await;
        result.unwrap_or_else(|error| panic!("{error}; last answer: {last:?}")).1
    }

    /// Waits until it leads, or is a standby.
    pub async fn leads(&mut self, leads: bool) {
        let wanted = Some(if leads { 1.0 } else { 0.0 });
        let what = if leads { "leads" } else { "is a standby" };
        self.answers("/metrics", what, |_, body| sample(body, "winpool_leader") == wanted).await;
    }

    /// Sends SIGTERM, as Kubernetes does.
    pub fn tell_to_end(&self) {
        let killed = Command::new("kill").args(["-TERM", &self.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Sends SIGTERM, and waits for the end.
    pub fn terminate(&mut self) -> ExitStatus {
        self.tell_to_end();
        self.process.wait().unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub async fn ended(&mut self) -> ExitStatus {
        wait_for("winpool ends", LIMIT, async || Ok(self.process.try_wait().unwrap())).await.unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// `winpool-operator run` with its endpoints at this address.
pub fn command(kubeconfig: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool-operator"));
    command.args(["run", "--listen", &address.to_string()]).env("KUBECONFIG", kubeconfig);
    command
}
