//! The tools and services that create nodes.

/// A tool or service that creates nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioner {
    /// The kubelet's own configuration, for machines from any source.
    Kubelet,
    /// Karpenter on AWS.
    Karpenter,
    /// The tags of an AWS Auto Scaling group that cluster-autoscaler scales from zero.
    ClusterAutoscaler,
    /// A node group of eksctl.
    Eksctl,
    /// A node pool of AKS.
    Aks,
    /// A node pool of GKE.
    Gke,
    /// A rule of node-readiness-controller, which keeps a taint of its own on new nodes until they are ready for pods.
    NodeReadiness,
}

/// The provisioners, each with its name on the command line and the title of the rendered text.
pub const PROVISIONERS: [(Provisioner, &str, &str); 7] = [
    (Provisioner::Kubelet, "kubelet", "`KubeletConfiguration`"),
    (Provisioner::Karpenter, "karpenter", "A Karpenter `NodePool`"),
    (Provisioner::ClusterAutoscaler, "cluster-autoscaler", "Tags of an Auto Scaling group"),
    (Provisioner::Eksctl, "eksctl", "A node group of eksctl"),
    (Provisioner::Aks, "aks", "`az aks nodepool add`"),
    (Provisioner::Gke, "gke", "`gcloud container node-pools create`"),
    (Provisioner::NodeReadiness, "node-readiness", "A `NodeReadinessRule` of node-readiness-controller"),
];
