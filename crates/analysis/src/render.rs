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
mod nodes;
mod provisioner;
mod yaml;

use std::fmt::{self, Write};

use serde_json::json;
use winpool_core::api::names;
use winpool_core::plan::pools::pool::Pool;
use winpool_core::windows::builds::Product;
use winpool_core::words::joined;

use nodes::{Nodes, as_text, selected_windows};
use yaml::{label_map, taint_list};

pub use managed::refusal;
pub use provisioner::{PROVISIONERS, Provisioner};

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
            joined(&nodes.capabilities)
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
