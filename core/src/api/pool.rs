//! `WindowsPool.spec`.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Toleration,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Taint, WindowsPoolStatus};

/// A group of Windows nodes and what winpool does to them. It describes nodes; it creates none. Every field has a
/// default, and `spec: {}` is the normal case: all Windows nodes, labelled, tainted, and one RuntimeClass per build.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, kube(cel))]
#[kube(
    group = "winpool.dev",
    version = "v1alpha1",
    kind = "WindowsPool",
    plural = "windowspools",
    shortname = "winpool",
    shortname = "wp",
    status = "WindowsPoolStatus",
    derive = "PartialEq",
    doc = "WindowsPool describes a group of Windows nodes: winpool labels and taints them and keeps one RuntimeClass per Windows build. `spec: {}` selects all Windows nodes.",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.selected"),
    printcolumn(name = "Converged", type_ = "integer", json_path = ".status.nodes.converged"),
    printcolumn(name = "Classes", type_ = "string", json_path = ".status.summary.runtimeClasses"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Builds", type_ = "string", json_path = ".status.summary.builds", priority = 1),
    printcolumn(name = "Taints", type_ = "string", json_path = ".status.taints", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 63").message("metadata.name must be at most 63 characters, because nodes carry it as a label value")
)]
#[x_kube(
    validation = Rule::new("!has(self.taints) || size(self.taints) > 0")
        .message("taints: [] is the same as no taints field; leave the field out for os=windows:NoSchedule, or list the taints"),
    validation = Rule::new("!has(self.taints) || self.taints.all(t, self.taints.exists_one(u, u.key == t.key && u.effect == t.effect))")
        .message("taints must be unique by key and effect, as Kubernetes counts them; remove one of the two"),
    validation = Rule::new("!has(self.retiredTaints) || !has(self.taints) || !self.taints.exists(t, self.retiredTaints.exists(r, r.key == t.key && r.effect == t.effect && (has(r.value) ? r.value : '') == (has(t.value) ? t.value : '')))")
        .message("a taint is both in taints and in retiredTaints; remove it from one of them"),
    validation = Rule::new("!has(self.retiredTaints) || has(self.taints) || !self.retiredTaints.exists(r, r.key == 'os' && r.effect == 'NoSchedule' && has(r.value) && r.value == 'windows')")
        .message("retiredTaints has os=windows:NoSchedule, which is the default of taints; list other taints in taints to retire it"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, k != 'kubernetes.io/os' || self.nodeSelector[k] == 'windows')")
        .message("nodeSelector: kubernetes.io/os can only be windows; leave it out, it is always set"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, !k.startsWith('winpool.dev/') && !k.startsWith('runtimeclass.winpool.dev/'))")
        .message("nodeSelector: labels under winpool.dev are written by winpool and cannot select its nodes; use a label of your own"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, size(k) <= 317 && k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.nodeSelector[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))")
        .message("nodeSelector: keys must be label names and values label values, as in a pod's nodeSelector"),
    validation = Rule::new("!has(self.runtimeClasses) || self.runtimeClasses.all(c, self.runtimeClasses.exists_one(d, d.name == c.name))")
        .message("runtimeClasses: names must be unique; remove or rename one of the two"),
    validation = Rule::new("!has(self.runtimeClasses) || self.runtimeClasses.all(c, !has(c.version) || c.version in ['2016', '1709', '1803', '2019', '1903', '1909', '2004', '20h2', '2022', '23h2', '2025'] || (has(self.builds) && self.builds.exists(b, b.version == c.version)))")
        .message("runtimeClasses: version is not known; write one of 2016, 1709, 1803, 2019, 1903, 1909, 2004, 20h2, 2022, 23h2, 2025, name it in spec.builds, or write build instead"),
    validation = Rule::new("!has(self.builds) || self.builds.all(b, self.builds.exists_one(c, c.build == b.build) && self.builds.exists_one(c, c.version == b.version))")
        .message("builds: each build and each version may be named once; remove one of the two"),
    validation = Rule::new("!has(self.classNameFormat) || (self.classNameFormat.contains('{version}') && self.classNameFormat.replace('{version}', 'v').replace('{pool}', 'p').matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))")
        .message("classNameFormat must contain {version}, may contain {pool}, and otherwise has lower-case letters, digits, '-' and '.', such as windows-{version}"),
)]
#[serde(rename_all = "camelCase")]
pub struct WindowsPoolSpec {
    /// `Enforce` writes; `DryRun` computes and reports what would change and writes nothing but this object's status.
    #[serde(default)]
    #[schemars(schema_with = "mode_schema")]
    pub mode: Mode,

    /// Labels that a Windows node must have to belong to this pool, as in a pod's nodeSelector. `kubernetes.io/os: windows`
    /// is always required and need not be written. Empty selects all Windows nodes. A node that several pools select
    /// belongs to the oldest of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that every node of the pool carries. Omitted: nodes that carry a Windows taint of any known spelling
    /// (`os=Windows`, `node.kubernetes.io/os=windows`, …) keep it, all others get `os=windows:NoSchedule`. A list is
    /// exact. A taint of the same key and effect but another value is left alone unless it is in `retiredTaints`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub taints: Option<Vec<Taint>>,

    /// Taints to take off the pool's nodes, such as `os=Win1809:NoSchedule`, in the same request that adds the wanted
    /// ones. RuntimeClasses tolerate them as long as they are listed here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub retired_taints: Vec<Taint>,

    /// Make one RuntimeClass for each Windows build seen on the pool's nodes. Classes stay when their last node goes.
    #[serde(default = "default_true")]
    #[schemars(default = "default_true")]
    pub discover_runtime_classes: bool,

