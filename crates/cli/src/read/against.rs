//! `--against`: the cluster by which manifests are judged.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::ValueHint;
use kube::Client;
use winpool_analysis::snapshot::{self, ClusterSnapshot};
use winpool_analysis::view::View;
use winpool_client::kubeconfig::Connection;

use crate::Error;
use crate::read::live;
use crate::read::view::{self, Needs, Seen};

/// The flag of commands that judge manifests by a cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Against {
    /// Judge the manifests of -f by this cluster: `cluster`, `cluster:CONTEXT`, or a file of winpool snapshot.
    #[arg(long, value_name = "cluster|FILE", requires = "files", value_hint = ValueHint::FilePath)]
    pub against: Option<ClusterSource>,
}

impl Against {
    /// Returns the cluster once these manifests are applied, with the workloads of the manifests.
    pub async fn apply(&self, manifests: Seen) -> Result<Seen, Error> {
        match &self.against {
            Some(source) => Ok(source.surroundings(&manifests.view).await?.with_applied(manifests)),
            None => Ok(manifests),
        }
    }
}

/// A cluster, or a file that stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSource {
    /// The cluster of this context, or of the current one.
    Live(Option<String>),
    File(PathBuf),
}

impl FromStr for ClusterSource {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once(':') {
            _ if text == "cluster" => Self::Live(None),
            Some(("cluster", context)) => Self::Live(Some(context.to_owned())),
            _ => Self::File(text.into()),
        })
    }
}

impl ClusterSource {
    /// Reads what the workloads of these manifests are judged by, without the workloads of the cluster.
    async fn surroundings(&self, manifests: &View) -> Result<Seen, Error> {
        match self {
            Self::Live(context) => Ok(view::surroundings(&client(context.as_ref()).await?, manifests).await?),
            Self::File(path) => in_snapshot::<view::Rules>(path),
        }
    }

    /// Reads what the operator decides by.
    pub async fn decisions(&self) -> Result<Seen, Error> {
        match self {
            Self::Live(context) => Ok(view::decisions(&client(context.as_ref()).await?).await?),
            Self::File(path) => in_snapshot::<view::Decisions>(path),
        }
    }
}

async fn client(context: Option<&String>) -> Result<Client, Error> {
    let connection = Connection { context: context.cloned(), ..Connection::default() };
    Ok(live::client(&connection).await?)
}

fn in_snapshot<N: Needs>(path: &Path) -> Result<Seen, Error> {
    let unreadable = |reason: String| Error::Snapshot { path: path.display().to_string(), reason };
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let read: ClusterSnapshot =
        serde_yaml::from_str(&text).map_err(|error| unreadable(error.without_snippet().to_string()))?;
    if (&*read.api_version, &*read.kind) != (snapshot::VERSION, snapshot::KIND) {
        return Err(unreadable(format!("its kind is {} of {}", read.kind, read.api_version)));
    }
    let mut seen = Seen::in_text::<N>(&text)?;
    seen.view.kubernetes = read.version();
    seen.view = seen.view.complete();
    Ok(seen)
}
