//! The operating system that a pod is for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::NodeSelectorRequirement;

use crate::{api::names, windows::image};

use super::{Class, PodSpec};

/// The operating system label before Kubernetes 1.14.
pub(crate) const BETA_OS: &str = "beta.kubernetes.io/os";
pub(crate) const OS_KEYS: [&str; 2] = [names::OS, BETA_OS];

/// The operating system that a pod is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Windows: by `os.name`, or else a node selector, required node affinity, a class, or `windowsOptions`.
    Windows,
    /// Windows, but only by an image that can only be for Windows.
    WindowsImage,
    Linux,
    /// The pod does not specify a system.
    Unsaid,
}

impl PodSpec {
    /// Returns the system that the pod is for. `os.name` takes precedence. Without it, one indication of Windows in the
    /// pod or its class is sufficient.
    pub fn target(&self, class: Option<&Class>) -> Target {
        match self.os.as_deref() {
            Some(names::WINDOWS) => return Target::Windows,
            Some(_) => return Target::Linux,
            None => {}
        }
        let by_class = |selects: fn(&BTreeMap<String, String>) -> bool| class.is_some_and(|c| selects(&c.selector));
        if self.is_placed_on_windows() || self.has_windows_options || by_class(selects_windows) {
            Target::Windows
        } else if selects_another_system(&self.node_selector)
            || self.every_term(|e| expects_another_system(e) || excludes(e, names::WINDOWS))
            || by_class(selects_another_system)
        {
            Target::Linux
        } else if self.images().any(|(_, name)| image::is_for_windows(name)) {
            Target::WindowsImage
        } else {
            Target::Unsaid
        }
    }

    /// Returns true if `nodeSelector` or the required node affinity excludes nodes of other systems.
    pub fn is_placed_on_windows(&self) -> bool {
        selects_windows(&self.node_selector) || self.every_term(|e| expects_windows(e) || excludes(e, "linux"))
    }

    /// Returns true if nothing in the pod specifies an operating system.
    pub fn says_no_system(&self) -> bool {
        let mut affinity = self.terms.iter().flat_map(|term| term.match_expressions.iter().flatten());
        self.os.is_none()
            && self.runtime_class.is_none()
            && !self.has_windows_options
            && !self.node_selector.keys().any(|key| tells_the_system(key))
            && !affinity.any(|expression| tells_the_system(&expression.key))
    }

    /// Returns true if it specifies Windows in a field that the admission policies read. They read neither
    /// `windowsOptions` nor, in affinity, capability labels and `NotIn`.
    pub(crate) fn says_windows_to_policies(&self) -> bool {
        let is_read = |expression: &NodeSelectorRequirement| {
            !expression.key.starts_with(names::CAPABILITY_LABEL_PREFIX) && expects_windows(expression)
        };
        self.os.as_deref() == Some(names::WINDOWS) || selects_windows(&self.node_selector) || self.every_term(is_read)
    }

    /// Returns true if it selects nodes only by operating system and architecture.
    pub(crate) fn selects_no_more_than_a_system(&self) -> bool {
        let arch = [names::ARCH, "beta.kubernetes.io/arch"];
        let of_system = |key: &String| OS_KEYS.contains(&key.as_str()) || arch.contains(&key.as_str());
        self.terms.is_empty() && self.node_selector.keys().all(of_system)
    }

    /// Returns true if every term of the required node affinity that can select a node has an expression like this.
    fn every_term(&self, expects: impl Fn(&NodeSelectorRequirement) -> bool) -> bool {
        let mut terms = self.selecting_terms().peekable();
        terms.peek().is_some() && terms.all(|term| term.match_expressions.iter().flatten().any(&expects))
    }
}

/// Returns true if a node label with this key specifies the operating system of the node.
pub fn tells_the_system(key: &str) -> bool {
    OS_KEYS.contains(&key) || is_on_windows_only(key)
}

fn is_on_windows_only(key: &str) -> bool {
    key == names::WINDOWS_BUILD || key.starts_with(names::CAPABILITY_LABEL_PREFIX)
}

/// Returns true if only Windows nodes have these labels.
pub fn selects_windows(selector: &BTreeMap<String, String>) -> bool {
    let is_windows = |key: &str, value: &str| OS_KEYS.contains(&key) && value == names::WINDOWS;
    selector.iter().any(|(key, value)| is_windows(key, value) || is_on_windows_only(key))
}

fn selects_another_system(selector: &BTreeMap<String, String>) -> bool {
    selector.iter().any(|(key, value)| OS_KEYS.contains(&key.as_str()) && value != names::WINDOWS)
}

fn expects_windows(expression: &NodeSelectorRequirement) -> bool {
    expects_os(expression, |os| os == names::WINDOWS)
        || is_on_windows_only(&expression.key) && (is_in(expression) || expression.operator == "Exists")
}

fn expects_another_system(expression: &NodeSelectorRequirement) -> bool {
    expects_os(expression, |os| os != names::WINDOWS)
}

/// Returns true if nodes of this system do not match. There are only Linux and Windows nodes.
fn excludes(expression: &NodeSelectorRequirement, os: &str) -> bool {
    let mut values = expression.values.iter().flatten();
    OS_KEYS.contains(&expression.key.as_str()) && expression.operator == "NotIn" && values.any(|value| value == os)
}

fn expects_os(expression: &NodeSelectorRequirement, is_meant: impl Fn(&str) -> bool) -> bool {
    let mut values = expression.values.iter().flatten();
    OS_KEYS.contains(&expression.key.as_str()) && is_in(expression) && values.all(|value| is_meant(value))
}

fn is_in(expression: &NodeSelectorRequirement) -> bool {
    expression.operator == "In" && expression.values.as_ref().is_some_and(|values| !values.is_empty())
}
