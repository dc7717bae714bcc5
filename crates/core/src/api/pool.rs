//! `WindowsPool.spec`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Message, Rule};
use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::{Taint, WindowsPoolStatus};
use crate::windows::builds::{self, Product};
use crate::windows::taint::SPELLINGS;
use crate::words::joined;

/// A group of Windows nodes and what winpool does with them. winpool does not create nodes. Every field has a default;
/// most clusters need only `spec: {}`: winpool labels and taints all Windows nodes and keeps one RuntimeClass per build.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.selected"),
    printcolumn(name = "Converged", type_ = "integer", json_path = ".status.nodes.converged"),
    printcolumn(name = "Taints", type_ = "string", json_path = ".status.conditions[?(@.type=='TaintsApplied')].reason"),
    printcolumn(name = "Problem", type_ = "string", json_path = ".status.problems[0].reason"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
    printcolumn(name = "Seen", type_ = "date", json_path = ".status.lastSeen"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].reason", priority = 1),
    printcolumn(name = "Classes", type_ = "string", json_path = ".status.summary.runtimeClasses", priority = 1),
    printcolumn(name = "Builds", type_ = "string", json_path = ".status.summary.builds", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].message", priority = 1),
    validation = Rule::new("size(self.metadata.name) <= 63").message("metadata.name must be at most 63 characters, because nodes carry it as a label value")
)]
#[x_kube(
    validation = Rule::new("!has(self.taints) || size(self.taints) > 0")
        .message("taints: [] is the same as no taints field; leave the field out for os=windows:NoSchedule, list the taints, or write taintPolicy: Never for none"),
    validation = windows_taints_only(),
    validation = Rule::new("!has(self.retiredTaints) || !has(self.taints) || !self.taints.exists(t, self.retiredTaints.exists(r, r.key == t.key && r.effect == t.effect && (has(r.value) ? r.value : '') == (has(t.value) ? t.value : '')))")
        .message("a taint is both in taints and in retiredTaints; remove it from one of them"),
    validation = Rule::new("!has(self.retiredTaints) || has(self.taints) || !self.retiredTaints.exists(r, r.key == 'os' && r.effect == 'NoSchedule' && has(r.value) && r.value == 'windows')")
        .message("retiredTaints has os=windows:NoSchedule, which is the default of taints; list other taints in taints to retire it"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, k != 'kubernetes.io/os' || self.nodeSelector[k] == 'windows')")
        .message("nodeSelector: kubernetes.io/os can only be windows; leave it out, it is always set"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, !k.startsWith('winpool.dev/') && !k.startsWith('runs.winpool.dev/'))")
        .message("nodeSelector: labels under winpool.dev are written by winpool and cannot select its nodes; use a label of your own"),
    validation = Rule::new("!has(self.nodeSelector) || self.nodeSelector.all(k, size(k) <= 317 && k.indexOf('/') <= 253 && k.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.nodeSelector[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))")
        .message("nodeSelector: keys must be label names and values label values, as in a pod's nodeSelector"),
    validation = version_is_known(),
    validation = Rule::new("!has(self.buildNames) || self.buildNames.all(b, self.buildNames.exists_one(c, c.version == b.version))")
        .message("buildNames: each version may be used once; remove one of the two"),
    validation = Rule::new("!has(self.runtimeClassNameFormat) || (self.runtimeClassNameFormat.contains('{version}') && self.runtimeClassNameFormat.replace('{version}', 'v').replace('{pool}', 'p').matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'))")
        .message("runtimeClassNameFormat must contain {version}, may contain {pool}, and otherwise has lower-case letters, digits, '-' and '.', such as windows-{version}"),
)]
#[serde(rename_all = "camelCase")]
pub struct WindowsPoolSpec {
    /// `Enforce`: winpool writes. `DryRun`: winpool reports what it would change, and writes only this object's status.
    #[serde(default)]
    pub mode: Mode,

    /// Labels that a Windows node must have to belong to this pool, as in a pod's nodeSelector. winpool adds
    /// `kubernetes.io/os: windows`. Empty selects all Windows nodes. A node that several pools select belongs to the oldest
    /// of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32, "additionalProperties" = {"type": "string", "maxLength": 63}))]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that winpool adds to the nodes of the pool. Other taints of the nodes stay. Omitted: nodes that have a Windows
    /// taint in any known spelling (`os=Windows`, `node.kubernetes.io/os=windows`, …) keep it, and all others get
    /// `os=windows:NoSchedule`. If set, all nodes get these taints, in this spelling. winpool does not change a taint with the
    /// same key and effect but another value unless `retiredTaints` lists it. With the `taintPolicy` `TaintAndTolerate`, a taint
    /// with the effect `NoSchedule` must mark Windows nodes: a known spelling, or a key that ends in `os` with a value that
    /// begins with `win`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]))]
    pub taints: Option<Vec<Taint>>,

