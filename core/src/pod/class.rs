//! The part of a RuntimeClass that places pods, and the changes that the API server's `RuntimeClass` admission makes
//! to a pod.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{core::v1::Toleration, node::v1::RuntimeClass};

use crate::{
    api::{Isolation, names},
    windows::Build,
};

use super::{
    spec::PodSpec,
    tolerations::{normalised, tolerations_of},
};

/// The fields of an existing or planned RuntimeClass that winpool reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    pub handler: String,
    /// `scheduling.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// `scheduling.tolerations`, normalised.
    pub tolerations: Vec<Toleration>,
}

impl From<&RuntimeClass> for Class {
    fn from(class: &RuntimeClass) -> Self {
        let selector = class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.clone());
        Self {
            handler: class.handler.clone(),
            selector: selector.unwrap_or_default(),
            tolerations: tolerations_of(class),
        }
    }
}

impl Class {
    /// Returns the build in its selector.
    pub fn build(&self) -> Option<Build> {
        self.selector.get(names::WINDOWS_BUILD)?.parse().ok()
    }

    /// Returns the operating system in its selector.
    pub fn os(&self) -> Option<&str> {
        self.selector.get(names::OS).map(String::as_str)
    }

    /// Returns the isolation that its handler's name indicates. Names in use are `runhcs-wcow-hypervisor` (containerd's
    /// own), `runhcs-wcow-hypervisor-17763`, `runhcs-wcow-hyperv` and `containerd-hyperv-17763`.
    pub fn isolation(&self) -> Isolation {
        if self.handler.contains("hyperv") { Isolation::HyperV } else { Isolation::Process }
    }

    /// Returns a label for which the class and the pod select different values. The API server refuses such a pod.
    pub fn conflict(&self, spec: &PodSpec) -> Option<&str> {
        let differs = |key: &str, value: &str| spec.selected(key).is_some_and(|selected| selected != value);
        self.selector.iter().find(|(key, value)| differs(key, value)).map(|(key, _)| key.as_str())
    }

    /// Adds the selector and the tolerations of the class to a pod, like the API server's admission. Has no effect on a
    /// pod that is already admitted.
    pub fn admit(&self, spec: &mut PodSpec) {
        for (key, value) in &self.selector {
            spec.node_selector.entry(key.clone()).or_insert_with(|| value.clone());
        }
        for toleration in &self.tolerations {
            if !spec.tolerations.contains(toleration) {
                spec.tolerations.push(toleration.clone());
            }
        }
    }

    /// Removes from a pod what admission with this class added, as far as that can be determined.
    pub fn remove_from(&self, spec: &mut PodSpec) {
        spec.runtime_class = None;
        spec.node_selector.retain(|key, value| self.selector.get(key) != Some(value));
        // The API server adds them as they are written in the class, perhaps without an operator.
        let is_of_class = |own: &Toleration| normalised([own.clone()]).iter().all(|own| self.tolerations.contains(own));
        spec.tolerations.retain(|own| !is_of_class(own));
    }
}

impl PodSpec {
    /// Returns the builds of the nodes on which it may run, by its selector and affinity, and by its class. If they contradict,
    /// returns its own.
    pub fn wanted_builds(&self, class: Option<&Class>) -> Option<BTreeSet<Build>> {
        let own = self.builds();
        let of_class = class.and_then(Class::build);
        match of_class.filter(|build| own.as_ref().is_none_or(|own| own.contains(build))) {
            Some(build) => Some(BTreeSet::from([build])),
            None => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class(handler: &str) -> Class {
        let class: RuntimeClass = serde_json::from_value(json!({
            "metadata": {"name": "windows-2019"}, "handler": handler,
            "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": [{"key": "os", "operator": "Exists"}]},
        }))
        .unwrap();
        Class::from(&class)
    }

    #[test]
    fn a_class_is_added_and_taken_away_again() {
        let class = class("h");
        let mut spec = PodSpec { runtime_class: Some("windows-2019".to_owned()), ..PodSpec::default() };
        class.admit(&mut spec);
        let once = spec.clone();
        assert_eq!((once.node_selector.len(), once.tolerations.len()), (1, 1));
        class.admit(&mut spec);
        assert_eq!(spec, once, "a second time changes nothing");
        class.remove_from(&mut spec);
        assert_eq!(spec, PodSpec::default());
        let bare = Toleration { key: Some("gpu".to_owned()), ..Toleration::default() };
        let class = Class { tolerations: normalised([bare.clone()]), ..class };
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
            assert_eq!(class(handler).isolation(), isolation, "{handler}");
        }
    }
}
