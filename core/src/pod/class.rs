//! What the API server's `RuntimeClass` admission adds to a pod.

use k8s_openapi::api::{core::v1::PodSpec, node::v1::RuntimeClass};

/// What the API server's admission makes of a pod of this class: the class's selector and tolerations are added. Does
/// nothing to a pod that was admitted already.
pub fn admit(spec: &mut PodSpec, class: &RuntimeClass) {
    let Some(scheduling) = &class.scheduling else { return };
    if let Some(selector) = &scheduling.node_selector {
        let own = spec.node_selector.get_or_insert_default();
        for (key, value) in selector {
            own.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    let own = spec.tolerations.get_or_insert_default();
    for toleration in scheduling.tolerations.iter().flatten() {
        if !own.contains(toleration) {
            own.push(toleration.clone());
        }
    }
}

/// The pod as it was before it was admitted with this class, as far as that can be told.
pub fn without_class(spec: &mut PodSpec, class: &RuntimeClass) {
    spec.runtime_class_name = None;
    let Some(scheduling) = &class.scheduling else { return };
    if let (Some(own), Some(selector)) = (&mut spec.node_selector, &scheduling.node_selector) {
        own.retain(|key, value| selector.get(key) != Some(value));
    }
    if let (Some(own), Some(tolerations)) = (&mut spec.tolerations, &scheduling.tolerations) {
        own.retain(|toleration| !tolerations.contains(toleration));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_is_added_and_taken_away_again() {
        let class: RuntimeClass = serde_json::from_value(json!({
            "metadata": {"name": "windows-2019"}, "handler": "h",
            "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"}, "tolerations": [{"key": "os", "operator": "Exists"}]},
        }))
        .unwrap();
        let mut spec = PodSpec { runtime_class_name: Some("windows-2019".to_owned()), ..PodSpec::default() };
        admit(&mut spec, &class);
        let once = spec.clone();
        assert_eq!((once.node_selector.as_ref().unwrap().len(), once.tolerations.as_ref().unwrap().len()), (1, 1));
        admit(&mut spec, &class);
        assert_eq!(spec, once, "a second time changes nothing");
        without_class(&mut spec, &class);
        assert!(spec.node_selector.unwrap().is_empty() && spec.tolerations.unwrap().is_empty());
    }
}
