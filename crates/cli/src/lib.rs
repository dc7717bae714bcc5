//! `winpool`: answers about Windows nodes and workloads. It changes nothing in a cluster.

mod against;
mod assume;
pub mod blockers;
pub mod builds;
mod by;
pub mod check;
pub mod commands;
pub mod diff;
mod error;
pub mod fix;
pub mod forecast;
pub mod gaps;
pub mod images;
pub mod input;
mod installation;
pub mod live;
mod located;
pub mod output;
pub mod plan;
pub mod reference;
pub mod registry;
pub mod render;
pub mod report;
pub mod resolve;
pub mod schema;
pub mod snapshot;
pub mod status;
mod upgrade;
mod values;
pub mod view;
pub mod why;

use std::path::PathBuf;

use output::Output;
use view::{RulesScope, Seen};
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_client::kubeconfig::Connection;

pub use error::Error;

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
    async fn decisions(&self) -> Result<Seen, Error> {
        if self.files.is_empty() {
            return Ok(view::decisions(&live::client(&self.connection).await?).await?);
        }
        Ok(Seen::decisions_in(&self.files)?)
    }

    /// Reads the workloads of the manifests or of the whole cluster, and prints notes about what cannot be read.
    async fn workloads(&self, version: Option<KubernetesVersion>, has_namespaces: bool) -> Result<Seen, Error> {
        let mut seen = if self.files.is_empty() {
            let scope = RulesScope { version, has_namespaces, ..RulesScope::default() };
            view::rules(&live::client(&self.connection).await?, scope).await?
        } else {
            Seen::rules_in(&self.files, version)?
        };
        seen.note_invalid_pools();
        seen.note_unread();
        Ok(seen)
    }
}

/// The flag of kubectl, for commands that read all namespaces in any case.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct AllNamespaces {
    /// All namespaces, as without this flag.
    #[arg(long, short = 'A', hide = true)]
    pub all_namespaces: bool,
}

/// The options that select input and output format.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub origin: Origin,
    #[command(flatten)]
    pub output: Output,
}
