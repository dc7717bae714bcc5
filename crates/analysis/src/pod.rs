//! What answers ask of pods and RuntimeClasses beyond what decides about nodes.

pub mod error;
mod object;
mod programs;
mod spec;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};
use winpool_core::api::{Isolation, names};
use winpool_core::labels::Labels;
use winpool_core::plan::nodes::capability_labels;
use winpool_core::pod::Class;
use winpool_core::pod::affinity::{found, holds, is_empty};
use winpool_core::pod::tolerations::normalised;
use winpool_core::windows::Build;
use winpool_core::windows::builds::{by_build, by_version};

use crate::image::name::build_of;

pub use error::{PodError, PodEvent};
pub(crate) use object::is_of_debugger;
pub use object::{Pod, table_of};
pub use spec::{Container, ContainerList, PodSpec};
pub use target::{Guess, SystemEvidence, Target};

pub trait ClassExt {
    /// Returns the build in its selector.
    fn build(&self) -> Option<Build>;
    /// Returns the operating system in its selector.
    fn os(&self) -> Option<&str>;
    /// Returns the isolation that its handler's name indicates. Names in use are `runhcs-wcow-hypervisor` (containerd's
    /// own), `runhcs-wcow-hypervisor-17763`, `runhcs-wcow-hyperv` and `containerd-hyperv-17763`.
    fn isolation(&self) -> Isolation;
    /// Returns the build of the images that its nodes run: the build that it selects, or that of its capability label.
    fn image_build(&self) -> Option<Build>;
    /// Orders classes of the same build: process isolation, few labels, and a name like that of a discovered class are first.
    fn preference(&self, name: &str) -> (bool, usize, usize, String);
    /// Returns a label for which the class and the pod select different values. The API server refuses such a pod.
    fn conflict(&self, spec: &PodSpec) -> Option<&str>;
    /// Adds the selector and the tolerations of the class to a pod, like the API server's admission. Has no effect on a
    /// pod that is already admitted.
    fn admit(&self, spec: &mut PodSpec);
    /// Removes from a pod what admission with this class added, as far as that can be determined.
    fn remove_from(&self, spec: &mut PodSpec);
}

/// Returns the isolation of pods that have this class.
pub fn isolation_with(class: Option<&Class>) -> Isolation {
    class.map_or(Isolation::Process, Class::isolation)
}

impl ClassExt for Class {
    fn build(&self) -> Option<Build> {
        self.selector.get(names::WINDOWS_BUILD)?.parse().ok()
    }

    fn os(&self) -> Option<&str> {
        self.selector.get(names::OS).map(String::as_str)
    }

    fn isolation(&self) -> Isolation {
        if self.handler.contains("hyperv") { Isolation::HyperV } else { Isolation::Process }
    }

    fn image_build(&self) -> Option<Build> {
        self.build().or_else(|| self.selector.keys().find_map(|key| capability_labels::build_of(key)))
    }

    fn preference(&self, name: &str) -> (bool, usize, usize, String) {
        let version = self.image_build().and_then(by_build).map(|product| product.version);
        let number = self.image_build().map(|build| build.number().to_string());
        let unnamed = [Some(names::WINDOWS), version.or(number.as_deref())].into_iter().flatten();
        let unnamed = unnamed.filter(|word| !name.contains(word)).count();
        (self.isolation() == Isolation::HyperV, self.selector.len(), unnamed, name.to_owned())
    }

    fn conflict(&self, spec: &PodSpec) -> Option<&str> {
        self.selector.iter().find(|(key, value)| spec.selects_another(key, value)).map(|(key, _)| key.as_str())
    }

    fn admit(&self, spec: &mut PodSpec) {
        for (key, value) in &self.selector {
            spec.node_selector.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for toleration in &self.tolerations {
            if !spec.tolerations.contains(toleration) {
                spec.tolerations.push(toleration.clone());
            }
        }
    }

    fn remove_from(&self, spec: &mut PodSpec) {
        spec.runtime_class = None;
        spec.node_selector.retain(|key, value| self.selector.get(key) != Some(value));
        // The API server adds them as they are written in the class, perhaps without an operator.
        let is_of_class = |toleration: &Toleration| {
            normalised([toleration.clone()]).iter().all(|normal| self.tolerations.contains(normal))
        };
        spec.tolerations.retain(|toleration| !is_of_class(toleration));
    }
}

/// Returns the class that somebody who wrote this name probably means: the one with the most similar name. A name that contains
/// another Windows version is not a misspelling.
pub fn similar_class<'a>(name: &str, classes: &'a BTreeMap<String, Class>) -> Option<&'a str> {
    let versions = name.split('-').filter(|word| by_version(word).is_some());
    let has_versions = |other: &str| versions.clone().all(|version| other.split('-').any(|word| word == version));
    let distance = |other: &str| strsim::damerau_levenshtein(name, other);
    let candidates = classes.keys().filter(|other| has_versions(other));
    let (distance, closest) = candidates.map(|other| (distance(other), other)).min()?;
    let length = name.chars().count();
    (distance * 4 <= length && distance <= (length / 8).max(1)).then_some(closest)
}

impl PodSpec {
    /// Returns the value that `nodeSelector` requires for a label.
    pub fn selected(&self, key: &str) -> Option<&str> {
        self.node_selector.get(key).map(String::as_str)
    }

    /// True if `nodeSelector` requires another value for the label.
    pub fn selects_another(&self, key: &str, value: &str) -> bool {
        self.selected(key).is_some_and(|selected| selected != value)
    }

