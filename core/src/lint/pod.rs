//! A pod spec as it was written, and what it says about its operating system.
//!
//! JSON and not the typed pod spec: the API server refuses `privileged: false` and `seLinuxOptions: {}` too, so what is
//! absent must be told from what is empty; and a field of a wrong type must not hide the rest.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Toleration;
use serde::Deserialize;
use serde_json::Value;

use crate::{api::names, windows::Build};

/// The operating system label before Kubernetes 1.14.
pub const BETA_OS: &str = "beta.kubernetes.io/os";
pub(super) const OS_KEYS: [&str; 2] = [names::OS, BETA_OS];
const REQUIRED: [&str; 4] =
    ["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// A value deep in an object; `null` counts as absent, as it does for the API server.
#[must_use]
pub fn get<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// A pod spec.
#[derive(Clone, Copy, Debug)]
pub struct Pod<'a>(pub &'a Value);

/// What a workload is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Windows: by `os.name`, or else a node selector, required node affinity, a class, or Windows' own options.
    Windows,
    /// Nothing says so but an image that can only be for Windows.
    WindowsImage,
    /// Linux.
    Linux,
    /// It does not say.
    Unsaid,
}

/// One expression of a required node selector term.
#[derive(Clone, Copy, Debug)]
pub struct Expression<'a> {
    /// The label.
    pub key: &'a str,
    /// `In`, `Exists` and so on.
    pub operator: &'a str,
    values: &'a Value,
}

impl<'a> Expression<'a> {
    /// The values.
    pub fn values(self) -> impl Iterator<Item = &'a str> {
        self.values.as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    fn is_in(self) -> bool {
        self.operator == "In"
    }

    /// Whether it asks for a label that only Windows nodes have, or for the value of the operating system label.
    fn says(self, os: &str) -> bool {
        let mut values = self.values().peekable();
        let names_os =
            OS_KEYS.contains(&self.key) && self.is_in() && values.peek().is_some() && values.all(|value| value == os);
        names_os || os == names::WINDOWS && is_windows_only(self.key) && matches!(self.operator, "In" | "Exists")
    }
}

/// Whether only Windows nodes have this label.
fn is_windows_only(key: &str) -> bool {
    key == names::WINDOWS_BUILD || key.starts_with(names::CAPABILITY_LABEL_PREFIX)
}

impl<'a> Pod<'a> {
    /// A value in the pod spec.
    #[must_use]
    pub fn get(self, path: &[&str]) -> Option<&'a Value> {
        get(self.0, path)
    }

    fn text(self, path: &[&str]) -> Option<&'a str> {
        self.get(path).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// `os.name`.
    #[must_use]
    pub fn os(self) -> Option<&'a str> {
        self.text(&["os", "name"])
    }

    /// `runtimeClassName`.
    #[must_use]
    pub fn class(self) -> Option<&'a str> {
        self.text(&["runtimeClassName"])
    }

    /// `nodeName`: the node is chosen already.
    #[must_use]
    pub fn node(self) -> Option<&'a str> {
        self.text(&["nodeName"])
    }

    /// Whether `hostNetwork` is true.
    #[must_use]
    pub fn has_host_network(self) -> bool {
        self.get(&["hostNetwork"]) == Some(&Value::Bool(true))
    }

    /// All containers with their path.
    pub fn containers(self) -> impl Iterator<Item = (String, &'a Value)> {
        CONTAINERS.into_iter().flat_map(move |list| {
            let containers = self.0.get(list).and_then(Value::as_array).into_iter().flatten().enumerate();
            containers.map(move |(index, container)| (format!("{list}[{index}]"), container))
        })
    }

    /// `volumes`, with the index of each.
    pub fn volumes(self) -> impl Iterator<Item = (usize, &'a Value)> {
        self.get(&["volumes"]).and_then(Value::as_array).into_iter().flatten().enumerate()
    }

    /// The images of all containers, with the path of each.
    pub fn images(self) -> impl Iterator<Item = (String, &'a str)> {
        self.containers()
            .filter_map(|(path, container)| Some((format!("{path}.image"), container.get("image")?.as_str()?)))
    }

    /// `nodeSelector`.
    pub fn selector(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let map = self.get(&["nodeSelector"]).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// A value in `nodeSelector`.
    #[must_use]
    pub fn selected(self, key: &str) -> Option<&'a str> {
        self.selector().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The terms of the required node affinity, of which one has to match; none means no requirement.
    #[must_use]
    pub fn terms(self) -> Vec<Vec<Expression<'a>>> {
        let terms = self.get(&REQUIRED).and_then(Value::as_array).into_iter().flatten();
        let text = |value: &'a Value| value.as_str().unwrap_or_default();
        terms
            .map(|term| {
                let expressions = term["matchExpressions"].as_array().into_iter().flatten();
                expressions
                    .map(|e| Expression { key: text(&e["key"]), operator: text(&e["operator"]), values: &e["values"] })
                    .collect()
            })
            .collect()
    }

    /// Whether every term of the required node affinity has an expression like this.
    pub(super) fn every_term(self, says: impl Fn(Expression<'a>) -> bool) -> bool {
        let terms = self.terms();
        !terms.is_empty() && terms.iter().all(|term| term.iter().copied().any(&says))
    }

    /// The values of a label that the required node affinity allows, if every term restricts them.
    #[must_use]
    pub fn affinity_values(self, key: &str) -> Option<BTreeSet<&'a str>> {
        let is_about = |e: Expression<'_>| e.key == key && e.is_in();
        let of_terms = || self.terms().into_iter().flatten().filter(|e| is_about(*e)).flat_map(Expression::values);
        self.every_term(is_about).then(|| of_terms().collect())
    }

    /// `tolerations`; those of a wrong type are left out.
    #[must_use]
    pub fn tolerations(self) -> Vec<Toleration> {
        let list = self.get(&["tolerations"]).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|toleration| Toleration::deserialize(toleration).ok()).collect()
    }

    /// The builds that selector and affinity name; `None` when they name none. What is no build is left out.
    #[must_use]
    pub fn builds(self) -> Option<BTreeSet<Build>> {
        let selected = self.selected(names::WINDOWS_BUILD).map(|value| BTreeSet::from([value]));
        let values = selected.or_else(|| self.affinity_values(names::WINDOWS_BUILD))?;
        Some(values.into_iter().filter_map(|value| value.parse().ok()).collect())
    }

    /// Whether `nodeSelector` or the required affinity sends it to nodes of this system.
    #[must_use]
    pub fn is_placed_on(self, os: &str) -> bool {
        self.selects(os) || self.every_term(|expression| expression.says(os))
    }

    fn selects(self, os: &str) -> bool {
        self.selector()
            .any(|(key, value)| OS_KEYS.contains(&key) && value == os || os == names::WINDOWS && is_windows_only(key))
    }

    /// Whether the pod or a container has `securityContext.windowsOptions`.
    #[must_use]
    pub fn has_windows_options(self) -> bool {
        let options = ["securityContext", "windowsOptions"];
        self.get(&options).is_some() || self.containers().any(|(_, container)| get(container, &options).is_some())
    }

    /// For each container, whether it is a host-process container: its own word, or else that of the pod.
    pub fn host_process(self) -> impl Iterator<Item = bool> {
        let path = ["securityContext", "windowsOptions", "hostProcess"];
        let of_pod = self.get(&path).and_then(Value::as_bool);
        self.containers()
            .map(move |(_, container)| get(container, &path).and_then(Value::as_bool).or(of_pod).unwrap_or(false))
    }
}
