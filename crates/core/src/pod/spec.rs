//! Pod specs of pods and templates: the fields that decide on which nodes a pod may run.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodOS, PodSchedulingGate, Toleration,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde::Deserialize;
use serde_json::Value;

use crate::api::names;
use crate::pod::affinity::is_empty;
use crate::pod::tolerations::tolerations_of;

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

// The operating system that a pod says it is for.

/// The operating system label before Kubernetes 1.14.
pub const BETA_OS: &str = "beta.kubernetes.io/os";
pub const OS_KEYS: [&str; 2] = [names::OS, BETA_OS];

impl PodSpec {
    /// Returns the system that the pod says it is for, by the first of these that tells: `os.name`, the nodes that it selects,
    /// its class, a processor that no Windows node has, or `windowsOptions`. `by_nodes` returns the system of the nodes that it
    /// selects, as far as the nodes of the cluster tell more than the labels of every cluster.
    pub fn said_system(&self, class: Option<&Class>, by_nodes: impl FnOnce() -> Option<System>) -> Option<System> {
        let by_name = self.os.as_deref().map(System::named);
        by_name
            .or_else(|| self.placed_system())
            .or_else(by_nodes)
            .or_else(|| class.and_then(|class| selected_system(&class.selector)))
            .or_else(|| self.excludes_amd64(class).then_some(System::Linux))
            .or_else(|| self.has_windows_options.then_some(System::Windows))
    }

    /// Returns the only system whose nodes meet node selector and required affinity.
    pub fn placed_system(&self) -> Option<System> {
        let by_terms = |system: System| self.every_term(|e| expects(e, system)).then_some(system);
        selected_system(&self.node_selector).or_else(|| by_terms(System::Windows)).or_else(|| by_terms(System::Linux))
    }

    /// Windows nodes have the processor amd64.
    fn excludes_amd64(&self, class: Option<&Class>) -> bool {
        let is_other = |(key, value): (&String, &String)| ARCH_KEYS.contains(&key.as_str()) && value != AMD64;
        let of_class = class.into_iter().flat_map(|class| &class.selector);
        let in_term = |e: &NodeSelectorRequirement| {
            ARCH_KEYS.contains(&e.key.as_str()) && is_in(e) && e.values.iter().flatten().all(|value| value != AMD64)
        };
        self.node_selector.iter().chain(of_class).any(is_other) || self.every_term(in_term)
    }

    /// True if every term of the required node affinity that can select a node has an expression like this.
    fn every_term(&self, expects: impl Fn(&NodeSelectorRequirement) -> bool) -> bool {
        let mut terms = self.selecting_terms().peekable();
        terms.peek().is_some() && terms.all(|term| term.match_expressions.iter().flatten().any(&expects))
    }
}

/// Labels that tell the operating system of the node: it is Windows if the value begins so, and otherwise Linux. They are
/// those of clouds (Azure: learn.microsoft.com/azure/aks/use-labels; Google:
/// cloud.google.com/kubernetes-engine/docs/concepts/node-images; `OpenShift`: openshift/windows-machine-config-operator) and of
/// the control plane, which runs on Linux only (kubernetes/website `docs/concepts/windows/intro.md`).
pub const SYSTEM_LABELS: [&str; 7] = [
    "kubernetes.azure.com/os-sku",
    "kubernetes.azure.com/os-sku-effective",
    "kubernetes.azure.com/os-sku-requested",
    "cloud.google.com/gke-os-distribution",
    "node.openshift.io/os_id",
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
pub const ARCH_KEYS: [&str; 2] = [names::ARCH, "beta.kubernetes.io/arch"];
const AMD64: &str = "amd64";

/// True if only Windows nodes have a label with this key.
pub fn is_on_windows_only(key: &str) -> bool {
    key == names::WINDOWS_BUILD || key.starts_with(names::CAPABILITY_LABEL_PREFIX)
}

/// True if only Windows nodes have these labels.
pub fn selects_windows(selector: &BTreeMap<String, String>) -> bool {
    selected_system(selector) == Some(System::Windows)
}

/// Returns the system of nodes with these labels. `kubernetes.io/os` takes precedence.
fn selected_system(selector: &BTreeMap<String, String>) -> Option<System> {
    let systems = |is_os: bool| {
        let labels = selector.iter().filter(move |(key, _)| OS_KEYS.contains(&key.as_str()) == is_os);
        let mut systems = labels.filter_map(|(key, value)| system_of_label(key, value)).peekable();
        let first = systems.peek().copied()?;
        Some(if systems.any(|system| system == System::Windows) { System::Windows } else { first })
    };
    systems(true).or_else(|| systems(false))
}

/// Returns the system of nodes with this label; `None` if nodes of several systems may have it.
fn system_of_label(key: &str, value: &str) -> Option<System> {
    if OS_KEYS.contains(&key) {
        // No node has `Windows`, but that is what its author means.
        Some(System::named(&value.to_ascii_lowercase()))
    } else if is_on_windows_only(key) {
        Some(System::Windows)
    } else {
        let is_windows = value.get(..7).is_some_and(|start| start.eq_ignore_ascii_case(names::WINDOWS));
        SYSTEM_LABELS.contains(&key).then_some(if is_windows { System::Windows } else { System::Linux })
    }
}

/// True if only nodes of this system meet the expression. There are only Linux and Windows nodes.
fn expects(expression: &NodeSelectorRequirement, system: System) -> bool {
    let (key, mut values) = (expression.key.as_str(), expression.values.iter().flatten());
    match expression.operator.as_str() {
        "In" => is_in(expression) && values.all(|value| system_of_label(key, value) == Some(system)),
        "Exists" => is_on_windows_only(key) && system == System::Windows,
        "NotIn" => OS_KEYS.contains(&key) && values.any(|value| value == system.other().as_str()),
        _ => false,
    }
}

fn is_in(expression: &NodeSelectorRequirement) -> bool {
    expression.operator == "In" && expression.values.as_ref().is_some_and(|values| !values.is_empty())
}

named! {
    /// An operating system of nodes, with the value of `kubernetes.io/os`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum System {
        Windows = "windows",
        Linux = "linux",
    }
}

