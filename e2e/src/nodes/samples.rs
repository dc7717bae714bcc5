//! Windows nodes from public issues and documentation, from Kubernetes 1.9 to 1.33.

use super::simulated::SimulatedNode;

/// A real Windows node, as far as its source shows it. A comment lists the missing fields, which are invented in the
/// manner of the time. Missing labels and taints are left out, and the kubelet of that version sets its own labels.
///
/// Kubelets before 1.14 set only `beta.kubernetes.io/os`, so a selector on `kubernetes.io/os` does not find S5, S10
/// and S11 until an administrator labels them; [`SimulatedNode::label`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sample {
    /// AKS, Windows Server 2022, spot.
    S1,
    /// AKS, Windows Server 2019 with a GPU.
    S2,
    /// AKS, Windows Server 2025; AKS documentation, "upgrade-windows-os".
    S3,
    /// AKS, Windows Server 2022; AKS documentation, "upgrade-windows-os".
    S4,
    /// AKS, Windows Server 2019; AKS documentation, "rdp".
    S5,
    /// AKS, Windows Server 2019.
    S6,
    /// EKS by eksctl, Windows Server 2019; aws/amazon-vpc-resource-controller-k8s#86.
    S7,
    /// EKS managed node group with a GPU, Windows Server 2022; TensorWorks/DirectX-Device-Plugins#2.
    S8,
    /// aks-engine, version 2004; Azure/aks-engine#4176.
    S9,
    /// acs-engine, version 1803; Azure/acs-engine#3614.
    S10,
    /// A kubelet under development, Windows Server 2016; kubernetes/kubernetes#50396.
    S11,
    /// kubeadm, Windows Server 2019; kubernetes-sigs/sig-windows-tools#112.
    S12,
}

/// The labels and versions of nodes of an origin.
struct NodeReport {
    name: &'static str,
    kubelet: &'static str,
    os_image: &'static str,
    kernel_version: &'static str,
    container_runtime: &'static str,
    labels: &'static [(&'static str, &'static str)],
}

impl Sample {
    pub(super) fn node(self) -> SimulatedNode {
        let facts = self.facts();
        let mut node = SimulatedNode::windows(facts.kernel_version)
            .name(facts.name)
            .kubelet(facts.kubelet)
            .os_image(facts.os_image)
            .container_runtime(facts.container_runtime);
        for (key, value) in facts.labels {
            node = node.label(key, value);
        }
        self.with_peculiarities(node)
    }

    fn with_peculiarities(self, mut node: SimulatedNode) -> SimulatedNode {
        match self {
            Self::S1 => {
                "E10DA59B-9E4D-4DBD-8249-2F515222A6B1".clone_into(&mut node.info.system_uuid);
                node.taint("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule")
            }
            Self::S2 => node.resource("microsoft.com/directx", "1"),
            Self::S11 => {
                node.info.system_uuid.clear();
                node.info.boot_id.clear();
                node
            }
            _ => node,
        }
    }

    fn facts(self) -> NodeReport {
        match self {
            Self::S1 => S1,
            Self::S2 => S2,
            Self::S3 => S3,
            Self::S4 => S4,
            Self::S5 => S5,
            Self::S6 => S6,
            Self::S7 => S7,
            Self::S8 => S8,
            Self::S9 => S9,
            Self::S10 => S10,
            Self::S11 => S11,
            Self::S12 => S12,
        }
    }
}

/// All of it is shown.
const S1: NodeReport = NodeReport {
    name: "aksnpw22000000",
    kubelet: "v1.28.12",
    os_image: "Windows Server 2022 Datacenter",
    kernel_version: "10.0.20348.2655",
    container_runtime: "containerd://1.7.17+azure",
    labels: &[
        ("agentpool", "npw22"),
        ("kubernetes.azure.com/agentpool", "npw22"),
        ("kubernetes.azure.com/cluster", "MC_rg-aks-japaneast"),
        ("kubernetes.azure.com/mode", "user"),
        ("kubernetes.azure.com/node-image-version", "AKSWindows-2022-containerd-20348.2655.240814"),
        ("kubernetes.azure.com/nodepool-type", "VirtualMachineScaleSets"),
        ("kubernetes.azure.com/os-sku", "Windows2022"),
        ("kubernetes.azure.com/role", "agent"),
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("kubernetes.io/role", "agent"),
        ("node-role.kubernetes.io/agent", ""),
        ("node.kubernetes.io/instance-type", "Standard_D32ads_v5"),
        ("topology.disk.csi.azure.com/zone", ""),
        ("topology.kubernetes.io/region", "japaneast"),
        ("topology.kubernetes.io/zone", "0"),
    ],
};