    /// Returns the values of a label that the required node affinity allows, if every term restricts them.
    pub fn affinity_values(&self, key: &str) -> Option<BTreeSet<&str>> {
        let by_term: Vec<_> = self.selecting_terms().map(|term| values_of(term, key)).collect();
        let is_restricted = !by_term.is_empty() && by_term.iter().all(|values| !values.is_empty());
        is_restricted.then(|| by_term.into_iter().flatten().flatten().map(String::as_str).collect())
    }

    /// Returns the builds in `nodeSelector` and the required node affinity; `None` if they contain none. Omits values
    /// that are not builds.
    pub fn builds(&self) -> Option<BTreeSet<Build>> {
        let selected = self.selected(names::WINDOWS_BUILD).map(|value| BTreeSet::from([value]));
        let values = selected.or_else(|| self.affinity_values(names::WINDOWS_BUILD))?;
        Some(values.into_iter().filter_map(|value| value.parse().ok()).collect())
    }

    /// Returns the builds of the nodes on which it may run, by its selector and affinity, and by its class. If they contradict,
    /// returns its own.
    pub fn wanted_builds(&self, class: Option<&Class>) -> Option<BTreeSet<Build>> {
        let of_pod = self.builds();
        let of_class = class.and_then(Class::build);
        match of_class.filter(|build| of_pod.as_ref().is_none_or(|of_pod| of_pod.contains(build))) {
            Some(build) => Some(BTreeSet::from([build])),
            None => of_pod,
        }
    }

    /// Returns the builds in the tags of the images that the pod needs, each with its container.
    pub fn image_builds(&self) -> impl Iterator<Item = (&Container, Build)> {
        self.images().filter_map(|(container, name)| Some((container, build_of(name)?)))
    }

    /// Returns the only build that its selector and affinity name, or else all of its images.
    pub fn asked_build(&self) -> Option<Build> {
        let of_images = || self.image_builds().map(|(_, build)| build).collect();
        let mut builds = self.builds().unwrap_or_else(of_images).into_iter();
        builds.next().filter(|_| builds.next().is_none())
    }

    /// True if all of its containers are host-process containers, which run on every build.
    pub fn is_host_process(&self) -> bool {
        !self.containers.is_empty() && self.containers.iter().all(|container| container.is_host_process)
    }
}

/// The values of each expression by which a term restricts a label.
fn values_of<'t>(term: &'t NodeSelectorTerm, key: &str) -> Vec<&'t [String]> {
    let about = term.match_expressions.iter().flatten().filter(|e| e.key == key && e.operator == "In");
    about.map(|e| e.values.as_deref().unwrap_or_default()).collect()
}

/// Returns the path of a container in the pod spec: `initContainers[0]`.
pub fn path_of(container: &Container) -> String {
    format!("{}[{}]", container.list.as_str(), container.index)
}

/// Returns the node for which the DaemonSet controller created a pod.
pub fn daemon_set_node(pod: &Pod) -> Option<&str> {
    pod.controller.as_ref().filter(|(kind, _)| kind == "DaemonSet")?;
    let fields = pod.spec.terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let by_affinity =
        fields.filter(|field| field.key == "metadata.name").flat_map(|field| field.values.iter().flatten());
    by_affinity.map(String::as_str).next().or(pod.spec.node.as_deref())
}

/// Returns the expressions of a term that a node with these labels and this name does not match; `None` if it matches
/// all. A node must match all expressions of a term, and one term of an affinity.
pub fn failing_expressions(term: &NodeSelectorTerm, labels: &Labels, name: &str) -> Option<Vec<String>> {
    if is_empty(term) {
        return Some(vec!["something of an empty term, which selects no node".to_owned()]);
    }
    let failing = found(term, labels, name).filter(|(expression, found)| !holds(expression, *found));
    let failing: Vec<String> = failing.map(|(expression, _)| describe(expression)).collect();
    (!failing.is_empty()).then_some(failing)
}

fn describe(requirement: &NodeSelectorRequirement) -> String {
    let NodeSelectorRequirement { key, operator, values } = requirement;
    match values.as_deref() {
        Some(values) if !values.is_empty() => format!("{key} {operator} ({})", values.join(", ")),
        _ => format!("{key} {operator}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_is_added_once_and_taken_away_again() {
        let bare = Toleration { key: Some("gpu".to_owned()), ..Toleration::default() };
        let class = Class {
            handler: "h".to_owned(),
            selector: [(names::OS.to_owned(), names::WINDOWS.to_owned())].into(),
            tolerations: normalised([bare.clone()]),
        };
        let mut spec: PodSpec = serde_json::from_value(json!({"runtimeClassName": "windows-2019"})).unwrap();
        class.admit(&mut spec);
        let once = spec.clone();
        assert_eq!((once.node_selector.len(), once.tolerations.len()), (1, 1));
        class.admit(&mut spec);
        assert_eq!(spec, once, "a second time changes nothing");
        class.remove_from(&mut spec);
        assert_eq!(spec, PodSpec::default());
        spec.tolerations = vec![bare];
        class.remove_from(&mut spec);
        assert_eq!(spec, PodSpec::default(), "the API server does not add the default operator");
    }

    #[test]
    fn handlers_with_hyperv_in_their_name_isolate_by_a_virtual_machine() {
        for (handler, isolation) in [
            ("runhcs-wcow-process", Isolation::Process),
            ("docker", Isolation::Process),
            ("runhcs-wcow-hypervisor", Isolation::HyperV),
            ("runhcs-wcow-hypervisor-17763", Isolation::HyperV),
            ("runhcs-wcow-hyperv", Isolation::HyperV),
            ("containerd-hyperv-17763", Isolation::HyperV),
        ] {
            assert_eq!(Class { handler: handler.to_owned(), ..Class::default() }.isolation(), isolation, "{handler}");
        }
    }
}
