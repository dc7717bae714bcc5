//! The connection of a command to a cluster.

use std::path::PathBuf;

use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use thiserror::Error;

use crate::operator;

/// The options that select the cluster, as in kubectl.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// Context of the kubeconfig; the current one if not set.
    #[arg(long, global = false)]
    pub context: Option<String>,
    /// Path of the kubeconfig; KUBECONFIG, ~/.kube/config or the configuration of the pod if not set.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// A cluster that cannot be reached.
#[derive(Debug, Error)]
pub enum ConnectError {
    #[error("cannot use context {context} of the kubeconfig: {error}")]
    Context {
        context: String,
        #[source]
        error: Box<KubeconfigError>,
    },
    #[error("cannot use the kubeconfig {path}: {error}")]
    Kubeconfig {
        path: String,
        #[source]
        error: Box<KubeconfigError>,
    },
    #[error("cannot find a cluster; set KUBECONFIG, run in a pod, or give manifests with -f: {0}")]
    Infer(#[source] Box<InferConfigError>),
    #[error(transparent)]
    Client(#[from] operator::Error),
}

impl Connection {
    /// Returns the configuration for the cluster that kubectl would use.
    pub async fn config(&self) -> Result<Config, ConnectError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let path_of = || path.display().to_string();
                let unusable = |error| ConnectError::Kubeconfig { path: path_of(), error: Box::new(error) };
                let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)
            }
            (None, Some(context)) => {
                let unusable = |error| ConnectError::Context { context: context.clone(), error: Box::new(error) };
                Config::from_kubeconfig(&options).await.map_err(unusable)
            }
            (None, None) => Config::infer().await.map_err(|error| ConnectError::Infer(Box::new(error))),
        }
    }

    /// Returns a client for that cluster.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        Ok(operator::connect(self.config().await?, None)?)
    }
}
