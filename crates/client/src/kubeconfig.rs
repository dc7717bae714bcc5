//! The connection of a command to a cluster.

use std::ffi::OsStr;
use std::path::PathBuf;

use kube::Config;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use thiserror::Error;

use super::client;

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
pub enum Unusable {
    #[error("cannot use {what}: {error}")]
    Kubeconfig {
        /// A file, or a context.
        what: String,
        #[source]
        error: Box<KubeconfigError>,
    },
    #[error("cannot find a cluster; set KUBECONFIG, or run in a pod: {0}")]
    Infer(#[source] Box<InferConfigError>),
    #[error(transparent)]
    Client(#[from] client::ConnectError),
}

impl Connection {
    /// Returns the configuration for the cluster that kubectl would use.
    pub async fn config(&self) -> Result<Config, Unusable> {
        let listed = std::env::var_os("KUBECONFIG").map(|list| listed_files(&list)).unwrap_or_default();
        match (&self.kubeconfig, &self.context) {
            (Some(path), _) => self.merged(std::slice::from_ref(path)).await,
            (None, _) if !listed.is_empty() => self.merged(&listed).await,
            (None, Some(context)) => {
                let what = format!("context {context} of the kubeconfig");
                Config::from_kubeconfig(&self.options()).await.map_err(unusable(what))
            }
            (None, None) => Config::infer().await.map_err(|error| Unusable::Infer(Box::new(error))),
        }
    }

    /// Merges these files; the first one that sets a value wins.
    async fn merged(&self, paths: &[PathBuf]) -> Result<Config, Unusable> {
        let mut merged = Kubeconfig::default();
        for path in paths {
            let name = || format!("the kubeconfig {}", path.display());
            let next = Kubeconfig::read_from(path).map_err(unusable(name()))?;
            merged = merged.merge(next).map_err(unusable(name()))?;
        }
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        Config::from_custom_kubeconfig(merged, &self.options())
            .await
            .map_err(unusable(format!("the kubeconfig {}", names.join(", "))))
    }

    fn options(&self) -> KubeConfigOptions {
        KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() }
    }
}

fn unusable(what: String) -> impl FnOnce(KubeconfigError) -> Unusable {
    move |error| Unusable::Kubeconfig { what, error: Box::new(error) }
}

/// Returns the files of a list of several paths that exist. Like kubectl, winpool ignores those that do not.
fn listed_files(list: &OsStr) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect();
    // If there is only one, a missing file is an error that names it.
    if paths.len() < 2 { Vec::new() } else { paths.into_iter().filter(|path| path.exists()).collect() }
}
