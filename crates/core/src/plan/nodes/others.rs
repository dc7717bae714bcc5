//! The nodes that are not for Windows. winpool knows their names, their systems and their groups, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::names;
use crate::labels::Labels;

/// Labels by which clouds, installers and autoscalers name a group of nodes. The nodes of a group usually have one system. (Azure:
/// learn.microsoft.com/azure/aks/use-labels; EKS: docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html and
/// eksctl.io; GKE: cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels; karpenter.sh; kops.sigs.k8s.io.)
pub const NODE_GROUPS: [&str; 7] = [
    "agentpool",
    "kubernetes.azure.com/agentpool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "cloud.google.com/gke-nodepool",
    "karpenter.sh/nodepool",
    "kops.k8s.io/instancegroup",
];
const HOSTNAME: &str = "kubernetes.io/hostname";
pub(crate) const NAME: &str = "metadata.name";

/// True if a label with this key names a node, or a group of nodes.
pub(crate) fn names_nodes(key: &str) -> bool {
    NODE_GROUPS.contains(&key) || key == HOSTNAME || key == NAME
}

/// All nodes without the label of Windows nodes. A copy shares them until one changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherNodes(Arc<BTreeMap<Arc<str>, Labels>>);

impl OtherNodes {
    /// Takes in a node. Returns true if it is new, or says something else.
    pub fn see(&mut self, name: Arc<str>, labels: &Labels) -> bool {
        let kept = labels.with_keys(|key| key == names::OS || names_nodes(key));
        let is_news = self.0.get(&name) != Some(&kept);
        if is_news {
            Arc::make_mut(&mut self.0).insert(name, kept);
        }
        is_news
    }

    /// Forgets a node. Returns true if it was known.
    pub fn remove(&mut self, name: &str) -> bool {
        Arc::make_mut(&mut self.0).remove(name).is_some()
    }

    /// True if the node exists and says that it has another system.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|labels| labels.get(names::OS).is_some())
    }

    /// The first node that says that it belongs to this group.
    pub(crate) fn first_of(&self, key: &str, value: &str) -> Option<&Arc<str>> {
        self.0.iter().find(|(_, labels)| labels.get(key) == Some(value)).map(|(name, _)| name)
    }
}
