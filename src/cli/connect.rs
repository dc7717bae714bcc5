//! The cluster that a command talks to.

use std::path::PathBuf;

use kube::{
    Client, Config,
    config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use thiserror::Error;

use crate::{apply::WriteError, operator};

/// Which cluster, as kubectl is told.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// Context of the kubeconfig; the current one if not given.
    #[arg(long, global = false)]
    pub context: Option<String>,
    /// Path of the kubeconfig; if not given, KUBECONFIG, ~/.kube/config, or the configuration of the pod.
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
    /// How to talk to the cluster that kubectl would talk to.
    ///
    /// # Errors
    /// When there is none.
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
    /// When there is no cluster, or its configuration is not usable.
    pub async fn client(&self) -> Result<Client, ConnectError> {
        Ok(operator::client(self.config().await?)?)
    }
}

/// The cluster does not show what a command needs.
#[derive(Debug, Error)]
pub enum ReadError {
    /// Winpool is not installed.
    #[error(
        "the cluster does not know WindowsPools: install their definition (winpool crd | kubectl apply -f -), or look at \
         manifests with -f"
    )]
    NoDefinition,
    /// A right is missing.
    #[error("not allowed to list {what}: {words}; it takes the verb list on {what}")]
    Forbidden {
        /// The resource.
        what: &'static str,
        /// The API server's words.
        words: String,
    },
    /// The API server does not know who asks.
    #[error("the cluster does not accept these credentials: {0}")]
    Unauthorized(String),
    /// No answer, or none that can be used.
    #[error("cannot read {what}: {error}")]
    Failed {
        /// The resource.
        what: &'static str,
        /// Why.
        #[source]
        error: WriteError,
    },
}

impl ReadError {
    /// What it means that `what` could not be listed.
    #[must_use]
    pub fn of(what: &'static str, error: WriteError) -> Self {
        match error {
            WriteError::Denied(words) => Self::Forbidden { what, words },
            WriteError::Gone if what == "windowspools" => Self::NoDefinition,
            WriteError::Failed(error) => match *error {
                kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(status.message),
                error => Self::Failed { what, error: WriteError::Failed(Box::new(error)) },
            },
            error => Self::Failed { what, error },
        }
    }
}