    /// Names of discovered RuntimeClasses. `{version}` is 2019, 2022, 2025 and so on, or `build-<number>` for a build
    /// without a name; `{pool}` is the name of this pool.
    #[serde(default = "default_class_name_format")]
    #[schemars(length(min = 9, max = 63))]
    pub class_name_format: String,

    /// RuntimeClasses in addition to the discovered ones. One with the name of a discovered class takes its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub runtime_classes: Vec<RuntimeClassSpec>,

    /// Names for builds that are newer than this release of winpool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub builds: Vec<NamedBuild>,
}

fn default_true() -> bool {
    true
}

fn default_class_name_format() -> String {
    "windows-{version}".to_owned()
}

impl Default for WindowsPoolSpec {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            node_selector: BTreeMap::new(),
            taints: None,
            retired_taints: Vec::new(),
            discover_runtime_classes: true,
            class_name_format: default_class_name_format(),
            runtime_classes: Vec::new(),
            builds: Vec::new(),
        }
    }
}

/// Whether winpool writes or only reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Write what the pool wants.
    #[default]
    Enforce,
    /// Report what would change; write nothing but the pool's status.
    DryRun,
}

// A plain enum keeps the field's documentation in the schema, which schemars would otherwise replace.
fn mode_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "string", "enum": ["Enforce", "DryRun"], "default": "Enforce"})
}

/// A name for a Windows build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[cfg_attr(test, x_kube(cel))]
#[x_kube(
    validation = Rule::new("self.build.matches('^10[.]0[.][1-9][0-9]{0,5}$')")
        .message("build must be 10.0.<number>, as in the label node.kubernetes.io/windows-build, such as 10.0.20348"),
    validation = Rule::new("self.version.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("version must be lower-case letters, digits and hyphens, because it becomes part of a RuntimeClass name, such as 2028"),
    validation = Rule::new("!(self.version in ['2016', '1709', '1803', '2019', '1903', '1909', '2004', '20h2', '2022', '23h2', '2025']) && !self.version.startsWith('build-')")
        .message("version is the name of another Windows build already; choose another name"),
)]
pub struct NamedBuild {
    /// The build, such as `10.0.29000`.
    #[schemars(length(max = 12))]
    pub build: String,
    /// Its name in RuntimeClass names, such as `2028`.
    #[schemars(length(min = 1, max = 32))]
    pub version: String,
}

/// A RuntimeClass that the pool wants whether or not a node of its build is there.
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
    validation = Rule::new("!has(self.overhead) || self.overhead.podFixed.all(k, string(self.overhead.podFixed[k]).matches('^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$'))")
        .message("overhead.podFixed: values must be quantities that are not negative, such as 512Mi or 500m"),
    validation = Rule::new("!has(self.architecture) || self.architecture.matches('^[a-z0-9]+$')")
        .message("architecture must be a value of the label kubernetes.io/arch, such as amd64"),
)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeClassSpec {
    /// Name of the RuntimeClass.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// The Windows version whose build the class selects: 2016, 2019, 2022, 2025, 1709 to 20h2, 23h2, or a name from
    /// `spec.builds`. Exactly one of `version` and `build` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub version: Option<String>,
    /// The build that the class selects, such as `10.0.17763`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 12))]
    pub build: Option<String>,
    /// The container runtime's handler. It cannot be changed on an existing RuntimeClass.
    #[serde(default = "default_handler")]
    #[schemars(length(min = 1, max = 63))]
    pub handler: String,
    /// Value of `kubernetes.io/arch` in the class's selector.
    #[serde(default = "default_architecture")]
    #[schemars(length(min = 1, max = 16))]
    pub architecture: String,
    /// Resources that the runtime itself takes for each pod, see RuntimeClass `overhead`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// Labels added to the class's `scheduling.nodeSelector`. It may not set os, arch or windows-build.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations added to the class's `scheduling.tolerations`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub tolerations: Vec<Toleration>,
}

/// Process isolation, the handler that containerd defines by default on Windows
/// (containerd, `internal/cri/config/config_windows.go`).
pub(crate) const PROCESS_ISOLATION_HANDLER: &str = "runhcs-wcow-process";
/// The architecture of every Windows container host that Kubernetes supports.
pub(crate) const DEFAULT_ARCHITECTURE: &str = "amd64";

fn default_handler() -> String {
    PROCESS_ISOLATION_HANDLER.to_owned()
}

fn default_architecture() -> String {
    DEFAULT_ARCHITECTURE.to_owned()
}

/// `RuntimeClass.overhead`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overhead {
    /// Resources for each pod, such as `memory: 512Mi`.
    #[serde(default)]
    // Without a maxLength the API server refuses the rule on these values as too costly.
    #[schemars(extend("maxProperties" = 8, "additionalProperties" = {"x-kubernetes-int-or-string": true, "maxLength": 32}))]
    pub pod_fixed: BTreeMap<String, Quantity>,
}

/// The CustomResourceDefinition, as in `crds/`.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    let mut crd = WindowsPool::crd();
    // A pool without any spec is the normal case too: the derive makes `spec` required and knows no default for it.
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else { continue };
        root.required = None;
        if let Some(spec) = root.properties.as_mut().and_then(|p| p.get_mut("spec")) {
            spec.default = Some(JSON(json!({})));
        }
        drop_nulls(root);
    }
    crd
}

/// Has the API server drop fields that are null instead of storing the null: null means omitted everywhere, and CEL
/// then sees no field.
fn drop_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.properties.iter_mut().flatten().for_each(|(_, property)| drop_nulls(property));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        drop_nulls(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        drop_nulls(values);
    }
}
