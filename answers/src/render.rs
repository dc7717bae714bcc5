//! Renders a pool's labels and taints in the configuration language of a provisioner, so that nodes register with
//! them.
//!
//! Sources: the Kubernetes documentation of `KubeletConfiguration`, of the labels that a kubelet may set on itself
//! (enhancement proposal 279) and of memory on Windows nodes, the Karpenter documentation of `NodePool` and `EC2NodeClass`,
//! the eksctl guide ("Auto Scaling", "Scaling up from 0") for the tags that cluster-autoscaler reads from Auto Scaling
//! groups, the documentation of AKS and GKE node pools, and the CRD of node-readiness-controller. Settings that are not
//! documented are not rendered.

mod aws;
mod managed;

use std::fmt::{self, Write};

use serde_json::json;
use winpool_core::{
    api::{Isolation, Taint, TaintPolicy, names},
    plan::{Hosts, Pool, capability_label},
    pod::BETA_OS,
    windows::{
        compatibility::can_run_by_process_isolation,
        product::{self, PRODUCTS, Product},
    },
};

pub use managed::refusal;

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

/// The labels of the operating system and the architecture, which the kubelet sets. Windows nodes are always amd64.
const BY_KUBELET: [&str; 4] = [names::OS, BETA_OS, names::ARCH, "beta.kubernetes.io/arch"];

/// Kubernetes' own labels outside the domains below that a kubelet may set on itself (`NodeRestriction`).
const OF_PLACE: [&str; 5] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
];

/// Renders the labels and taints of this pool, for nodes with this Windows version if one is given, or else with the build
/// that the pool selects.
pub fn render(provisioner: Provisioner, pool: &Pool, windows: Option<&Product>) -> String {
    let mut text = String::new();
    // Writing to a String never fails.
    let _ = write(&mut text, provisioner, &Nodes::of(provisioner, pool, windows));
    text
}

/// Returns the Windows version of the nodes: the one that the user asks for, or else the one whose build the pool selects.
///
/// # Errors
/// Fails if the pool selects the build of another version, with a message for the user.
pub fn windows_of<'a>(pool: &Pool, asked: Option<&'a Product>) -> Result<Option<&'a Product>, String> {
    let selected = selected_windows(pool);
    match (selected, asked) {
        (Some(selected), Some(asked)) if selected.build != asked.build => Err(format!(
            "WindowsPool {} selects nodes of {}, not of Windows {}: leave out --windows, or name another pool with --pool",
            pool.spec.name, selected.build, asked.version
        )),
        _ => Ok(asked.or(selected)),
    }
}

/// Returns the Windows version whose build the pool selects, if it selects one.
fn selected_windows(pool: &Pool) -> Option<&'static Product> {
    product::by_build(pool.spec.node_selector.get(names::WINDOWS_BUILD)?.parse().ok()?)
}

/// The labels and taints with which nodes of the pool must register.
struct Nodes<'a> {
    pool: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    /// Capability labels of the classes whose images these nodes run.
    capabilities: Vec<String>,
    /// Labels that the provisioner may not set.
    refused: Vec<&'a str>,
    taints: Vec<Taint>,
    never: bool,
    windows: Option<&'a Product>,
}

impl<'a> Nodes<'a> {
    fn of(provisioner: Provisioner, pool: &'a Pool, windows: Option<&'a Product>) -> Self {
        let windows = windows.or_else(|| selected_windows(pool));
        let is_rendered = |key: &str| BY_KUBELET.contains(&key) || windows.is_some() && key == names::WINDOWS_BUILD;
        let labels = pool.spec.node_selector.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let labels = labels.filter(|(key, _)| !is_rendered(key));
        let (labels, refused): (Vec<_>, Vec<_>) = labels.partition(|(key, _)| may_set(provisioner, key));
        let never = pool.spec.taint_policy == TaintPolicy::Never;
        Self {
            pool: &pool.spec.name,
            labels,
            refused: refused.into_iter().map(|(key, _)| key).collect(),
            capabilities: windows.map(|windows| capabilities(pool, windows)).unwrap_or_default(),
            taints: if never { Vec::new() } else { pool.spec.wanted_taints() },
            never,
            windows,
        }
    }

    /// Returns the labels from which an autoscaler learns the properties of a node before it exists. They include the
    /// labels that winpool adds later.
    fn template_labels(&self) -> Vec<(&str, &str)> {
        let capabilities = self.capabilities.iter().map(|key| (key.as_str(), "true"));
        self.labels.iter().copied().chain(capabilities).collect()
    }

    fn template_labels_as_text(&self, separator: &str) -> String {
        as_text(&self.template_labels(), separator)
    }

    fn taints_as_text(&self) -> String {
        let taints = self.taints.iter().map(|Taint { key, value, effect }| format!("{key}={value}:{effect}"));
        taints.collect::<Vec<_>>().join(",")
    }
}

/// Returns the keys of the labels that winpool adds to nodes of this Windows version for classes with `Compatible`
/// hosts, declared or discovered. Omits classes with Hyper-V isolation: the build does not show if a node supports it, and the autoscaler
/// would recreate a node without it again and again.
fn capabilities(pool: &Pool, windows: &Product) -> Vec<String> {
    let declared = pool.spec.declared.iter().map(|(hosts, spec)| (*hosts, spec.name.clone()));
    let is_declared = |class: &String| pool.spec.declared.iter().any(|(_, spec)| spec.name == *class);
    let with_images = PRODUCTS.iter().filter(|product| pool.spec.discover && !product.image_tags.is_empty());
    let discovered =
        with_images.map(|Product { build, .. }| (pool.spec.discovered_hosts(*build), pool.spec.class_name(*build)));
    let all = declared.chain(discovered.filter(|(_, class)| !is_declared(class)));
    let runs = |(hosts, class): (Hosts, String)| match hosts {
        Hosts::Running(image, Isolation::Process) if can_run_by_process_isolation(windows.build, image) => {
            Some(capability_label(&class))
        }
        _ => None,
    };
    all.filter_map(runs).collect()
}

