//! Node pools of AKS and GKE.

use std::fmt::{self, Write};

use winpool_core::windows::product::Product;

use crate::support::{Statement, Vendor};

use super::{nodes::Nodes, provisioner::Provisioner};

/// Returns the reason if a node pool cannot get this Windows version, so that no command is rendered.
///
/// Sources: the table of vendors, the GKE documentation of Windows Server node pools for
/// its versions, karpenter-provider-aws#8842 and eksctl 0.222 for Windows 2025 on AWS.
pub fn refusal(provisioner: Provisioner, windows: &Product) -> Option<String> {
    let version = windows.version;
    match (provisioner, version) {
        (Provisioner::Gke, "2019" | "2022")
        | (Provisioner::Aks, "2022" | "2025")
        | (Provisioner::Karpenter | Provisioner::Eksctl, "2019" | "2022" | "2025") => None,
        (Provisioner::Gke, _) => Some(format!("GKE has node pools of Windows 2019 and 2022 only, not of {version}")),
        (Provisioner::Aks, _) => Some(match Vendor::Aks.support_end(windows.build) {
            Some(end) => format!("AKS supported Windows {version} until {end}. Use 2022 or 2025"),
            None => format!("AKS has node pools of Windows 2022 and 2025 only, not of {version}"),
        }),
        (Provisioner::Karpenter | Provisioner::Eksctl, _) => {
            Some(format!("AWS has images of Windows 2019, 2022 and 2025 only, not of {version}"))
        }
        _ => None,
    }
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
