//! Prometheus and promtool.

use crate::error::{Error, FileContext, Result, text};
use crate::machine::assets::Component;
use crate::machine::guard::{Directory, Guard};
use crate::machine::process::{Launch, Process, start_on_free_port};
use crate::network::kubeconfig::answers;
use kube::{Client, Config};
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

/// A running Prometheus, stopped when this is dropped.
pub struct Prometheus {
    _process: Process,
    client: Client,
    _directory: Directory,
}

impl Prometheus {
    /// Starts it: it scrapes `targets` as job `winpool` each second, and evaluates the rule groups of `rules`.
    pub async fn start(targets: &[SocketAddr], rules: &Value) -> Result<Self> {
        let program = Component::Prometheus.path().await?;
        let directory = Guard::get()?.directory("prometheus")?;
        let configuration = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "winpool", "static_configs": [{"targets": targets}]}],
        });
        // YAML may be written as JSON.
        write(&directory.path().join("prometheus.yml"), &configuration)?;
        write(&directory.path().join("rules.yml"), rules)?;
        let launch = |port| {
            Process::start(Launch {
                name: Component::Prometheus.name(),
                program: &program,
                arguments: vec![
                    "--config.file=prometheus.yml".to_owned(),
                    "--storage.tsdb.path=data".to_owned(),
                    format!("--web.listen-address=127.0.0.1:{port}"),
                ],
                directory: directory.path(),
                logs: directory.path(),
            })
        };
        // A plain client of the same library.
        let ready = async |port| answers(client(port), "/-/ready").await;
        let (process, port) = start_on_free_port(launch, ready).await?;
        Ok(Self { _process: process, client: client(port)?, _directory: directory })
    }

    /// Returns the labels and value of each series that the query finds now.
    pub async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let answer = self.get(&format!("/api/v1/query?query={query}")).await?;
        Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// The answer of its HTTP API, as JSON.
    pub async fn get(&self, path: &str) -> Result<Value> {
        Ok(self.client.request(http::Request::get(path).body(Vec::new())?).await?)
    }
}

fn client(port: u16) -> Result<Client> {
    let url = http::Uri::try_from(format!("http://127.0.0.1:{port}")).map_err(http::Error::from)?;
    Ok(Client::try_from(Config::new(url))?)
}

fn write(path: &Path, content: &Value) -> Result<()> {
    fs::write(path, content.to_string()).when("write", path)
}

/// Runs promtool in `directory`, with this as its standard input.
pub async fn promtool(arguments: &[&str], directory: &Path, input: &str) -> Result<Output> {
    let program = Component::Promtool.path().await?;
    let stdin = directory.join("promtool.stdin");
    fs::write(&stdin, input).when("write", &stdin)?;
    let file = fs::File::open(&stdin).when("read", &stdin)?;
    let mut command = Command::new(&program);
    let output = command.args(arguments).current_dir(directory).stdin(file).output();
    output.map_err(|source| Error::NotStarted { program: text(&program).unwrap_or("promtool").to_owned(), source })
}
