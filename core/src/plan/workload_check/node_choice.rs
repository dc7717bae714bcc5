//! The requirements of a pod on its node, and the operating system that they imply.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorTerm;

use crate::{
    api::names,
    labels::Labels,
    pod::{
        Class, OS_KEYS, PodSpec, Target,
        affinity::{holds, matches_affinity},
    },
};

/// The answer to "is this pod for Windows?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForWindows {
    Yes,
    /// Only if its [`NodeChoice`] matches no node of another system.
    IfNoOtherNode,
    No,
}

impl ForWindows {
    /// Reads an admitted pod.
    pub(crate) fn of(spec: &PodSpec) -> Self {
        Self::with(spec, None)
    }

    /// Reads a template with its class.
    pub(crate) fn with(spec: &PodSpec, class: Option<&Class>) -> Self {
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
    pub(crate) fn of(spec: &PodSpec) -> Self {
        Self { selector: spec.node_selector.clone(), terms: spec.terms.clone() }
    }

    /// True if a node with these labels and this name meets it.
    pub fn matches(&self, labels: &Labels, name: &str) -> bool {
        labels.matches(&self.selector) && matches_affinity(&self.terms, labels, name)
    }

    pub(super) fn key(&self) -> String {
        serde_json::to_string(&(&self.selector, &self.terms)).unwrap_or_default()
    }
}

/// True if no Windows node with these labels, and any others, can meet node selector and required affinity of the pod.
pub(super) fn contradicts(spec: &PodSpec, labels: &BTreeMap<String, String>) -> bool {
    let known = |key: &str| {
        let is_os = OS_KEYS.contains(&key);
        if is_os { Some(names::WINDOWS) } else { labels.get(key).map(String::as_str) }
    };
    let differs = |(key, value): (&String, &String)| known(key).is_some_and(|known| known != value);
    let fails = |term: &NodeSelectorTerm| {
        let mut known = term.match_expressions.iter().flatten().filter_map(|e| Some((e, known(&e.key)?)));
        known.any(|(expression, value)| !holds(expression, Some(value)))
    };
    spec.node_selector.iter().any(differs) || !spec.terms.is_empty() && spec.selecting_terms().all(fails)
}
