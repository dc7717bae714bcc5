//! What the demo plays with, and what `cluster` leaves for playing: nodes, the operator, its kind and a pool.

use crate::{Cluster, Error, LIMIT, Result, SimulatedNode, WINDOWS_BUILD, manifests, wait_for};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::{Api, Config};
use std::fmt::Write;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;
use winpool::Options;
use winpool_core::api::{WindowsPool, crd, names::condition::READY};

/// The node that joins without its `windows-build` label.
pub const UNLABELLED: &str = "win-2019-a";

/// Two Linux nodes and one of each Windows Server since 2019 join and get ready.
///
/// # Errors
/// When a node cannot join, or does not get ready.
pub async fn nodes_join(cluster: &Cluster) -> Result<()> {
    let nodes = [
        SimulatedNode::linux().name("linux-a"),
        SimulatedNode::linux().name("linux-b"),
        SimulatedNode::windows("10.0.17763.6659").name(UNLABELLED).without_label(WINDOWS_BUILD),
        SimulatedNode::windows("10.0.20348.2655").name("win-2022-a"),
        SimulatedNode::windows("10.0.26100.4061").name("win-2025-a"),
    ];
    let mut names = Vec::new();
    for node in nodes {
        names.push(node.join(&cluster.client()).await?.name().to_owned());
    }
    for name in names {
        cluster.node_ready(&name).await?;
    }
    Ok(())
}

/// Installs the CustomResourceDefinition and waits until pools are served.
///
/// # Errors
/// When the API server refuses it, or does not get there in time.
pub async fn install_crd(cluster: &Cluster) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    definitions.create(&PostParams::default(), &crd()).await?;
    let pools: Api<WindowsPool> = Api::all(cluster.client());
    // Until then lists are refused in more than one way.
    let served = async || Ok(pools.list(&ListParams::default()).await.ok());
    cluster.wait_for("WindowsPools are served", served).await?;
    Ok(())
}

/// Applies the pool of the examples, which is empty, and waits until it is Ready.
///
/// # Errors
/// When it is refused, or does not get Ready in time; then with what its conditions say.
pub async fn pool_gets_ready(cluster: &Cluster) -> Result<WindowsPool> {
    manifests::apply(&cluster.client(), &manifests::example("windowspool.yaml")?).await?;
    let pools: Api<WindowsPool> = Api::all(cluster.client());
    let mut last = String::new();
    let ready = wait_for("WindowsPool default is Ready", LIMIT, async || {
        let pool = pools.get("default").await?;
        last = conditions(&pool);
        Ok(Some(pool).filter(is_ready))
    });
    ready.await.map_err(|error| match error {
        Error::Timeout { what, limit, .. } => Error::Timeout { what, limit, seen: last },
        other => other,
    })
}

fn is_ready(pool: &WindowsPool) -> bool {
    pool.status.as_ref().is_some_and(|status| {
        status.observed_generation == pool.metadata.generation
            && status.conditions.iter().any(|condition| condition.type_ == READY && condition.status == "True")
    })
}

fn conditions(pool: &WindowsPool) -> String {
    let all = pool.status.iter().flat_map(|status| &status.conditions);
    all.fold("It says:".to_owned(), |mut text, condition| {
        // Writing to a String does not fail.
        let _ = write!(text, "\n{}={}: {}", condition.type_, condition.status, condition.message);
        text
    })
}

/// The operator, running in this process.
///
/// Without a logger it runs in silence; see [`winpool::telemetry`].
pub struct Operator {
    stop: CancellationToken,
    task: JoinHandle<std::result::Result<(), winpool::Error>>,
}

impl Operator {
    /// Starts it with the rights that `config` gives it.
    #[must_use]
    pub fn start(config: Config) -> Self {
        let stop = CancellationToken::new();
        let options = Options { leader_election: false, ..Options::default() };
        let task = tokio::spawn(winpool::run(config, options, stop.clone()));
        Self { stop, task }
    }

    /// Waits for the end that should not come: says why it ended by itself.
    pub async fn ended(&mut self) -> Error {
        match result_of((&mut self.task).await) {
            Ok(()) => Error::OperatorEnded("nobody had told it to".to_owned()),
            Err(error) => error,
        }
    }

    /// Tells it to stop and waits until it has.
    ///
    /// # Errors
    /// When it ends with an error.
    pub async fn stop(self) -> Result<()> {
        self.stop.cancel();
        result_of(self.task.await)
    }
}

fn result_of(end: std::result::Result<std::result::Result<(), winpool::Error>, JoinError>) -> Result<()> {
    match end {
        Ok(result) => Ok(result?),
        Err(panic) => Err(Error::OperatorEnded(panic.to_string())),
    }
}
