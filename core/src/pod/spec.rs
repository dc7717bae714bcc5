//! Pod specs of pods and templates: the fields that decide on which nodes a pod may run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorTerm, PodOS, PodSchedulingGate, Toleration};
use serde::Deserialize;
use serde_json::Value;

use super::affinity::is_empty;

/// The fields of a pod spec that winpool reads.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "WireSpec")]
pub struct PodSpec {
    /// `nodeName`.
    pub node: Option<String>,
    /// `runtimeClassName`.
    pub runtime_class: Option<String>,
    /// `os.name`.
    pub os: Option<String>,
    /// `nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// The terms of the required node affinity, one of which has to match. No terms mean no requirement.
    pub terms: Vec<NodeSelectorTerm>,
    pub tolerations: Vec<Toleration>,
    /// True if the pod or one of its containers has `securityContext.windowsOptions` with a value other than `false`.
    pub has_windows_options: bool,
    /// The names in `schedulingGates`. The scheduler ignores the pod until there are none.
    pub scheduling_gates: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "a pod spec")]
struct WireSpec {
    node_name: Option<String>,
    runtime_class_name: Option<String>,
    os: Option<PodOS>,
    node_selector: Option<BTreeMap<String, String>>,
    tolerations: Option<Vec<Toleration>>,
    affinity: Option<WireAffinity>,
    security_context: Option<SecurityContext>,
    containers: Option<Vec<WireContainer>>,
    init_containers: Option<Vec<WireContainer>>,
    ephemeral_containers: Option<Vec<WireContainer>>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAffinity {
    node_affinity: Option<WireNodeAffinity>,
}

#[derive(Deserialize)]
struct WireNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireContainer {
    security_context: Option<SecurityContext>,
}

/// A security context, of which winpool reads `windowsOptions`.
#[derive(Deserialize)]
struct SecurityContext(BTreeMap<String, Value>);

impl SecurityContext {
    /// True if `windowsOptions` sets anything. `hostProcess: false` alone says nothing about the system.
    fn has_windows_options(&self) -> bool {
        let options = self.0.get("windowsOptions").and_then(Value::as_object);
        options.is_some_and(|options| options.values().any(|value| !matches!(value, Value::Null | Value::Bool(false))))
    }
}

impl From<WireSpec> for PodSpec {
    fn from(wire: WireSpec) -> Self {
        let containers = [wire.containers, wire.init_containers, wire.ephemeral_containers];
        let of_containers = containers.into_iter().flatten().flatten().map(|container| container.security_context);
        let mut contexts = of_containers.chain([wire.security_context]).flatten();
        let required = wire.affinity.and_then(|affinity| affinity.node_affinity?.required);
        Self {
            node: wire.node_name.filter(|name| !name.is_empty()),
            runtime_class: wire.runtime_class_name.filter(|name| !name.is_empty()),
            os: wire.os.map(|os| os.name).filter(|name| !name.is_empty()),
            node_selector: wire.node_selector.unwrap_or_default(),
            terms: required.map(|required| required.node_selector_terms).unwrap_or_default(),
            tolerations: wire.tolerations.unwrap_or_default(),
            has_windows_options: contexts.any(|context| context.has_windows_options()),
            scheduling_gates: wire.scheduling_gates.into_iter().flatten().map(|gate| gate.name).collect(),
        }
    }
}

impl PodSpec {
    /// Returns the terms of the required node affinity that can select a node.
    pub fn selecting_terms(&self) -> impl Iterator<Item = &NodeSelectorTerm> {
        self.terms.iter().filter(|term| !is_empty(term))
    }
}
