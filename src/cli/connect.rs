//! The cluster that a command talks to.

use std::path::PathBuf;

use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use thiserror::Error;

use crate::operator;

/// Which cluster, as kubectl is told.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// Context of the kubeconfig; the current one if not set.
    #[arg(long, global = false)]
    pub context: Option<String>,
    /// Path of the kubeconfig; KUBECONFIG, ~/.kube/config or the configuration of the pod if not set.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// No cluster to talk to.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The context that was asked for cannot be used.
    #[error("cannot use context {context} of the kubeconfig: {error}")]
    Context {
        /// Its name.
        context: String,
        /// Why.
        #[source]
        error: Box<KubeconfigError>,
    },
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}: {error}")]
    Kubeconfig {
        /// Its path.
        path: String,
        /// Why.
        #[source]
        error: Box<KubeconfigError>,
    },
    /// Neither a kubeconfig nor a pod's own configuration.
    #[error("cannot find a cluster; set KUBECONFIG, run in a pod, or give manifests with -f: {0}")]
    Infer(#[source] Box<InferConfigError>),
    /// The configuration of the client is not usable.
    #[error(transparent)]
    Client(#[from] operator::Error),
}

impl Connection {
    /// Returns the configuration for the cluster that kubectl would use.
    ///
    /// # Errors
    /// Fails if there is none.
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

    /// A client for it.
    ///
    /// # Errors
    /// Fails if there is no cluster, or its configuration is not usable.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        Ok(operator::connect(self.config().await?, None)?)
    }
}
