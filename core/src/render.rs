//! Renders a pool's labels and taints in the configuration language of a provisioner, so that nodes register with
//! them.
//!
//! Sources: the Kubernetes documentation of `KubeletConfiguration` and of the labels that a kubelet may set on itself
//! (enhancement proposal 279), the Karpenter documentation of `NodePool` (aws/karpenter-provider-aws#3698: it adds
//! `kubernetes.io/os` and the build itself), the eksctl guide ("Auto Scaling", "Scaling up from 0") for the tags that
//! cluster-autoscaler reads from Auto Scaling groups, and the documentation of AKS and GKE node pools. Settings that
//! are not documented are not rendered.

use std::fmt::{self, Write};

use serde_json::json;

use crate::{
    api::{DEFAULT_ARCHITECTURE, Taint, TaintPolicy, names},
    plan::Pool,
    windows::product::Product,
};

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
}

impl Provisioner {
    pub const ALL: [Self; 6] =
        [Self::Kubelet, Self::Karpenter, Self::ClusterAutoscaler, Self::Eksctl, Self::Aks, Self::Gke];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Kubelet => "kubelet",
            Self::Karpenter => "karpenter",
            Self::ClusterAutoscaler => "cluster-autoscaler",
            Self::Eksctl => "eksctl",
            Self::Aks => "aks",
            Self::Gke => "gke",
        }
    }

    /// The title of the rendered text.
    #[must_use]
    pub fn language(self) -> &'static str {
        match self {
            Self::Kubelet => "`KubeletConfiguration`",
            Self::Karpenter => "A Karpenter `NodePool`",
            Self::ClusterAutoscaler => "Tags of an Auto Scaling group",
            Self::Eksctl => "A node group of eksctl",
            Self::Aks => "`az aks nodepool add`",
            Self::Gke => "`gcloud container node-pools create`",
        }
    }

    /// The provisioner with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provisioner| provisioner.name() == name)
    }
}

/// Renders the labels and taints of this pool, for nodes of this Windows if one is given.
#[must_use]
pub fn render(provisioner: Provisioner, pool: &Pool, windows: Option<&Product>) -> String {
    let mut text = String::new();
    // Writing to a String never fails.
    let _ = write(&mut text, provisioner, &Nodes::of(provisioner, pool, windows));
    text
}

/// The labels and taints with which nodes of the pool are to register.
struct Nodes<'a> {
    pool: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    /// Labels that the provisioner may not set.
    refused: Vec<&'a str>,
    taints: Vec<Taint>,
    never: bool,
    windows: Option<&'a Product>,
}

impl<'a> Nodes<'a> {
    fn of(provisioner: Provisioner, pool: &'a Pool, windows: Option<&'a Product>) -> Self {
        let labels = pool.node_selector.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let (labels, refused): (Vec<_>, Vec<_>) = labels.partition(|(key, _)| may_set(provisioner, key));
        let never = pool.taint_policy == TaintPolicy::Never;
        Self {
            pool: &pool.name,
            labels,
            refused: refused.into_iter().map(|(key, _)| key).collect(),
            taints: if never { Vec::new() } else { pool.wanted_taints() },
            never,
            windows,
        }
    }

    fn labels_as(&self, separator: &str) -> String {
        let pairs: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.join(separator)
    }

