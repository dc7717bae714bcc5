//! Scaling from zero: the templates from which autoscalers create nodes, and the RuntimeClasses that these nodes can
//! serve.
//!
//! Some limits are unknown and not checked: instance types with their zones and sizes, quotas, and the remaining
//! capacity.

mod cluster_autoscaler;
mod karpenter;
mod template;

use serde_json::Value;
use winpool_core::pod::Class;

pub use karpenter::REQUIREMENTS;
pub use template::Template;

/// The configuration of the autoscalers of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Autoscalers {
    /// The templates from which they create nodes, in the order of preference.
    pub templates: Vec<Template>,
    /// The reasons why some of the configuration cannot be read.
    pub unreadable: Vec<String>,
}

impl Autoscalers {
    /// Reads NodePools, their node classes, and manifests with templates of cluster-autoscaler. Ignores other objects.
    pub fn read(objects: &[Value], unreadable: Vec<String>) -> Self {
        let mut templates = karpenter::templates(objects);
        templates.extend(objects.iter().flat_map(cluster_autoscaler::templates));
        templates.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.name.cmp(&b.name)));
        Self { templates, unreadable }
    }

    /// True if a template creates nodes for the class. `None` if that is not known.
    pub fn can_scale_from_zero(&self, class: &Class) -> Option<bool> {
        let serve: Vec<_> = self.templates.iter().map(|template| template.serves(class)).collect();
        let is_known = !serve.is_empty() && self.unreadable.is_empty() && !serve.contains(&None);
        if serve.contains(&Some(true)) { Some(true) } else { is_known.then_some(false) }
    }
}

/// True if [`Autoscalers::read`] uses objects of this kind.
pub fn are_read_from(group: &str, kind: &str) -> bool {
    match group {
        "karpenter.sh" => kind == "NodePool",
        "karpenter.k8s.aws" => kind == "EC2NodeClass",
        "karpenter.azure.com" => kind == "AKSNodeClass",
        "eksctl.io" => kind == "ClusterConfig",
        "cluster.x-k8s.io" => matches!(kind, "MachineDeployment" | "MachineSet" | "MachinePool"),
        _ => false,
    }
}
