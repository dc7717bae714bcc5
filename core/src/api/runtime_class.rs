//! `WindowsPool.spec.runtimeClasses`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Toleration,
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use super::choices::{HostMatch, Isolation};

/// A RuntimeClass that the pool has even without nodes of its build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[cfg_attr(test, x_kube(cel))]
#[x_kube(
    validation = Rule::new("has(self.version) != has(self.build)")
        .message("write exactly one of version (such as 2019) and build (such as 10.0.17763)"),
    validation = Rule::new("!has(self.build) || self.build.matches('^10[.]0[.][1-9][0-9]{0,5}$')")
        .message("build must be 10.0.<number>, as in the label node.kubernetes.io/windows-build, such as 10.0.20348"),
    validation = Rule::new("self.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("name must be a DNS subdomain of at most 63 characters, such as windows-2022"),
    validation = Rule::new("!has(self.handler) || self.handler.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("handler must be a DNS label, such as runhcs-wcow-process"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, !(k in ['kubernetes.io/os', 'kubernetes.io/arch', 'node.kubernetes.io/windows-build']))")
        .message("nodeSelector may not set kubernetes.io/os, kubernetes.io/arch or node.kubernetes.io/windows-build; they follow from version or build, and architecture"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, size(k) <= 317 && k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.nodeSelector[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))")
        .message("nodeSelector: keys must be label names and values label values, as in a pod's nodeSelector"),
    validation = Rule::new("!has(self.tolerations) || self.tolerations.all(t, (has(t.operator) ? t.operator : 'Equal') in ['Equal', 'Exists'] && (has(t.effect) ? t.effect : '') in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute'])")
        .message("tolerations: operator must be Equal or Exists, and effect NoSchedule, PreferNoSchedule or NoExecute, or left out for all"),
    validation = Rule::new("!has(self.tolerations) || self.tolerations.all(t, (has(t.key) && t.key != '') || (has(t.operator) && t.operator == 'Exists'))")
        .message("tolerations: without a key operator must be Exists, which tolerates every taint"),
    validation = Rule::new("!has(self.tolerations) || self.tolerations.all(t, !(has(t.operator) && t.operator == 'Exists' && has(t.value) && t.value != '') && (!has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute')))")
        .message("tolerations: operator Exists has no value, and tolerationSeconds needs effect NoExecute"),
    validation = Rule::new("!has(self.tolerations) || self.tolerations.all(t, (!has(t.key) || t.key == '' || (t.key.indexOf('/') <= 253 && t.key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))) && (!has(t.value) || t.value.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$')))")
        .message("tolerations: key must be a qualified name such as os or node.kubernetes.io/os, and value a label value such as windows"),
    validation = Rule::new("!has(self.overhead) || self.overhead.podFixed.all(k, k in ['cpu', 'memory', 'ephemeral-storage'] || (k.indexOf('/') > 0 && size(k) <= 317 && k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$')))")
        .message("overhead.podFixed: names are cpu, memory, ephemeral-storage, or that of an extended resource such as example.com/gpu"),
    validation = Rule::new("!has(self.version) || self.version != 'Any' || !has(self.hostMatch) || self.hostMatch == 'Exact'")
        .message("hostMatch: Compatible needs the build of the images; write a version such as 2022 instead of Any"),
    validation = Rule::new("!has(self.architecture) || self.architecture.matches('^[a-z0-9]+$')")
        .message("architecture must be a value of the label kubernetes.io/arch, such as amd64"),
)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeClassSpec {
    /// Name of the RuntimeClass.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The Windows version of the class's images, such as 2019, ltsc2019 or 20h2 (`winpool builds` lists all), or a name
    /// from `spec.buildNames`. `Any` selects by operating system and architecture only. Set exactly one of `version` and
    /// `build`.
    #[serde(default, deserialize_with = "text_or_number", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "version_schema")]
    pub version: Option<String>,
    /// The build of the class's images, such as `10.0.17763`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    pub build: Option<String>,
    /// The handler of the container runtime. Default: `runhcs-wcow-process`, or `runhcs-wcow-hypervisor` with
    /// `isolation: HyperV`. If you change it, delete the RuntimeClass when no pod uses it: winpool creates it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub handler: Option<String>,
    /// `Process`: pods share the kernel of the host. `HyperV`: each pod has its own kernel, and the class selects Windows
    /// nodes of any build. The hosts need the same or a newer build, and a container runtime with the handler: label them,
    /// and set that label in `nodeSelector`. Kubernetes does not officially support `HyperV`.
    #[serde(default)]
    pub isolation: Isolation,
    /// `Exact`: the class selects nodes of its build. `Compatible`: it selects every node that can run its images. winpool
    /// labels those nodes with `runs.winpool.dev/<build>`. An autoscaler knows that label for a group without nodes if the
    /// group's template has it: `winpool render` writes it. `isolation: HyperV` ignores this field.
    #[serde(default)]
    pub host_match: HostMatch,
    /// The value of `kubernetes.io/arch` in the selector of the class.
    #[serde(default = "default_architecture")]
    #[schemars(length(min = 1, max = 16))]
    pub architecture: String,
    /// Resources that the runtime uses for each pod, as in `overhead` of a RuntimeClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Labels to add to `scheduling.nodeSelector` of the class. os, arch and windows-build are not allowed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add to `scheduling.tolerations` of the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
}

