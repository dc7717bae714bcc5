//! `winpool run` as a process, beside a real API server.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use winpool_core::api::{WindowsPool, WindowsPoolSpec, crd};
use winpool_e2e::{ApiServer, LIMIT, SimulatedNode, lend, wait_for};

#[path = "run/container.rs"]
mod container;

#[tokio::test]
async fn it_is_ready_once_pools_are_defined_counts_nodes_without_naming_them_and_ends_when_told_to() {
    let server = lend().await.unwrap();
    let client = server.client();
    for name in ["zebra-a", "zebra-b"] {
        SimulatedNode::windows("10.0.20348.2655").name(name).join(&client).await.unwrap();
    }
    let unreadable = SimulatedNode::windows("unreadable").name("zebra-c");
    unreadable.join(&client).await.unwrap();
    let mut program = Program::start(&server);
    program.answers("/healthz", "is healthy", |code, body| code == 200 && body == "ok").await;
    let (code, body) = program.get("/readyz").unwrap();
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("caches of nodes, pools and RuntimeClasses are not filled yet"), "{body}");

    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &crd()).await.unwrap();
    program.answers("/readyz", "is ready", |code, body| code == 200 && body == "ok").await;

    let pools: Api<WindowsPool> = Api::all(client.clone());
    let pool = WindowsPool::new("default", WindowsPoolSpec::default());
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let converged = r#"winpool_nodes{pool="default",build="10.0.20348",state="converged"}"#;
    let writes = r#"winpool_node_writes_total{operation="patch",result="ok"}"#;
    let counted = |body: &str| sample(body, converged) == Some(2.0) && sample(body, writes) == Some(3.0);
    let text = program.answers("/metrics", "counts two nodes and three writes", |_, body| counted(body)).await;
    assert_eq!(sample(&text, r#"winpool_nodes{pool="default",build="unknown",state="blocked"}"#), Some(1.0));
    assert_eq!(sample(&text, r#"winpool_runtimeclass_writes_total{operation="create",result="ok"}"#), Some(1.0));
    assert_eq!(sample(&text, r#"winpool_runtimeclasses{pool="default",state="Applied"}"#), Some(1.0));
    assert!(sample(&text, "process_resident_memory_bytes").is_some_and(|bytes| bytes > 1e6));
    is_open_metrics(&text);
    assert!(!text.contains("zebra"), "a label names a node:\n{text}");

    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    nodes.delete("zebra-a", &DeleteParams::default()).await.unwrap();
    program.answers("/metrics", "counts one node", |_, body| sample(body, converged) == Some(1.0)).await;

    let told = Instant::now();
    let status = program.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
}

#[tokio::test]
async fn an_address_that_is_taken_ends_it_with_a_message_that_tells_what_to_do() {
    let server = lend().await.unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = command(&server, address).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(&format!("cannot listen on {address}; choose another address with --listen")), "{errors}");
}

/// The program, ended at the latest when this is dropped.
struct Program {
    process: Child,
    address: SocketAddr,
}

impl Program {
    /// Its log lies beside those of the API server, which are kept when a test fails.
    fn start(server: &ApiServer) -> Self {
        Self::spawn(server, |address| command(server, address))
    }

    fn spawn(server: &ApiServer, command: impl FnOnce(SocketAddr) -> Command) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let log = File::create(server.folder().join("winpool.log")).unwrap();
        let process = command(address).stderr(log).spawn().expect("the program starts");
        Self { process, address }
    }

    /// Code and body of an answer; `None` while nobody answers.
    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: winpool\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, body.to_owned()))
    }

    /// Waits until the answer is as it should be, and returns its body.
    async fn answers(&mut self, path: &str, what: &str, holds: impl Fn(u16, &str) -> bool) -> String {
        let mut last = None;
        let result = wait_for(&format!("winpool {what}"), LIMIT, async || {
            assert_eq!(self.process.try_wait().unwrap(), None, "it has ended");
            last = self.get(path);
            Ok(last.clone().filter(|(code, body)| holds(*code, body)))
        })
        .await;
        result.unwrap_or_else(|error| panic!("{error}; last answer: {last:?}")).1
    }

    fn terminate(&mut self) -> ExitStatus {
        let killed = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status().unwrap();
        assert!(killed.success());
        self.process.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(server: &ApiServer, address: SocketAddr) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(["run", "--listen", &address.to_string()]).env("KUBECONFIG", server.kubeconfig());
    command
}

/// The value of the sample with this name and these labels.
fn sample(metrics: &str, name: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Each line is a comment that the format knows or a sample with a number, and the last one says that it is the last.
fn is_open_metrics(text: &str) {
    for line in text.lines() {
        let comment = ["# HELP ", "# TYPE ", "# UNIT "].iter().any(|start| line.starts_with(start)) || line == "# EOF";
        let number = || line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
        assert!(comment || number(), "{line}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
}
