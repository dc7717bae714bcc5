//! `WindowsPool.spec`.

use std::collections::BTreeMap;

use kube::{
    CustomResource, KubeSchema,
    core::{Message, Rule},
};
use serde::{Deserialize, Serialize};

use crate::windows::{
    product::{PRODUCTS, Product},
    taint::SPELLINGS,
};

use super::{
    ANY_VERSION, DeletionPolicy, HostMatch, Mode, RuntimeClassDiscovery, RuntimeClassSpec, Taint, TaintPolicy,
    WindowsPoolStatus,
};

/// A group of Windows nodes and what winpool does with them. winpool does not create nodes. Every field has a default;
/// most clusters need only `spec: {}`: winpool labels and taints all Windows nodes and keeps one RuntimeClass per build.
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
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes.selected"),
    printcolumn(name = "Converged", type_ = "integer", json_path = ".status.nodes.converged"),
    printcolumn(name = "Taints", type_ = "string", json_path = ".status.conditions[?(@.type=='TaintsApplied')].reason"),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode"),
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

    /// `Enabled`: winpool creates one RuntimeClass for each Windows build of the pool's nodes, and keeps it when the last
    /// node of that build is gone. `Disabled`: the pool has only the RuntimeClasses in `runtimeClasses`.
    #[serde(default)]
    pub runtime_class_discovery: RuntimeClassDiscovery,

    /// Names of discovered RuntimeClasses. `{version}` is 2019, 2022, 2025 and so on, or `build-<number>` for a build
    /// without a name; `{pool}` is the name of this pool.
    #[serde(default = "default_runtime_class_name_format")]
    #[schemars(length(min = 9, max = 63))]
    pub runtime_class_name_format: String,

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

    /// Names for builds that are newer than this release of winpool.
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

fn default_runtime_class_name_format() -> String {
    "windows-{version}".to_owned()
}

impl Default for WindowsPoolSpec {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            node_selector: BTreeMap::new(),
            taints: None,
            retired_taints: Vec::new(),
            runtime_class_discovery: RuntimeClassDiscovery::default(),
            runtime_class_name_format: default_runtime_class_name_format(),
            runtime_class_host_match: HostMatch::default(),
            runtime_classes: Vec::new(),
            build_names: Vec::new(),
            taint_policy: TaintPolicy::default(),
            deletion_policy: DeletionPolicy::default(),
            pod_defaults: None,
        }
    }
}

/// The RuntimeClass for Windows pods that choose none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[cfg_attr(test, x_kube(cel))]
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
#[cfg_attr(test, x_kube(cel))]
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

/// The releases of Windows, as a CEL rule or its message lists them.
fn releases(separated_by: &str, written: impl Fn(&Product) -> String) -> String {
    PRODUCTS.iter().map(written).collect::<Vec<_>>().join(separated_by)
}

/// The rule of [`crate::windows::taint::marks_windows`] in CEL. winpool adds tolerations to pods for Windows taints alone,
/// so any other taint would keep away pods that run on these nodes today.
fn windows_taints_only() -> Rule {
    let spellings: Vec<String> = SPELLINGS.iter().map(|taint| format!("'{}={}'", taint.key, taint.value)).collect();
    let spellings = spellings.join(", ");
    Rule::new(format!(
        "(has(self.taintPolicy) && self.taintPolicy != 'TaintAndTolerate') || !has(self.taints) || self.taints.all(t, t.effect != 'NoSchedule' \
         || (has(t.value) && (t.key + '=' + t.value in [{spellings}] || (t.key.matches('^(.*/)?[oO][sS]$') && t.value.matches('^[wW][iI][nN]')))))"
    ))
    .message(ONLY_WINDOWS_TAINTS)
}

pub(super) const ONLY_WINDOWS_TAINTS: &str = "taintPolicy TaintAndTolerate allows only taints that mark Windows nodes, such as \
     os=windows:NoSchedule, because winpool adds no toleration of any other taint to pods; write taintPolicy: TaintOnly for others";

fn version_is_known() -> Rule {
    // CEL lists have items of one type; YAML takes 2022 for a number.
    let texts: Vec<String> = PRODUCTS.iter().flat_map(Product::spellings).map(|text| format!("'{text}'")).collect();
    let numbers =
        PRODUCTS.iter().map(|product| product.version).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    let (texts, numbers) = (texts.join(", "), numbers.collect::<Vec<_>>().join(", "));
    let versions = releases(", ", |product| product.version.to_owned());
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
    let pairs = releases(", ", |product| format!("['{}', '{}']", product.version, product.build));
    Rule::new(format!(
        "[{pairs}].all(r, r[0] != self.version || r[1] == self.build) && !self.version.startsWith('build-')"
    ))
    .message("version is the name of another Windows build already; choose another name")
}