/// True if the provisioner may set this label. A kubelet may set only some of Kubernetes' own labels on
/// itself, and managed node pools pass their labels on to it. AKS also reserves a prefix of its own.
fn may_set(provisioner: Provisioner, key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let within = |zone: &str| domain == zone || domain.ends_with(&format!(".{zone}"));
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    let allowed = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    match provisioner {
        Provisioner::Aks => !kubernetes && !within("kubernetes.azure.com"),
        // They only describe nodes.
        Provisioner::ClusterAutoscaler | Provisioner::NodeReadiness => true,
        Provisioner::Karpenter => aws::is_of_instance_types(key) || !kubernetes || allowed,
        Provisioner::Kubelet => !kubernetes || allowed || OF_PLACE.contains(&key),
        _ => !kubernetes || allowed,
    }
}

fn write(out: &mut String, provisioner: Provisioner, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(out, "# Nodes of WindowsPool {}", nodes.pool)?;
    for key in &nodes.refused {
        writeln!(
            out,
            "# Not rendered: the label {key} cannot be set this way. The pool selects nodes by it, so set it in another way."
        )?;
    }
    if nodes.never && provisioner != Provisioner::NodeReadiness {
        writeln!(out, "# No taints: taintPolicy is Never.")?;
    }
    if let Some(refusal) = nodes.windows.and_then(|windows| refusal(provisioner, windows)) {
        return writeln!(out, "# Not rendered: {refusal}.");
    }
    if !nodes.capabilities.is_empty() && !matches!(provisioner, Provisioner::Kubelet | Provisioner::NodeReadiness) {
        writeln!(
            out,
            "# winpool sets {} itself, where containerd is 1.7.19 or later; here it tells the autoscaler.",
            nodes.capabilities.join(", ")
        )?;
    }
    match provisioner {
        Provisioner::Kubelet => kubelet(out, nodes),
        Provisioner::Karpenter => aws::karpenter(out, nodes),
        Provisioner::ClusterAutoscaler => aws::cluster_autoscaler(out, nodes),
        Provisioner::Eksctl => aws::eksctl(out, nodes),
        Provisioner::Aks => managed::aks(out, nodes),
        Provisioner::Gke => managed::gke(out, nodes),
        Provisioner::NodeReadiness => node_readiness(out, nodes),
    }
}

fn taint_list(out: &mut String, indent: &str, taints: &[Taint]) -> fmt::Result {
    for Taint { key, value, effect } in taints {
        writeln!(out, "{indent}- key: {}", json!(key))?;
        if !value.is_empty() {
            writeln!(out, "{indent}  value: {}", json!(value))?;
        }
        writeln!(out, "{indent}  effect: {effect}")?;
    }
    Ok(())
}

fn as_text(labels: &[(&str, &str)], separator: &str) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(separator)
}

fn label_map(out: &mut String, indent: &str, labels: &[(&str, &str)]) -> fmt::Result {
    labels.iter().try_for_each(|(key, value)| writeln!(out, "{indent}{}: {}", json!(key), json!(value)))
}

fn node_readiness(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    let version = nodes.windows.map_or_else(String::new, |windows| format!("-{}", windows.version));
    let build = nodes.windows.map(|windows| windows.build.to_string());
    writeln!(
        out,
        "# Replace the condition with those that your CNI and CSI plugins report. Their pods must tolerate the taint."
    )?;
    writeln!(out, "apiVersion: readiness.node.x-k8s.io/v1alpha1\nkind: NodeReadinessRule")?;
    writeln!(out, "metadata:\n  name: {}", json!(format!("{}{version}-network", nodes.pool)))?;
    writeln!(out, "spec:\n  nodeSelector:\n    matchLabels:")?;
    let build = build.as_deref().map(|build| (names::WINDOWS_BUILD, build));
    let labels: Vec<_> = [(names::OS, names::WINDOWS)].into_iter().chain(build).chain(nodes.labels.clone()).collect();
    label_map(out, "      ", &labels)?;
    writeln!(out, "  conditions:\n  - type: NetworkUnavailable\n    requiredStatus: \"False\"")?;
    writeln!(
        out,
        "  taint:\n    key: readiness.k8s.io/network-not-ready\n    value: \"true\"\n    effect: NoSchedule"
    )?;
    writeln!(out, "  enforcementMode: bootstrap-only")
}

fn kubelet(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(
        out,
        "# The kubelet sets kubernetes.io/os and the build itself. It sets taints only when it creates its Node, never later."
    )?;
    if !nodes.labels.is_empty() {
        writeln!(out, "# Its labels are a flag: --node-labels={}", as_text(&nodes.labels, ","))?;
    }
    writeln!(out, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration")?;
    writeln!(
        out,
        "# Reserve at least 2 GB of memory for Windows itself. The kubelet subtracts it from the memory for pods."
    )?;
    writeln!(out, "systemReserved:\n  memory: 2Gi")?;
    if !nodes.taints.is_empty() {
        writeln!(out, "registerWithTaints:")?;
        taint_list(out, "", &nodes.taints)?;
    }
    Ok(())
}
