//! `-f`, or the options of kubectl: where a command reads from.

use std::io;
use std::path::PathBuf;

use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_client::kubeconfig::Connection;

use crate::Error;
use crate::read::live;
use crate::read::view::{self, Rules, RulesScope, Seen};

/// The options that select the input.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Origin {
    /// File or directory with manifests, or - for standard input; may be repeated. Without -f winpool reads the cluster.
    #[arg(long = "filename", short = 'f', value_name = "FILE|DIR|-", conflicts_with_all = ["context", "kubeconfig"])]
    pub files: Vec<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub connection: Connection,
}

impl Origin {
    /// Reads what the operator decides by, from the manifests or the cluster.
    pub async fn decisions(&self) -> Result<Seen, Error> {
        if self.files.is_empty() {
            return Ok(view::decisions(&live::client(&self.connection).await?).await?);
        }
        Ok(Seen::decisions_in(&self.files)?)
    }

    /// Reads the workloads of the manifests or of the whole cluster, and prints notes about what cannot be read.
    pub async fn workloads(&self, version: Option<KubernetesVersion>, groups: bool) -> Result<Seen, Error> {
        let mut seen = if self.files.is_empty() {
            let scope = RulesScope { version, groups, ..RulesScope::default() };
            view::rules(&live::client(&self.connection).await?, scope).await?
        } else {
            Seen::of_version::<Rules>(&self.files, io::stdin(), version)?
        };
        seen.note_invalid_pools();
        seen.note_unread();
        Ok(seen)
    }
}
