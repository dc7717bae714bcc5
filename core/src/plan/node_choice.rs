//! The requirements of a pod on its node, and the operating system that they imply.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::{
    labels::Labels,
    pod::{Class, PodSpec, Target, affinity::matches_affinity},
};

/// The answer to "is this pod for Windows?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForWindows {
    Yes,
    /// Only if its [`NodeChoice`] matches no node of another system.
    IfNoOtherNode,
    No,
}

impl ForWindows {
    /// Reads an admitted pod.
    pub fn of(spec: &PodSpec) -> Self {
        Self::with(spec, None)
    }

    /// Reads a template with its class.
    pub fn with(spec: &PodSpec, class: Option<&Class>) -> Self {
        match spec.target(class) {
            Target::Windows => Self::Yes,
            Target::WindowsImage | Target::Unknown if !spec.node_selector.is_empty() || !spec.terms.is_empty() => {
                Self::IfNoOtherNode
            }
            Target::Linux | Target::WindowsImage | Target::Unknown => Self::No,
        }
    }
}

/// The requirements of a pod on its node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeChoice {
    pub selector: BTreeMap<String, String>,
    /// The terms of the required node affinity, one of which has to match.
    pub terms: Vec<NodeSelectorTerm>,
}

impl NodeChoice {
    pub fn of(spec: &PodSpec) -> Self {
        Self { selector: spec.node_selector.clone(), terms: spec.terms.clone() }
    }

    /// True if a node with these labels and this name meets it.
    pub fn matches(&self, labels: &Labels, name: &str) -> bool {
        labels.matches(&self.selector) && matches_affinity(&self.terms, labels, name)
    }
}
