//! Karpenter, cluster-autoscaler and eksctl on AWS.

use std::fmt::{self, Write};

use serde_json::json;
use winpool_core::api::{DEFAULT_ARCHITECTURE, names};

use super::nodes::{Nodes, is_of_instance_types};
use super::yaml::{label_map, taint_list};

/// The extended resource with which the VPC resource controller counts the addresses for Windows pods.
const ADDRESSES: &str = "vpc.amazonaws.com/PrivateIPv4Address";

pub(super) fn karpenter(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    let name = nodes.windows.map_or_else(|| nodes.pool.to_owned(), |of| format!("{}-{}", nodes.pool, of.version));
    match nodes.windows.map(|windows| windows.version) {
        Some(version) => {
            writeln!(
                out,
                "# EC2NodeClass {name} has amiSelectorTerms: [{{alias: windows{version}@latest}}], or amiFamily: Windows{version}."
            )?;
            if version == "2025" {
                writeln!(out, "# Windows 2025 needs EKS 1.35 or later.")?;
            }
        }
        None => writeln!(
            out,
            "# Without --windows the build is not rendered. Karpenter then starts a node of any build for a pod, unless the EC2NodeClass sets the build."
        )?,
    }
    writeln!(out, "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: {}", json!(name))?;
    writeln!(out, "spec:\n  template:")?;
    let labels = nodes.template_labels();
    let (requirements, labels): (Vec<_>, Vec<_>) = labels.into_iter().partition(|(key, _)| is_of_instance_types(key));
    if !labels.is_empty() {
        writeln!(out, "    metadata:\n      labels:")?;
        label_map(out, "        ", &labels)?;
    }
    writeln!(out, "    spec:\n      nodeClassRef:\n        group: karpenter.k8s.aws\n        kind: EC2NodeClass")?;
    writeln!(out, "        name: {}\n      requirements:", json!(name))?;
    let build = nodes.windows.map(|windows| windows.build.to_string());
    let build = build.iter().map(|build| (names::WINDOWS_BUILD, build.as_str()));
    for (key, value) in [(names::OS, names::WINDOWS)].into_iter().chain(build).chain(requirements) {
        writeln!(out, "      - key: {key}\n        operator: In\n        values: [{}]", json!(value))?;
    }
    if !nodes.taints.is_empty() {
        writeln!(out, "      taints:")?;
        taint_list(out, "      ", &nodes.taints)?;
    }
    Ok(())
}

/// Returns the tags from which cluster-autoscaler learns the properties of a node before it exists.
fn autoscaler_tags(nodes: &Nodes<'_>) -> Vec<(String, String)> {
    let label =
        |key: &str, value: &str| (format!("k8s.io/cluster-autoscaler/node-template/label/{key}"), value.to_owned());
    let mut tags = vec![label(names::OS, names::WINDOWS), label(names::ARCH, DEFAULT_ARCHITECTURE)];
    tags.extend(nodes.windows.map(|windows| label(names::WINDOWS_BUILD, &windows.build.to_string())));
    tags.extend(nodes.template_labels().into_iter().map(|(key, value)| label(key, value)));
    tags.extend(nodes.taints.iter().map(|taint| {
        let key = format!("k8s.io/cluster-autoscaler/node-template/taint/{}", taint.key);
        (key, format!("{}:{}", taint.value, taint.effect.as_str()))
    }));
    tags
}

fn write_tags(out: &mut String, indent: &str, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(
        out,
        "{indent}# On EKS also \"k8s.io/cluster-autoscaler/node-template/resources/{ADDRESSES}\", with the number of addresses \
         that the instance type has for pods."
    )?;
    let tags = autoscaler_tags(nodes);
    tags.iter().try_for_each(|(key, value)| writeln!(out, "{indent}{}: {}", json!(key), json!(value)))
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

pub(super) fn cluster_autoscaler(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    writeln!(out, "# Tags of the Auto Scaling group. For other clouds, see the documentation of cluster-autoscaler.")?;
    no_build(out, nodes)?;
    write_tags(out, "", nodes)
}

pub(super) fn eksctl(out: &mut String, nodes: &Nodes<'_>) -> fmt::Result {
    no_build(out, nodes)?;
    if nodes.windows.is_none() {
        writeln!(
            out,
            "# Add amiFamily, which is not rendered without --windows: by default eksctl creates Linux nodes."
        )?;
    }
    writeln!(out, "# Add the metadata, name and region, of your cluster.")?;
    writeln!(out, "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nnodeGroups:\n- name: {}", json!(nodes.pool))?;
    if let Some(version) = nodes.windows.map(|windows| windows.version) {
        if version == "2025" {
            writeln!(out, "  # Windows 2025 needs eksctl 0.222 or later and EKS 1.35 or later.")?;
        }
        writeln!(out, "  # or WindowsServer{version}CoreContainer")?;
        writeln!(out, "  amiFamily: WindowsServer{version}FullContainer")?;
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
    write_tags(out, "    ", nodes)
}