    fn taints_as_text(&self) -> String {
        self.taints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

/// Returns true if the provisioner may set this label. A kubelet may set only some of Kubernetes' own labels on
/// itself, and managed node pools pass their labels on to it. AKS also reserves a prefix of its own.
fn may_set(provisioner: Provisioner, key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return true };
    let within = |zone: &str| domain == zone || domain.ends_with(&format!(".{zone}"));
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    let allowed = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    match provisioner {
        Provisioner::Aks => !kubernetes && !within("kubernetes.azure.com"),
        // It only describes nodes.
        Provisioner::ClusterAutoscaler => true,
        _ => !kubernetes || allowed,
    }
}

/// Explains why there is no command for this Windows: the node pool would get another version.
#[must_use]
pub fn refusal(provisioner: Provisioner, windows: &Product) -> Option<String> {
    let version = windows.version;
    match (provisioner, version) {
        // Windows2025: aws/karpenter-provider-aws#8842; eksctl has the containers of 2025 since 0.222.
        (Provisioner::Gke, "2019" | "2022")
        | (Provisioner::Aks | Provisioner::Karpenter | Provisioner::Eksctl, "2019" | "2022" | "2025") => None,
        (Provisioner::Gke, _) => Some(format!("GKE has no image of Windows {version} that is known here")),
        (Provisioner::Aks, _) => Some(format!("AKS has no --os-sku for Windows {version} that is known here")),
        (Provisioner::Karpenter | Provisioner::Eksctl, _) => {
            Some(format!("AWS has no amiFamily for Windows {version} that is known here"))
        }
        _ => None,
    }
}

fn write(out: &mut String, provisioner: Provisioner, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(out, "# Nodes of WindowsPool {}", nodes.pool)?;
    for key in &nodes.refused {
        writeln!(
            out,
            "# Not rendered: the label {key} cannot be set this way; winpool selects nodes by it, so set it otherwise."
        )?;
    }
    if nodes.never {
        writeln!(out, "# No taints: taintPolicy is Never.")?;
    }
    if let Some(refusal) = nodes.windows.and_then(|windows| refusal(provisioner, windows)) {
        return writeln!(out, "# Not rendered: {refusal}.");
    }
    match provisioner {
        Provisioner::Kubelet => kubelet(out, nodes),
        Provisioner::Karpenter => karpenter(out, nodes),
        Provisioner::ClusterAutoscaler => cluster_autoscaler(out, nodes),
        Provisioner::Eksctl => eksctl(out, nodes),
        Provisioner::Aks => aks(out, nodes),
        Provisioner::Gke => gke(out, nodes),
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

fn label_map(out: &mut String, indent: &str, labels: &[(&str, &str)]) -> fmt::Result {
    labels.iter().try_for_each(|(key, value)| writeln!(out, "{indent}{}: {}", json!(key), json!(value)))
}

fn kubelet(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(
        out,
        "# The kubelet sets kubernetes.io/os and the build by itself. It puts its taints on when it creates its Node, never later."
    )?;
    if !nodes.labels.is_empty() {
        writeln!(out, "# Its labels are a flag: --node-labels={}", nodes.labels_as(","))?;
    }
    writeln!(out, "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration")?;
    if !nodes.taints.is_empty() {
        writeln!(out, "registerWithTaints:")?;
        taint_list(out, "", &nodes.taints)?;
    }
    Ok(())
}

fn karpenter(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    match nodes.windows.map(|windows| windows.version) {
        Some(version) => {
            writeln!(
                out,
                "# The EC2NodeClass has amiFamily: Windows{version}; with it Karpenter knows the build, which must not stand here."
            )?;
        }
        None => writeln!(
            out,
            "# Karpenter knows the build from the amiFamily of the EC2NodeClass; it must not stand here."
        )?,
    }
    writeln!(out, "apiVersion: karpenter.sh/v1\nkind: NodePool\nspec:\n  template:")?;
    if !nodes.labels.is_empty() {
        writeln!(out, "    metadata:\n      labels:")?;
        label_map(out, "        ", &nodes.labels)?;
    }
    writeln!(
        out,
        "    spec:\n      requirements:\n      - key: {}\n        operator: In\n        values: [windows]",
        names::OS
    )?;
    if !nodes.taints.is_empty() {
        writeln!(out, "      taints:")?;
        taint_list(out, "      ", &nodes.taints)?;
    }
    Ok(())
}

/// The tags that tell cluster-autoscaler about nodes of an empty group.
fn autoscaler_tags(nodes: &Nodes<'_>) -> Vec<(String, String)> {
    let label =
        |key: &str, value: &str| (format!("k8s.io/cluster-autoscaler/node-template/label/{key}"), value.to_owned());
    let mut tags = vec![label(names::OS, names::WINDOWS), label(names::ARCH, DEFAULT_ARCHITECTURE)];
    tags.extend(nodes.windows.map(|windows| label(names::WINDOWS_BUILD, &windows.build.to_string())));
    tags.extend(nodes.labels.iter().map(|(key, value)| label(key, value)));
    tags.extend(nodes.taints.iter().map(|taint| {
        let key = format!("k8s.io/cluster-autoscaler/node-template/taint/{}", taint.key);
        (key, format!("{}:{}", taint.value, taint.effect))
    }));
    tags
}

fn no_build(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    if nodes.windows.is_none() {
        writeln!(
            out,
            "# Without --windows the build is not rendered, and pods of a RuntimeClass cannot scale it up from zero."
        )?;
    }
    Ok(())
}

fn cluster_autoscaler(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(out, "# Tags of the Auto Scaling group. Other clouds have other ways, which are not rendered.")?;
    no_build(out, nodes)?;
    autoscaler_tags(nodes).iter().try_for_each(|(key, value)| writeln!(out, "{}: {}", json!(key), json!(value)))
}

fn eksctl(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    no_build(out, nodes)?;
    writeln!(out, "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nnodeGroups:\n- name: {}", json!(nodes.pool))?;
    if let Some(windows) = nodes.windows {
        writeln!(out, "  amiFamily: WindowsServer{}FullContainer", windows.version)?;
    }
    if !nodes.labels.is_empty() {
        writeln!(out, "  labels:")?;
        label_map(out, "    ", &nodes.labels)?;
    }
    if !nodes.taints.is_empty() {
        writeln!(out, "  taints:")?;
        taint_list(out, "  ", &nodes.taints)?;
    }
    writeln!(out, "  tags:")?;
    autoscaler_tags(nodes).iter().try_for_each(|(key, value)| writeln!(out, "    {}: {}", json!(key), json!(value)))
}

fn aks(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(
        out,
        "# Labels and taints of the node pool API cannot be changed through Kubernetes afterwards, and vice versa."
    )?;
    let mut parts = vec!["az aks nodepool add --os-type Windows".to_owned()];
    if let Some(windows) = nodes.windows {
        parts.push(format!("--os-sku Windows{}", windows.version));
    }
    if !nodes.labels.is_empty() {
        parts.push(format!("--labels {}", nodes.labels_as(" ")));
    }
    if !nodes.taints.is_empty() {
        parts.push(format!("--node-taints {}", nodes.taints_as_text()));
    }
    writeln!(out, "{}", parts.join(" \\\n  "))
}

fn gke(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    let mut parts = vec!["gcloud container node-pools create --image-type=WINDOWS_LTSC_CONTAINERD".to_owned()];
    if let Some(windows) = nodes.windows {
        parts.push(format!("--windows-os-version=ltsc{}", windows.version));
    }
    if !nodes.labels.is_empty() {
        parts.push(format!("--node-labels={}", nodes.labels_as(",")));
    }
    if !nodes.taints.is_empty() {
        parts.push(format!("--node-taints={}", nodes.taints_as_text()));
    }
    writeln!(out, "{}", parts.join(" \\\n  "))
}
