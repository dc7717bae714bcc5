//! Nodes, the operator, its CRD and a pool: for the demo, the guides and `cluster`.

pub mod manifests;
pub mod program;

use std::fmt::Write;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Config};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use winpool_core::api::WindowsPool;
use winpool_core::api::names::condition::READY;
use winpool_operator::Options;

use crate::error::{Error, Result};
use crate::machine::wait::{LIMIT, wait_for};
use crate::nodes::simulated::{SimulatedNode, WINDOWS_BUILD};
use crate::servers::cluster::Cluster;
use crate::servers::definitions::define;
use crate::wine::machine::Machine;
use crate::wine::windows::{WINDOWS_2019, WINDOWS_2022, WINDOWS_2025};

/// The node that joins without its `windows-build` label.
pub const UNLABELLED: &str = "win-2019-a";

/// A node of each Windows Server since 2019, as in the guides.
pub fn windows_servers() -> Vec<SimulatedNode> {
    let node = |name: &str, version| SimulatedNode::windows(version).name(name);
    // After an upgrade in place this containerd runs images of 2022 on 2025.
    let of_2022 = node("win-2022", "10.0.20348.2655").container_runtime("containerd://1.7.27+azure");
    vec![node("win-2019", "10.0.17763.6659"), of_2022, node("win-2025", "10.0.26100.4061")]
}

/// The nodes of the demo: 2 Linux nodes, and one of each Windows Server.
pub fn nodes() -> [SimulatedNode; 5] {
    [
        SimulatedNode::linux().name("linux-a"),
        SimulatedNode::linux().name("linux-b"),
        SimulatedNode::server_2019(UNLABELLED).without_label(WINDOWS_BUILD),
        SimulatedNode::server_2022("win-2022-a"),
        SimulatedNode::server_2025("win-2025-a"),
    ]
}

/// Registers the same real kubelets on the Windows nodes. They run until the returned machines are dropped.
pub async fn machines_join(cluster: &Cluster) -> Result<Vec<Machine>> {
    join(cluster, [SimulatedNode::linux().name("linux-a"), SimulatedNode::linux().name("linux-b")]).await?;
    let mut machines = Vec::new();
    for (name, windows) in [(UNLABELLED, WINDOWS_2019), ("win-2022-a", WINDOWS_2022), ("win-2025-a", WINDOWS_2025)] {
        machines.push(Machine::start(cluster.api_server(), name, windows, &[]).await?);
    }
    for machine in &machines {
        cluster.node_ready(machine.name()).await?;
    }
    // As a kubelet before 1.17 registers it. Later ones restore the label only when they start.
    let unlabel = Patch::Merge(json!({"metadata": {"labels": {WINDOWS_BUILD: null}}}));
    Api::<Node>::all(cluster.client()).patch(UNLABELLED, &PatchParams::default(), &unlabel).await?;
    Ok(machines)
}

/// Joins these nodes, and waits until they are Ready.
pub async fn join(cluster: &Cluster, nodes: impl IntoIterator<Item = SimulatedNode>) -> Result<()> {
    let mut names = Vec::new();
    for node in nodes {
        names.push(node.join(&cluster.client()).await?.name().to_owned());
    }
    for name in names {
        cluster.node_ready(&name).await?;
    }
    Ok(())
}

/// Installs the CRD of WindowsPools and waits until the API server serves them.
pub async fn install_crd(client: &Client) -> Result<()> {
    define(client, &manifests::crd()?).await
}

/// Applies the pool of the examples, which is empty, and waits until it is Ready.
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
    let conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.fold("It says:".to_owned(), |mut text, condition| {
        // Writing to a String never fails.
        let _ = write!(text, "\n{}={}: {}", condition.type_, condition.status, condition.message);
        text
    })
}

/// The operator, running in this process.
///
/// Without a logger it logs nothing; see [`winpool_operator::telemetry`].
pub struct OperatorTask {
    stop: CancellationToken,
    task: JoinHandle<std::result::Result<(), winpool_operator::Error>>,
}

impl OperatorTask {
    /// Starts it without leader election.
    pub fn start(config: Config) -> Self {
        Self::start_with(config, Options { leader_election: false, ..Options::default() })
    }

    pub fn start_with(config: Config, options: Options) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(winpool_operator::run(config, options, stop.clone()));
        Self { stop, task }
    }

    pub async fn ended(&mut self) -> Result<()> {
        match (&mut self.task).await {
            Ok(result) => Ok(result?),
            Err(panic) => Err(Error::OperatorEnded(panic.to_string())),
        }
    }

    pub async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        self.ended().await
    }
}

impl Drop for OperatorTask {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