impl RuntimeClassSpec {
    /// The handler, or the default one for the isolation.
    pub fn effective_handler(&self) -> &str {
        self.handler.as_deref().unwrap_or(match self.isolation {
            Isolation::Process => PROCESS_ISOLATION_HANDLER,
            Isolation::HyperV => HYPERV_ISOLATION_HANDLER,
        })
    }
}

/// The handler for process isolation that containerd defines by default on Windows
/// (containerd, `internal/cri/config/config_windows.go`).
pub(crate) const PROCESS_ISOLATION_HANDLER: &str = "runhcs-wcow-process";
/// The handler for Hyper-V isolation (the same file, since containerd 1.7.0).
pub(crate) const HYPERV_ISOLATION_HANDLER: &str = "runhcs-wcow-hypervisor";
/// The version that selects no build.
pub const ANY_VERSION: &str = "Any";
/// The architecture of every Windows container host that Kubernetes supports.
pub const DEFAULT_ARCHITECTURE: &str = "amd64";

fn default_architecture() -> String {
    DEFAULT_ARCHITECTURE.to_owned()
}

/// `RuntimeClass.overhead`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Overhead {
    /// Resources for each pod, such as `memory: 512Mi`. Amounts must not be negative; extended resources need whole numbers.
    #[serde(deserialize_with = "amounts")]
    // No rule may read these values: Kubernetes 1.33 takes each to be as long as a request may be, whatever maxLength says, and
    // then refuses the rule as too costly. That extended resources come in whole numbers is left to the operator.
    #[schemars(extend(
        "maxProperties" = 8,
        "additionalProperties" = {
            "x-kubernetes-int-or-string": true,
            "maxLength": 32,
            "minimum": 0,
            "pattern": "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$",
        }
    ))]
    pub pod_fixed: BTreeMap<String, Quantity>,
}

/// A version as text: YAML takes 2022 for a number.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let written = Option::<IntOrString>::deserialize(deserializer)?;
    Ok(written.map(|version| match version {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text,
    }))
}

fn version_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 32})
}

/// Quantities may be numbers: `cpu: 1`.
fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let written = BTreeMap::<String, IntOrString>::deserialize(deserializer)?;
    let quantity = |amount| match amount {
        IntOrString::Int(number) => Quantity(number.to_string()),
        IntOrString::String(text) => Quantity(text),
    };
    Ok(written.into_iter().map(|(name, amount)| (name, quantity(amount))).collect())
}