    /// The rule for adding taints. `TaintAndTolerate`: winpool adds the taints, and adds their tolerations to pods for Windows
    /// that lack them. A node for which a DaemonSet lacks the toleration does not get the taint, because a DaemonSet makes no
    /// pod there that could get the toleration; the condition `TaintsApplied` names these DaemonSets. `TaintOnly`: at once,
    /// without tolerations for pods. `Never`: winpool adds no taints and removes those that it added; RuntimeClasses still
    /// tolerate `taints`.
    #[serde(default)]
    pub taint_policy: TaintPolicy,

    /// Taints that winpool removes from the pool's nodes, such as `os=Win1809:NoSchedule`, in the same request that adds
    /// those in `taints`. RuntimeClasses tolerate them while they are listed here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "value", "effect"]))]
    pub retired_taints: Vec<Taint>,

    /// `Enabled`: winpool creates one RuntimeClass for each Windows build of the pool's nodes that has a name, and keeps it when
    /// the last node of that build is gone. `Disabled`: the pool has only the RuntimeClasses in `runtimeClasses`.
    #[serde(default)]
    pub runtime_class_discovery: RuntimeClassDiscovery,

    /// Names of discovered RuntimeClasses. `{version}` is 2019, 2022, 2025 and so on, or a name in `buildNames`; `{pool}` is
    /// the name of this pool.
    #[serde(default)]
    #[schemars(length(min = 9, max = 63))]
    pub runtime_class_name_format: ClassNameFormat,

    /// `Exact`: a discovered RuntimeClass selects nodes of its build. `Compatible`: if a newer Windows runs images of its
    /// build, as Windows Server 2025 runs those of 2022, it selects every node that can run them, by the label
    /// `runs.winpool.dev/<build>`. winpool labels the nodes first, and changes the class when every node that runs the
    /// images has the label. A new node serves the class after winpool has labelled it. An autoscaler knows the label
    /// for a group without nodes if the group's template has it: `winpool render` writes it. A declared class follows
    /// its own `hostMatch`. The label stays on a node while it is true, also without the class.
    #[serde(default)]
    pub runtime_class_host_match: HostMatch,

    /// RuntimeClasses in addition to the discovered ones. A class with the name of a discovered class replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub runtime_classes: Vec<RuntimeClassSpec>,

    /// Names for builds that are newer than this release of winpool. Without a name a build has no discovered RuntimeClass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["build"]))]
    pub build_names: Vec<NamedBuild>,

    /// The rule for the deletion of this pool. `Delete`: winpool removes its labels, annotations and taints from the nodes
    /// and deletes RuntimeClasses that no pod uses; it stops managing those in use. `Retain`: everything stays.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,

    /// The RuntimeClass for pods with `os.name: windows` that choose neither a class nor a build. Requires the admission
    /// policy `assign-class`. Omitted: only the label `winpool.dev/runtime-class` of a namespace chooses a class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_defaults: Option<PodDefaults>,
}

/// The format of the names of discovered RuntimeClasses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ClassNameFormat(pub String);

impl Default for ClassNameFormat {
    fn default() -> Self {
        Self("windows-{version}".to_owned())
    }
}

/// The RuntimeClass for Windows pods that choose none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("!has(self.runtimeClassName) || self.runtimeClassName.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')")
        .message("runtimeClassName must be the name of one of the pool's RuntimeClasses, such as windows-2022"),
)]
#[serde(rename_all = "camelCase")]
pub struct PodDefaults {
    /// A RuntimeClass of this pool, discovered or declared. The policy uses it once its state is Applied, Adopted or
    /// Satisfied, and only for pods that select nodes by nothing but operating system and architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub runtime_class_name: Option<String>,
    /// First try to choose the class by the Windows version that the tags of all images of the pod name, such as
    /// `ltsc2022` or `10.0.20348.2655`.
    #[serde(default)]
    pub from_image_tags: bool,
}

/// A name for a Windows build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(
    validation = Rule::new("self.build.matches('^10[.]0[.][1-9][0-9]{0,5}$')")
        .message("build must be 10.0.<number>, as in the label node.kubernetes.io/windows-build, such as 10.0.20348"),
    validation = Rule::new("self.version.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
        .message("version must be lower-case letters, digits and hyphens, because it becomes part of a RuntimeClass name, such as preview"),
    validation = version_is_free(),
)]
pub struct NamedBuild {
    /// The build, such as `10.0.29000`.
    #[schemars(length(max = 12))]
    pub build: String,
    /// Its name in RuntimeClass names, such as `preview`.
    #[schemars(length(min = 1, max = 32))]
    pub version: String,
}

