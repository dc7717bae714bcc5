//! `WindowsPool.spec.runtimeClasses`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Toleration,
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::choices::{HostMatch, Isolation};

/// A RuntimeClass that the pool has even without nodes of its build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeClassSpec {
    /// Name of the RuntimeClass.
    pub name: String,
    /// The Windows version of the class's images, such as 2019, ltsc2019 or 20h2 (`winpool builds` lists all), or a name
    /// from `spec.buildNames`. `Any` selects by operating system and architecture only. Set exactly one of `version` and
    /// `build`.
    #[serde(default, deserialize_with = "text_or_number", skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The build of the class's images, such as `10.0.17763`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The handler of the container runtime. Default: `runhcs-wcow-process`, or `runhcs-wcow-hypervisor` with
    /// `isolation: HyperV`. If you change it, winpool recreates the RuntimeClass once no pod uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// `Process`: pods share the kernel of the host. `HyperV`: each pod has its own kernel, and the class selects hosts of
    /// the same or a newer build whose container runtime has the handler. Kubernetes does not officially support `HyperV`.
    #[serde(default)]
    pub isolation: Isolation,
    /// `Exact`: the class selects nodes of its build. `Compatible`: it selects every node that can run its images. winpool
    /// labels those nodes with `runtimeclass.winpool.dev/<name>`. An autoscaler knows that label for a group without nodes if
    /// the group's template has it: `winpool render` writes it.
    #[serde(default)]
    pub host_match: HostMatch,
    /// The value of `kubernetes.io/arch` in the selector of the class.
    #[serde(default = "default_architecture")]
    pub architecture: String,
    /// Resources that the runtime uses for each pod, as in `overhead` of a RuntimeClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Labels to add to `scheduling.nodeSelector` of the class. os, arch and windows-build are not allowed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add to `scheduling.tolerations` of the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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

/// Quantities may be numbers: `cpu: 1`.
fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let written = BTreeMap::<String, IntOrString>::deserialize(deserializer)?;
    let quantity = |amount| match amount {
        IntOrString::Int(number) => Quantity(number.to_string()),
        IntOrString::String(text) => Quantity(text),
    };
    Ok(written.into_iter().map(|(name, amount)| (name, quantity(amount))).collect())
}