impl System {
    /// The system of this name. There are only Linux and Windows nodes.
    pub(crate) fn named(name: &str) -> Self {
        if name == names::WINDOWS { Self::Windows } else { Self::Linux }
    }

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Windows => Self::Linux,
            Self::Linux => Self::Windows,
        }
    }
}

// The part of a RuntimeClass that places pods.

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

/// The labels that a class selects.
pub(crate) fn selector_of(class: &RuntimeClass) -> BTreeMap<String, String> {
    class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_first_field_that_tells_the_system_decides() {
        use System::{Linux, Windows};
        let select = |key: &str, value: &str| Value::from_iter([("nodeSelector", Value::from_iter([(key, value)]))]);
        let options = |options: Value| json!({"securityContext": {"windowsOptions": options}});
        let any_of = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
        let term = |key: &str, operator: &str, values: &[&str]| {
            any_of(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
        };
        let is =
            |os: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": os}]});
        let has_name = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["win"]}]});
        for (spec, expected) in [
            (json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "windows"}}), Some(Linux)),
            (select("kubernetes.io/os", "windows"), Some(Windows)),
            (select("beta.kubernetes.io/os", "linux"), Some(Linux)),
            (select("kubernetes.azure.com/os-sku", "Windows2022"), Some(Windows)),
            (select("kubernetes.azure.com/os-sku", "AzureLinux"), Some(Linux)),
            (select("cloud.google.com/gke-os-distribution", "cos"), Some(Linux)),
            (select("node.kubernetes.io/windows-build", "10.0.20348"), Some(Windows)),
            (select("kubernetes.io/arch", "arm64"), Some(Linux)),
            (select("kubernetes.io/arch", "amd64"), None),
            (select("team", "a"), None),
            (select("disk", "windows"), None),
            (select("runs.winpool.dev/10.0.20348", "true"), Some(Windows)),
            (term("kubernetes.io/os", "In", &["windows"]), Some(Windows)),
            (term("kubernetes.io/os", "In", &[]), None),
            (term("kubernetes.io/os", "NotIn", &["darwin"]), None),
            (
                any_of(
                    json!([is(&["windows"]), {"matchExpressions": [{"key": "node.kubernetes.io/windows-build", "operator": "Exists"}]}]),
                ),
                Some(Windows),
            ),
            (any_of(json!([is(&["windows"]), is(&["linux"])])), None),
            (any_of(json!([])), None),
            (any_of(json!([{}])), None),
            (any_of(json!([{}, is(&["windows"]), {"matchExpressions": [], "matchFields": []}])), Some(Windows)),
            (any_of(json!([is(&["linux"]), {}])), Some(Linux)),
            (any_of(json!([is(&["windows"]), has_name])), None),
            (term("kubernetes.io/os", "NotIn", &["linux"]), Some(Windows)),
            (term("kubernetes.io/os", "NotIn", &["windows"]), Some(Linux)),
            (term("kubernetes.io/os", "In", &["linux", "windows"]), None),
            (term("kubernetes.azure.com/os-sku", "In", &["Windows2019", "Windows2022"]), Some(Windows)),
            (term("beta.kubernetes.io/arch", "In", &["s390x"]), Some(Linux)),
            (options(json!({"hostProcess": true})), Some(Windows)),
            (options(json!({"hostProcess": false})), None),
            (options(json!({})), None),
            (select("kubernetes.io/os", "Windows"), Some(Windows)),
            (select("node.openshift.io/os_id", "Windows"), Some(Windows)),
            (select("node.openshift.io/os_id", "rhcos"), Some(Linux)),
            (select("node-role.kubernetes.io/control-plane", ""), Some(Linux)),
            (json!({"containers": [options(json!({"hostProcess": true}))]}), Some(Windows)),
            (json!({"initContainers": [options(json!({"runAsUserName": "a"}))]}), Some(Windows)),
            (json!({"containers": [{"image": "mcr.microsoft.com/windows:1809"}]}), None),
            (
                json!({"nodeSelector": {"kubernetes.io/os": "linux"}, "securityContext": {"windowsOptions": {"runAsUserName": "a"}}}),
                Some(Linux),
            ),
        ] {
            let read: PodSpec = serde_json::from_value(spec.clone()).unwrap();
            assert_eq!(read.said_system(None, || None), expected, "{spec}");
        }
    }
}