/// The rule of [`crate::windows::taint::marks_windows`] in CEL. winpool adds tolerations to pods for Windows taints alone,
/// so any other taint would keep away pods that run on these nodes today.
fn windows_taints_only() -> Rule {
    let spellings = joined(SPELLINGS.iter().map(|taint| format!("'{}={}'", taint.key, taint.value)));
    Rule::new(format!(
        "(has(self.taintPolicy) && self.taintPolicy != 'TaintAndTolerate') || !has(self.taints) || self.taints.all(t, t.effect != 'NoSchedule' \
         || (has(t.value) && (t.key + '=' + t.value in [{spellings}] || (t.key.matches('^(.*/)?[oO][sS]$') && t.value.matches('^[wW][iI][nN]')))))"
    ))
    .message(ONLY_WINDOWS_TAINTS)
}

pub(crate) const ONLY_WINDOWS_TAINTS: &str = "taintPolicy TaintAndTolerate allows only taints that mark Windows nodes, such as \
     os=windows:NoSchedule, because winpool adds no toleration of any other taint to pods; write taintPolicy: TaintOnly for others";

fn version_is_known() -> Rule {
    // CEL lists have items of one type; YAML takes 2022 for a number.
    let texts = joined(builds::all().iter().flat_map(Product::spellings).map(|text| format!("'{text}'")));
    let versions = || builds::all().iter().map(|product| product.version);
    let numbers = joined(versions().filter(|text| text.bytes().all(|b| b.is_ascii_digit())));
    let versions = joined(versions());
    Rule::new(format!(
        "!has(self.runtimeClasses) || self.runtimeClasses.all(c, !has(c.version) || c.version in ['{ANY_VERSION}', {texts}] || c.version in [{numbers}] \
         || (has(self.buildNames) && self.buildNames.exists(b, b.version == c.version)))"
    ))
    .message(Message::Message(format!(
        "runtimeClasses: version is not known; write {ANY_VERSION}, one of {versions}, name it in spec.buildNames, or write \
         build instead"
    )))
}

/// A name that a newer release of winpool gives the same build was right before, and stays so.
fn version_is_free() -> Rule {
    let pairs = builds::all().iter().map(|product| format!("['{}', '{}']", product.version, product.build));
    let pairs = joined(pairs);
    Rule::new(format!("[{pairs}].all(r, r[0] != self.version || r[1] == self.build)"))
        .message("version is the name of another Windows build already; choose another name")
}

// The values of the pool's fields that offer a choice.

/// The mode of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// winpool writes.
    #[default]
    Enforce,
    /// winpool reports what it would change, and writes only the pool's status.
    DryRun,
}

/// The rule by which winpool adds taints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintPolicy {
    /// A taint is added unless a DaemonSet objects, and pods for Windows get its toleration.
    #[default]
    TaintAndTolerate,
    /// Taints are added at once, and no pod gets a toleration.
    TaintOnly,
    /// Taints are not added.
    Never,
}

/// The choice to create RuntimeClasses for the builds of the pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuntimeClassDiscovery {
    /// One RuntimeClass for each build.
    #[default]
    Enabled,
    /// Only the RuntimeClasses in `spec.runtimeClasses`.
    Disabled,
}

/// The rule for the deletion of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// winpool removes its labels, annotations and taints, and deletes classes that no pod uses.
    #[default]
    Delete,
    /// Everything stays.
    Retain,
}

/// The isolation of a container from its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Isolation {
    /// Containers share the host's kernel.
    #[default]
    Process,
    /// Each pod has its own kernel in a utility VM.
    HyperV,
}

/// The hosts that a RuntimeClass selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostMatch {
    /// Hosts of its own build.
    #[default]
    Exact,
    /// Every host that runs images of its build.
    Compatible,
}

// `WindowsPool.spec.runtimeClasses`.

/// A RuntimeClass that the pool has even without nodes of its build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
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
pub const PROCESS_ISOLATION_HANDLER: &str = "runhcs-wcow-process";
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
    // then refuses the rule as too costly. That extended resources come in whole numbers is left to the rules of a RuntimeClass.
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
    Ok(Option::deserialize(deserializer)?.map(text))
}

fn text(written: IntOrString) -> String {
    match written {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text,
    }
}

fn version_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 32})
}

/// Quantities may be numbers: `cpu: 1`.
fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let written = BTreeMap::<String, IntOrString>::deserialize(deserializer)?;
    Ok(written.into_iter().map(|(name, amount)| (name, Quantity(text(amount)))).collect())
}
