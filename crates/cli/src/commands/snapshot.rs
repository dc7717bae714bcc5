//! `winpool snapshot`: a cluster as a small file that has no names of nodes, workloads and users.

use std::collections::BTreeSet;

use winpool_analysis::snapshot::ClusterSnapshot;
use winpool_client::terminal::Outcome;
use winpool_core::words::count;

use crate::Error;
use crate::print::output::{self, Format};
use crate::print::progress;
use crate::print::text::Text;
use crate::read::origin::Origin;

/// Print what manifests are checked against without access to the cluster: its groups of nodes, WindowsPools and RuntimeClasses.
///
/// The file has no names of nodes, workloads and users, so that it may be committed, and `winpool check -f deploy/ --against FILE`
/// needs no credentials. A group is nodes with the same labels, taints, versions and runtime handlers. Of the labels it has those that
/// workloads, RuntimeClasses and WindowsPools of the cluster select, and those by which clouds name groups of nodes and Windows
/// versions. Cordons, and taints that tell of a state, are left out. Exit code 0: done; 2: you may not list something; 1: an error, or
/// a part of the manifests cannot be read.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  winpool snapshot > cluster.yaml
  winpool snapshot --label example.com/rack --namespace shop > cluster.yaml
  kubectl get nodes,runtimeclasses,windowspools -o yaml | winpool snapshot -f - > cluster.yaml")]
pub struct Arguments {
    #[command(flatten)]
    pub origin: Origin,
    /// Label of nodes to keep besides. Repeat the flag for several labels.
    #[arg(long, value_name = "KEY")]
    pub label: Vec<String>,
    /// Namespace to keep, with its name, node selector, Kueue queues, and labels for PodSecurity and sidecar injectors. Repeat the flag for
    /// several namespaces.
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Vec<String>,
}

pub async fn run(Arguments { origin, label, namespace }: Arguments) -> Result<Outcome, Error> {
    let namespaces: BTreeSet<String> = namespace.into_iter().collect();
    let seen = origin.workloads(None, !namespaces.is_empty()).await?;
    let snapshot = ClusterSnapshot::of(&seen.view, &label, &namespaces);
    output::print(Format::Yaml, &snapshot, Text::new)?;
    let nodes = seen.view.nodes.known().map_or(0, Vec::len);
    let groups = snapshot.items.iter().filter(|item| item["kind"] == "Node").count();
    progress::note(&format!("{} in {}", count(nodes, "node"), count(groups, "group")));
    Ok(seen.gaps.outcome(Outcome::Done))
}
