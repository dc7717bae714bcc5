//! A control plane that schedules pods on simulated nodes.

use crate::error::{Error, Result, text};
use crate::machine::assets::{Component, kwok_stages};
use crate::machine::process::{Launch, Process, start_on_free_port};
use crate::machine::wait::{LIMIT, wait_for};
use crate::network::kubeconfig::answers;
use crate::nodes::simulated::KWOK_NODE;
use crate::servers::api_server::ApiServer;
use crate::servers::etcd::Etcd;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{Api, Client};
use std::path::Path;
use std::sync::Arc;

/// Additional flags of components. They override the usual ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags<'a> {
    pub controller_manager: &'a [&'a str],
    pub kwok: &'a [&'a str],
}

/// A running cluster without machines: API server, scheduler, controller manager and kwok.
///
/// Nodes join it with [`crate::nodes::simulated::SimulatedNode::join`]. It stops when this is dropped.
pub struct Cluster {
    client: Client,
    // Dropped in this order, so that no component logs a missing API server.
    kwok: Process,
    controller_manager: Process,
    scheduler: Process,
    api_server: ApiServer,
}

impl Cluster {
    /// Starts a cluster with an etcd of its own.
    pub async fn start() -> Result<Self> {
        Self::start_with(Flags::default()).await
    }

    /// Does so with more flags.
    pub async fn start_with(flags: Flags<'_>) -> Result<Self> {
        let etcd = Arc::new(Etcd::start().await?);
        Self::start_on(&etcd, "registry", flags).await
    }

    /// Starts a cluster that keeps its state in `etcd` under `prefix`.
    pub async fn start_on(etcd: &Arc<Etcd>, prefix: &str, flags: Flags<'_>) -> Result<Self> {
        let api_server = ApiServer::start_with(etcd, prefix, &[]).await?;
        let client = api_server.connect()?;
        let (scheduler, controller_manager, kwok) = tokio::try_join!(
            start_scheduler(&api_server),
            start_controller_manager(&api_server, flags.controller_manager),
            start_kwok(&api_server, flags.kwok),
        )?;
        let cluster = Self { client, kwok, controller_manager, scheduler, api_server };
        cluster.until_pods_are_admitted().await?;
        Ok(cluster)
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A new client that is `user` in `groups`; see [`ApiServer::client_as`].
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        self.api_server.client_as(user, groups)
    }

    /// The kubeconfig of an administrator.
    pub fn kubeconfig(&self) -> &Path {
        self.api_server.kubeconfig()
    }

    pub fn api_server(&self) -> &ApiServer {
        &self.api_server
    }

    /// Every process of the cluster, etcd included.
    pub fn processes(&self) -> [&Process; 5] {
        [
            self.api_server.etcd().process(),
            self.api_server.process(),
            &self.scheduler,
            &self.controller_manager,
            &self.kwok,
        ]
    }

    /// Fails with the end of a log if a process has ended.
    pub fn check(&self) -> Result<()> {
        self.processes().into_iter().try_for_each(Process::check)
    }

    /// Waits until the node is Ready and has no not-ready taint.
    pub async fn node_ready(&self, name: &str) -> Result<Node> {
        let nodes: Api<Node> = Api::all(self.client());
        self.wait_for(&format!("node {name} is ready"), async || Ok(nodes.get_opt(name).await?.filter(is_ready))).await
    }

    /// Like [`wait_for`], but reports a process that died meanwhile instead.
    pub async fn wait_for<T>(&self, what: &str, probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
        match wait_for(what, LIMIT, probe).await {
            Err(error @ (Error::Timeout { .. } | Error::Kube(_))) => {
                self.check()?;
                Err(error)
            }
            result => result,
        }
    }

    /// The API server admits pods once the controller manager has created the namespace's ServiceAccount.
    async fn until_pods_are_admitted(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), "default");
        self.wait_for("namespace default has its service account", async || Ok(accounts.get_opt("default").await?))
            .await?;
        Ok(())
    }
}

fn is_ready(node: &Node) -> bool {
    let ready = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let tainted = node
        .spec
        .iter()
        .flat_map(|spec| spec.taints.iter().flatten())
        .any(|taint| taint.key == "node.kubernetes.io/not-ready");
    ready && !tainted
}

async fn start_scheduler(api_server: &ApiServer) -> Result<Process> {
    let kubeconfig = api_server.kubeconfig_for("system:kube-scheduler", None)?;
    let flags = [format!("--kubeconfig={}", text(&kubeconfig)?)];
    start_component(api_server, Component::KubeScheduler, &flags, "/readyz").await
}

/// Starts a controller manager with more flags.
pub async fn start_controller_manager(api_server: &ApiServer, more: &[&str]) -> Result<Process> {
    let kubeconfig = api_server.kubeconfig_for("system:kube-controller-manager", None)?;
    let key = api_server.service_account_key();
    let mut flags = vec![
        format!("--kubeconfig={}", text(&kubeconfig)?),
        format!("--service-account-private-key-file={}", text(key)?),
        format!("--root-ca-file={}", text(&api_server.authority_file())?),
        "--use-service-account-credentials=true".to_owned(),
    ];
    flags.extend(more.iter().map(ToString::to_string));
    start_component(api_server, Component::KubeControllerManager, &flags, "/healthz").await
}

/// Starts a component that serves its health, without leader election and rate limits.
async fn start_component(
    api_server: &ApiServer,
    component: Component,
    flags: &[String],
    health: &str,
) -> Result<Process> {
    let program = component.path().await?;
    let serving = api_server.serving();
    let mut arguments = vec![
        "--bind-address=127.0.0.1".to_owned(),
        format!("--tls-cert-file={}", text(&serving.certificate)?),
        format!("--tls-private-key-file={}", text(&serving.key)?),
        "--leader-elect=false".to_owned(),
        "--profiling=false".to_owned(),
        "--kube-api-qps=1000".to_owned(),
        "--kube-api-burst=2000".to_owned(),
    ];
    arguments.extend_from_slice(flags);
    let launch = |port| {
        let port = format!("--secure-port={port}");
        Process::start(Launch {
            name: component.name(),
            program: &program,
            arguments: arguments.iter().cloned().chain([port]).collect(),
            directory: api_server.directory(),
            logs: api_server.directory(),
        })
    };
    let ready = async |port| answers(api_server.connect_to(port), health).await;
    Ok(start_on_free_port(launch, ready).await?.0)
}

/// kwok serves no health endpoint here. If it works, nodes become Ready.
async fn start_kwok(api_server: &ApiServer, more: &[&str]) -> Result<Process> {
    let program = Component::Kwok.path().await?;
    let stages = kwok_stages().await?;
    let kubeconfig = api_server.kubeconfig_for("kwok", Some("system:masters"))?;
    let (annotation, value) = KWOK_NODE;
    let mut arguments = vec![
        format!("--kubeconfig={}", text(&kubeconfig)?),
        format!("--config={}", text(&stages)?),
        format!("--manage-nodes-with-annotation-selector={annotation}={value}"),
    ];
    arguments.extend(more.iter().map(ToString::to_string));
    Process::start(Launch {
        name: Component::Kwok.name(),
        program: &program,
        arguments,
        directory: api_server.directory(),
        logs: api_server.directory(),
    })
}
