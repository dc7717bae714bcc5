//! Commands for people, which end: all but `run`.

pub mod cleanup;

use std::process::ExitCode;

use kube::{
    Config,
    config::{InferConfigError, KubeConfigOptions, KubeconfigError},
};
use thiserror::Error;

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do.
    Done,
    /// There is something to do that was not done.
    Pending,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Pending => Self::from(2),
        }
    }
}

/// No cluster to talk to.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The context that was asked for cannot be used.
    #[error("cannot use context {context} of the kubeconfig: {error}")]
    Context {
        /// Its name.
        context: String,
        /// Why.
        #[source]
        error: Box<KubeconfigError>,
    },
    /// Neither a kubeconfig nor a pod's own configuration.
    #[error("cannot find a cluster; set KUBECONFIG, or run in a pod: {0}")]
    Infer(#[source] Box<InferConfigError>),
}

/// The cluster that kubectl would talk to: `context` of the kubeconfig, or its current one, or that of the pod.
///
/// # Errors
/// When there is none.
pub async fn config(context: Option<&str>) -> Result<Config, ConfigError> {
    let Some(context) = context else {
        return Config::infer().await.map_err(|error| ConfigError::Infer(Box::new(error)));
    };
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    Config::from_kubeconfig(&options)
        .await
        .map_err(|error| ConfigError::Context { context: context.to_owned(), error: Box::new(error) })
}
