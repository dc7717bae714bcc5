//! Node pools of AKS and GKE.

use std::fmt::{self, Write};

use winpool_core::windows::builds::{self, Cloud, Product};
use winpool_core::words::joined;

use crate::support::{Statement, Vendor};

use super::nodes::Nodes;
use super::provisioner::Provisioner;

/// Returns the reason if a node pool cannot get this Windows version, so that no command is rendered.
pub fn refusal(provisioner: Provisioner, windows: &Product) -> Option<String> {
    let (cloud, has) = match provisioner {
        Provisioner::Aks => (Cloud::Aks, "AKS has node pools"),
        Provisioner::Gke => (Cloud::Gke, "GKE has node pools"),
        Provisioner::Karpenter | Provisioner::Eksctl => (Cloud::Aws, "AWS has images"),
        Provisioner::Kubelet | Provisioner::ClusterAutoscaler | Provisioner::NodeReadiness => return None,
    };
    if windows.clouds.contains(&cloud) {
        return None;
    }
    let version = windows.version;
    Some(match Vendor::Aks.support_end(windows.build).filter(|_| cloud == Cloud::Aks) {
        Some(end) => format!("AKS supported Windows {version} until {end}. Use {}", offered(cloud, "or")),
        None => format!("{has} of Windows {} only, not of {version}", offered(cloud, "and")),
    })
}

/// Returns the versions that a cloud offers: `2019, 2022 and 2025`.
fn offered(cloud: Cloud, word: &str) -> String {
    let offered = builds::all().iter().filter(|product| product.clouds.contains(&cloud));
    let versions = joined(offered.map(|product| product.version));
    versions.rsplit_once(", ").map_or(versions.clone(), |(first, last)| format!("{first} {word} {last}"))
}

pub(super) fn aks(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(
        out,
        "# Labels and taints of the node pool API cannot be changed through Kubernetes afterwards, and vice versa."
    )?;
    writeln!(out, "# Add the names of the resource group, the cluster and the node pool.")?;
    let mut parts = vec!["az aks nodepool add --os-type Windows".to_owned()];
    match nodes.windows.map(|windows| windows.version) {
        Some("2025") => parts.push("--os-sku Windows2025 --enable-fips-image".to_owned()),
        Some(version) => {
            let statement = nodes.windows.and_then(|windows| Statement::of(Vendor::Aks, windows.build));
            if let Some(removed) = statement.and_then(|statement| statement.removed) {
                writeln!(out, "# Kubernetes 1.{removed} and later have no node pools of Windows {version}.")?;
            }
            parts.push(format!("--os-sku Windows{version}"));
        }
        None => {}
    }
    let labels = nodes.template_labels_as_text(" ");
    if !labels.is_empty() {
        parts.push(format!("--labels {labels}"));
    }
    if !nodes.taints.is_empty() {
        parts.push(format!("--node-taints {}", nodes.taints_as_text()));
    }
    writeln!(out, "{}", parts.join(" \\\n  "))
}

pub(super) fn gke(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    if !nodes.never {
        let taint = "GKE itself adds the taint node.kubernetes.io/os=windows:NoSchedule";
        writeln!(out, "# {taint}, and winpool leaves it there.")?;
    }
    writeln!(out, "# Add the names of the cluster and the node pool.")?;
    let mut parts = vec!["gcloud container node-pools create --image-type=WINDOWS_LTSC_CONTAINERD".to_owned()];
    if let Some(windows) = nodes.windows {
        parts.push(format!("--windows-os-version=ltsc{}", windows.version));
    }
    let labels = nodes.template_labels_as_text(",");
    if !labels.is_empty() {
        parts.push(format!("--node-labels={labels}"));
    }
    if !nodes.taints.is_empty() {
        parts.push(format!("--node-taints={}", nodes.taints_as_text()));
    }
    writeln!(out, "{}", parts.join(" \\\n  "))
}