/// All of it is shown.
const S2: NodeReport = NodeReport {
    name: "akswin19000005",
    kubelet: "v1.25.4",
    os_image: "Windows Server 2019 Datacenter",
    kernel_version: "10.0.17763.3887",
    container_runtime: "containerd://1.6.14+azure",
    labels: &[
        ("kubernetes.azure.com/accelerator", "nvidia"),
        ("kubernetes.azure.com/agentpool", "win19"),
        ("kubernetes.azure.com/node-image-version", "AKSWindows-2019-containerd-17763.3887.230111"),
        ("kubernetes.azure.com/os-sku", "Windows2019"),
        ("node.kubernetes.io/instance-type", "Standard_NC4as_T4_v3"),
        ("topology.kubernetes.io/region", "westeurope"),
        ("topology.kubernetes.io/zone", "0"),
    ],
};

/// Not shown: labels, taints.
const S3: NodeReport = NodeReport {
    name: "akswspool000000",
    kubelet: "v1.33.12",
    os_image: "Windows Server 2025 Datacenter",
    kernel_version: "10.0.26100.32995",
    container_runtime: "containerd://2.0.4+azure",
    labels: &[],
};

/// Not shown: labels, taints.
const S4: NodeReport = NodeReport {
    name: "akspoolws000000",
    kubelet: "v1.33.12",
    os_image: "Windows Server 2022 Datacenter",
    kernel_version: "10.0.20348.825",
    container_runtime: "containerd://1.6.6+azure",
    labels: &[],
};

/// Not shown: containerRuntimeVersion, labels, taints.
const S5: NodeReport = NodeReport {
    name: "aksnpwin000000",
    kubelet: "v1.12.7",
    os_image: "Windows Server Datacenter",
    kernel_version: "10.0.17763.437",
    container_runtime: "docker://18.9.2",
    labels: &[],
};

/// Not shown: containerRuntimeVersion, labels, taints.
const S6: NodeReport = NodeReport {
    name: "akswinbld000000",
    kubelet: "v1.14.8",
    os_image: "Windows Server 2019 Datacenter",
    kernel_version: "10.0.17763.737",
    container_runtime: "docker://19.3.2",
    labels: &[],
};

/// Not shown: kubeletVersion, osImage, the revision in kernelVersion, containerRuntimeVersion, labels.
const S7: NodeReport = NodeReport {
    name: "ip-10-22-2-234.eu-west-2.compute.internal",
    kubelet: "v1.22.6",
    os_image: "Windows Server 2019 Datacenter",
    kernel_version: "10.0.17763.2686",
    container_runtime: "docker://20.10.9",
    labels: &[("node.kubernetes.io/windows-build", "10.0.17763")],
};

/// Not shown: the patch of kubeletVersion, osImage, the revision in kernelVersion, containerRuntimeVersion, taints.
const S8: NodeReport = NodeReport {
    name: "ip-192-168-62-122.ap-southeast-2.compute.internal",
    kubelet: "v1.26.4",
    os_image: "Windows Server 2022 Datacenter",
    kernel_version: "10.0.20348.1726",
    container_runtime: "containerd://1.6.6",
    labels: &[
        ("alpha.service-controller.kubernetes.io/exclude-balancer", "true"),
        ("beta.kubernetes.io/instance-type", "g4dn.2xlarge"),
        ("eks.amazonaws.com/capacityType", "ON_DEMAND"),
        ("eks.amazonaws.com/nodegroup", "gpu-win"),
        ("eks.amazonaws.com/nodegroup-image", "ami-08588c41a0509f0b5"),
        ("eks.amazonaws.com/sourceLaunchTemplateVersion", "1"),
        ("node.kubernetes.io/instance-type", "g4dn.2xlarge"),
        ("node.kubernetes.io/windows-build", "10.0.20348"),
    ],
};

/// Not shown: labels, taints.
const S9: NodeReport = NodeReport {
    name: "6837k8s00000000",
    kubelet: "v1.19.7",
    os_image: "Windows Server Datacenter",
    kernel_version: "10.0.19041.804",
    container_runtime: "docker://19.3.14",
    labels: &[],
};

/// Not shown: labels, taints.
const S10: NodeReport = NodeReport {
    name: "40336k8s9000",
    kubelet: "v1.9.10",
    os_image: "Windows Server Datacenter",
    kernel_version: "10.0.17134.112",
    container_runtime: "docker://17.6.2",
    labels: &[],
};

/// Not shown: labels, taints.
const S11: NodeReport = NodeReport {
    name: "19076acs9000",
    kubelet: "v1.9.0-alpha.0.478+e5facc9bfcc1e1-dirty",
    os_image: "Microsoft Windows [Version 10.0.14393]",
    kernel_version: "10.0.14393",
    container_runtime: "docker://Unknown",
    labels: &[],
};

/// Not shown: labels, taints.
const S12: NodeReport = NodeReport {
    name: "worker-win-2",
    kubelet: "v1.19.3",
    os_image: "Windows Server 2019 Datacenter",
    kernel_version: "10.0.17763.1397",
    container_runtime: "containerd://1.4.1",
    labels: &[],
};
