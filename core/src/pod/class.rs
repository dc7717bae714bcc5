//! The part of a RuntimeClass that places pods, and the changes that the API server's `RuntimeClass` admission makes
//! to a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Toleration, node::v1::RuntimeClass};

use super::{spec::PodSpec, tolerations::tolerations_of};

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
        Self { handler: class.handler.clone(), selector: selector_of(class), tolerations: tolerations_of(class) }
    }
}

impl Class {
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
}

/// The labels that a class selects.
pub(crate) fn selector_of(class: &RuntimeClass) -> BTreeMap<String, String> {
    class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn class() -> Class {
        let class: RuntimeClass = serde_json::from_value(json!({
            "metadata": {"name": "windows-2019"}, "handler": "h",
            "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": [{"key": "os", "operator": "Exists"}]},
        }))
        .unwrap();
        Class::from(&class)
    }

    #[test]
    fn a_class_is_added_once() {
        let class = class();
        let mut spec = PodSpec { runtime_class: Some("windows-2019".to_owned()), ..PodSpec::default() };
        class.admit(&mut spec);
        let once = spec.clone();
        assert_eq!((once.node_selector.len(), once.tolerations.len()), (1, 1));
        class.admit(&mut spec);
        assert_eq!(spec, once, "a second time changes nothing");
    }
}
