//! All commands except `run`.

mod annotate;
pub mod blockers;
pub mod builds;
pub mod check;
pub mod cleanup;
pub mod cluster;
pub mod connect;
mod error;
pub mod generate;
pub mod images;
pub mod input;
pub mod live;
pub mod output;
pub mod plan;
pub mod reference;
pub mod render;
pub mod resolve;
pub mod schema;
pub mod status;
pub mod why;
pub mod workloads;

use std::{path::PathBuf, process::ExitCode};

pub use error::Error;

use cluster::Cluster;
use connect::Connection;
use output::Output;
use winpool_core::windows::{
    Build, KubernetesVersion,
    product::{self, PRODUCTS, Product},
};
use workloads::Workloads;

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
    /// Reads the manifests or the cluster.
    async fn cluster(&self) -> Result<Cluster, Error> {
        if self.files.is_empty() {
            return Ok(Cluster::live(&self.connection.client().await?).await?);
        }
        Ok(Cluster::from_manifests(&self.files)?)
    }

    /// Reads the workloads of the manifests or of the whole cluster, and prints notes about what cannot be read.
    async fn workloads(&self, version: Option<KubernetesVersion>) -> Result<Workloads, Error> {
        let workloads = if self.files.is_empty() {
            Workloads::live(&self.connection.client().await?, None, version).await?
        } else {
            Workloads::from_manifests(&self.files, version)?
        };
        workloads.print_notes();
        Ok(workloads)
    }
}

/// The options that select input and output format.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub origin: Origin,
    #[command(flatten)]
    pub output: Output,
}

/// A Windows release in an argument.
fn release(text: &str) -> Result<&'static Product, String> {
    let by_build = || text.parse::<Build>().ok().and_then(product::by_build);
    product::by_version(&text.to_ascii_lowercase()).or_else(by_build).ok_or_else(|| {
        let known: Vec<&str> = PRODUCTS.iter().map(|product| product.version).collect();
        format!("write one of {}, or its build", known.join(", "))
    })
}

/// The outcome of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do, and nothing was found.
    Done,
    /// Something is left to do, or there are findings.
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
