//! The nodes of pods, and a check that the pods can run there.

use crate::Result;
use k8s_openapi::api::core::v1::{Node, NodeSystemInfo, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use std::collections::BTreeMap;
use std::fmt;
use winpool_e2e::scene::manifests;
use winpool_e2e::servers::cluster::Cluster;

/// The kind of node that a pod needs.
#[derive(Clone, Copy)]
pub enum NeededNode {
    Linux,
    /// Windows of this build, such as `10.0.17763`.
    Windows(&'static str),
}

impl NeededNode {
    /// Compares with the kubelet's report, which winpool does not write.
    fn is(self, node: &NodeSystemInfo) -> bool {
        match self {
            Self::Linux => node.operating_system == "linux",
            Self::Windows(build) => {
                let revision = node.kernel_version.strip_prefix(build);
                node.operating_system == "windows" && revision.is_some_and(|revision| revision.starts_with('.'))
            }
        }
    }
}

impl fmt::Display for NeededNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linux => f.write_str("Linux"),
            Self::Windows(build) => write!(f, "Windows {build}"),
        }
    }
}

/// The running pods of a Deployment, each with its node.
pub struct Placements(Vec<(Pod, String, NodeSystemInfo)>);

impl Placements {
    /// Waits until all pods of the Deployment run.
    pub async fn of(cluster: &Cluster, deployment: &str) -> Result<Self> {
        let pods = manifests::rolled_out(cluster, deployment).await?;
        let nodes = Api::<Node>::all(cluster.client()).list(&ListParams::default()).await?;
        let infos: BTreeMap<String, NodeSystemInfo> =
            nodes.into_iter().map(|node| (node.name_any(), info(node))).collect();
        let placed = |pod: Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            let info = infos.get(&node).cloned().unwrap_or_default();
            (pod, node, info)
        };
        Ok(Self(pods.into_iter().map(placed).collect()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of pods on nodes of another kind.
    pub fn off(&self, host: NeededNode) -> usize {
        self.0.iter().filter(|(.., info)| !host.is(info)).count()
    }

    /// Fails if a pod is on a node of another kind.
    pub fn must_be_on(&self, host: NeededNode) -> Result<()> {
        match self.0.iter().find(|(.., info)| !host.is(info)) {
            None => Ok(()),
            Some((pod, node, info)) => Err(format!(
                "pod {} must run on a {host} node, but is on {node}, which reports {} {}",
                pod.name_any(),
                info.operating_system,
                info.kernel_version
            )
            .into()),
        }
    }
}

fn info(node: Node) -> NodeSystemInfo {
    node.status.and_then(|status| status.node_info).unwrap_or_default()
}
