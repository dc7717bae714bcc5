//! The labels and taints of a pool's nodes, for a provisioner.

use std::collections::BTreeSet;

use winpool_core::api::{Taint, names};
use winpool_core::plan::classes::is_declared;
use winpool_core::plan::nodes::capability_labels;
use winpool_core::plan::pools::pool::{Hosts, Pool, WantedTaints};
use winpool_core::pod::BETA_OS;
use winpool_core::windows::builds::{self, Product};
use winpool_core::windows::compatibility::can_run;

use super::provisioner::Provisioner;

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

/// The labels and taints with which nodes of the pool must register.
pub(super) struct Nodes<'a> {
    pub(super) pool: &'a str,
    pub(super) labels: Vec<(&'a str, &'a str)>,
    /// Capability labels of the classes whose images these nodes run.
    pub(super) capabilities: BTreeSet<String>,
    /// Labels that the provisioner may not set.
    pub(super) refused: Vec<&'a str>,
    pub(super) taints: Vec<Taint>,
    pub(super) never: bool,
    pub(super) windows: Option<&'a Product>,
}

impl<'a> Nodes<'a> {
    pub(super) fn of(provisioner: Provisioner, pool: &'a Pool, windows: Option<&'a Product>) -> Self {
        let windows = windows.or_else(|| selected_windows(pool));
        let is_rendered = |key: &str| BY_KUBELET.contains(&key) || windows.is_some() && key == names::WINDOWS_BUILD;
        let labels = pool.spec.node_selector.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let labels = labels.filter(|(key, _)| !is_rendered(key));
        let (labels, refused): (Vec<_>, Vec<_>) = labels.partition(|(key, _)| may_set(provisioner, key));
        // A pool without `taints` keeps the taint that GKE adds to each Windows node.
        let is_kept = provisioner == Provisioner::Gke && pool.spec.wants == Some(WantedTaints::Guard);
        Self {
            pool: &pool.spec.name,
            labels,
            refused: refused.into_iter().map(|(key, _)| key).collect(),
            capabilities: windows.map(|windows| capabilities(pool, windows)).unwrap_or_default(),
            taints: if is_kept { Vec::new() } else { pool.spec.wanted_taints() },
            never: pool.spec.wants.is_none(),
            windows,
        }
    }

    /// Returns the labels from which an autoscaler learns the properties of a node before it exists. They include the
    /// labels that winpool adds later.
    pub(super) fn template_labels(&self) -> Vec<(&str, &str)> {
        let capabilities = self.capabilities.iter().map(|key| (key.as_str(), "true"));
        self.labels.iter().copied().chain(capabilities).collect()
    }

    pub(super) fn template_labels_as_text(&self, separator: &str) -> String {
        as_text(&self.template_labels(), separator)
    }

    pub(super) fn taints_as_text(&self) -> String {
        let taints =
            self.taints.iter().map(|Taint { key, value, effect }| format!("{key}={value}:{}", effect.as_str()));
        taints.collect::<Vec<_>>().join(",")
    }
}

/// Returns the Windows version whose build the pool selects, if it selects one.
pub(super) fn selected_windows(pool: &Pool) -> Option<&'static Product> {
    builds::by_build(pool.spec.node_selector.get(names::WINDOWS_BUILD)?.parse().ok()?)
}

/// Returns the keys of the labels that winpool adds to nodes of this Windows version for classes with `Compatible`
/// hosts, declared or discovered.
fn capabilities(pool: &Pool, windows: &Product) -> BTreeSet<String> {
    let declared = pool.spec.declared.iter().map(|(hosts, _)| *hosts);
    let with_images = builds::all().iter().filter(|product| !product.base_tags.is_empty());
    let is_new = |name: String| pool.spec.discover && !is_declared(pool, &name);
    let discovered =
        with_images.map(|product| product.build).filter(|build| pool.spec.class_name(*build).is_some_and(is_new));
    let hosts_of_classes = declared.chain(discovered.map(|build| pool.spec.discovered_hosts(build)));
    let runs = |hosts: Hosts| match hosts {
        Hosts::Running(image) if can_run(image, windows.build) => Some(capability_labels::key(image)),
        _ => None,
    };
    hosts_of_classes.filter_map(runs).collect()
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
        Provisioner::Karpenter => is_of_instance_types(key) || !kubernetes || allowed,
        Provisioner::Kubelet => !kubernetes || allowed || OF_PLACE.contains(&key),
        _ => !kubernetes || allowed,
    }
}

pub(super) fn as_text(labels: &[(&str, &str)], separator: &str) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(separator)
}

/// Labels of instance types, which become requirements. Source: `pkg/apis/v1/labels.go` of Karpenter, and of its AWS
/// provider for the prefix.
const OF_INSTANCE_TYPES: [&str; 6] = [
    names::ARCH,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "karpenter.sh/capacity-type",
    names::WINDOWS_BUILD,
];

pub(super) fn is_of_instance_types(key: &str) -> bool {
    OF_INSTANCE_TYPES.contains(&key) || key.starts_with("karpenter.k8s.aws/")
}
