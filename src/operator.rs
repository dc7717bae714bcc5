//! The process: caches, controllers, endpoints, and their end.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::http::{HeaderValue, header::USER_AGENT};
use kube::{Api, Client, Config, runtime::reflector};
use thiserror::Error;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use winpool_core::windows::KubernetesVersion;

use crate::{
    apply::{Applier, WRITE_TIMEOUT},
    controllers::{self, Context, Synced},
    index::Index,
    metrics::Metrics,
    policy::Publisher,
    server,
};

/// How the operator runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where `/metrics`, `/healthz` and `/readyz` answer; `None` for no endpoints.
    pub listen: Option<SocketAddr>,
    /// Nodes written at the same time. Each takes one connection.
    pub concurrency: u16,
}

impl Options {
    /// Beyond 16, more requests at a time gain nothing.
    pub const DEFAULT_CONCURRENCY: u16 = 16;
}

/// The operator cannot start or go on.
#[derive(Debug, Error)]
pub enum Error {
    /// The configuration of the client is not usable.
    #[error("cannot make a client from the kubeconfig: {0}")]
    Client(#[source] Box<kube::Error>),
    /// The port is taken, or not allowed.
    #[error("cannot listen on {address}; choose another address with --listen: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        #[source]
        error: std::io::Error,
    },
    /// The endpoints failed while running.
    #[error("the endpoints failed: {0}")]
    Serve(#[source] std::io::Error),
}

/// How long requests in flight may take to end.
const GRACE: Duration = Duration::from_secs(4);

/// Runs the operator until `stop` is cancelled.
///
/// # Errors
/// When it cannot start, or its endpoints fail.
pub async fn run(mut config: Config, options: Options, stop: CancellationToken) -> Result<(), Error> {
    // The operator retries by itself, with a limit and per object; the client's own 15 tries would block a slot for
    // minutes.
    config.default_retry = false;
    config.headers.push((USER_AGENT, HeaderValue::from_static(concat!("winpool/", env!("CARGO_PKG_VERSION")))));
    let client = Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))?;
    let index = Arc::new(Index::default());
    let metrics = Arc::new(Metrics::new(Arc::clone(&index)));
    let kubernetes = kubernetes_version(&client).await;
    let (nodes, node_writer) = reflector::store();
    let (pools, pool_writer) = reflector::store();
    let (classes, class_writer) = reflector::store();
    let context = Arc::new(Context {
        applier: Applier::new(client.clone(), Arc::clone(&metrics)),
        metrics: Arc::clone(&metrics),
        index,
        policy: Publisher::new(),
        nodes,
        metadata: Api::all(client.clone()),
        pods: Api::all(client.clone()),
        pools,
        classes,
        kubernetes,
        synced: Synced::new(),
        changed: watch::Sender::new(()),
    });
    let endpoints = server::Endpoints { metrics, ready: context.synced.subscribe() };
    let listener = match options.listen {
        Some(address) => Some(server::listen(address).await.map_err(|error| Error::Listen { address, error })?),
        None => None,
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "winpool starts");
    let controllers = Box::pin(async {
        tokio::join!(
            controllers::node::run(
                client.clone(),
                node_writer,
                Arc::clone(&context),
                options.concurrency,
                stop.child_token()
            ),
            controllers::node::run_reimaged(client.clone(), Arc::clone(&context), stop.child_token()),
            controllers::pool::run(client.clone(), pool_writer, Arc::clone(&context), stop.child_token()),
            controllers::pool::watch_classes(client.clone(), class_writer, Arc::clone(&context), stop.child_token()),
        );
    });
    let serving = async {
        if let Some(listener) = listener {
            return server::serve(listener, endpoints, stop.child_token()).await.map_err(Error::Serve);
        }
        stop.cancelled().await;
        Ok(())
    };
    let ended = async { tokio::join!(controllers, serving).1 };
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        result = ended => result?,
        () = overdue => tracing::warn!("requests in flight did not end in time"),
    }
    tracing::info!("winpool ends");
    Ok(())
}

/// Only told in status, never needed: an API server that does not answer now is no reason to wait.
async fn kubernetes_version(client: &Client) -> Option<KubernetesVersion> {
    let info = match tokio::time::timeout(WRITE_TIMEOUT, client.apiserver_version()).await {
        Ok(Ok(info)) => info,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the API server does not tell its version");
            return None;
        }
        Err(_) => return None,
    };
    KubernetesVersion::parse(&info.major, &info.minor).inspect_err(|error| tracing::warn!(%error, "version")).ok()
}

/// The CustomResourceDefinition as YAML, as it stands in `crds/`.
///
/// # Errors
/// Never in practice: the definition is built in.
pub fn crd_yaml() -> Result<String, serde_yaml::ser::Error> {
    let header = "# Generated by `winpool crd`; do not edit.\n";
    Ok(format!("{header}{}", serde_yaml::to_string(&winpool_core::api::crd())?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_in_crds_is_that_of_the_code() {
        let committed = include_str!("../crds/winpool.dev_windowspools.yaml");
        assert!(super::crd_yaml().unwrap() == committed, "crds/ is stale: run `make crd`");
    }
}
