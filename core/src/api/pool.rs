//! `WindowsPool.spec`.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AdoptionPolicy, DeletionPolicy, HostMatch, Mode, RuntimeClassDiscovery, RuntimeClassSpec, Taint, TaintPolicy,
    WindowsPoolStatus,
};

/// A group of Windows nodes and what winpool does with them. winpool does not create nodes. Every field has a default;
/// most clusters need only `spec: {}`: winpool labels and taints all Windows nodes and keeps one RuntimeClass per build.
#[derive(CustomResource, JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "winpool.dev",
    version = "v1alpha1",
    kind = "WindowsPool",
    plural = "windowspools",
    shortname = "winpool",
    shortname = "wp",
    status = "WindowsPoolStatus",
    derive = "PartialEq",
    doc = "WindowsPool describes a group of Windows nodes: winpool labels and taints them and keeps one RuntimeClass per Windows build. `spec: {}` selects all Windows nodes."
)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsPoolSpec {
    /// `Enforce`: winpool writes. `DryRun`: winpool reports what it would change, and writes only this object's status.
    pub mode: Mode,

    /// Labels that a Windows node must have to belong to this pool, as in a pod's nodeSelector. winpool adds
    /// `kubernetes.io/os: windows`. Empty selects all Windows nodes. A node that several pools select belongs to the oldest
    /// of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Taints that winpool adds to the nodes of the pool. Other taints of the nodes stay. Omitted: nodes that have a Windows
    /// taint in any known spelling (`os=Windows`, `node.kubernetes.io/os=windows`, …) keep it, and all others get
    /// `os=windows:NoSchedule`. If set, all nodes get these taints, in this spelling. winpool does not change a taint with the
    /// same key and effect but another value unless `retiredTaints` lists it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taints: Option<Vec<Taint>>,

    /// The rule for adding taints. `WhenTolerated`: only if no workload would become unschedulable; until then the condition
    /// `TaintsApplied` names the workloads that do not tolerate the taint. Labels and RuntimeClasses do not wait. `Always`:
    /// at once, even if workloads become unschedulable. `Never`: winpool adds no taints and removes those that it added;
    /// RuntimeClasses still tolerate `taints`.
    pub taint_policy: TaintPolicy,

    /// Taints that winpool removes from the pool's nodes, such as `os=Win1809:NoSchedule`, in the same request that adds
    /// those in `taints`. RuntimeClasses tolerate them while they are listed here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retired_taints: Vec<Taint>,

    /// `Enabled`: winpool creates one RuntimeClass for each Windows build of the pool's nodes, and keeps it when the last
    /// node of that build is gone. `Disabled`: the pool has only the RuntimeClasses in `runtimeClasses`.
    pub runtime_class_discovery: RuntimeClassDiscovery,

    /// Names of discovered RuntimeClasses. `{version}` is 2019, 2022, 2025 and so on, or `build-<number>` for a build
    /// without a name; `{pool}` is the name of this pool.
    pub runtime_class_name_format: String,

    /// `Exact`: a discovered RuntimeClass selects nodes of its build. `Compatible`: if a newer Windows runs images of its
    /// build, as Windows Server 2025 runs those of 2022, it selects every node that can run them, by the label
    /// `runtimeclass.winpool.dev/<name>`. winpool labels the nodes first and changes the class when every node that it
    /// selects has the label. A new node serves the class after winpool has labelled it. An autoscaler knows the label
    /// for a group without nodes if the group's template has it: `winpool render` writes it. A declared class follows
    /// its own `hostMatch`.
    pub runtime_class_host_match: HostMatch,

    /// RuntimeClasses in addition to the discovered ones. A class with the name of a discovered class replaces it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub runtime_classes: Vec<RuntimeClassSpec>,

    /// Names for builds that are newer than this release of winpool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub build_names: Vec<NamedBuild>,

    /// The rule for a RuntimeClass that winpool did not create and whose name this pool needs. `IfCompatible`: winpool
    /// manages it from then on if no other owner is recorded on it, and it has the handler, selector and tolerations that
    /// the pool needs. `Always`: winpool manages it and corrects its scheduling, but never its handler. `Never`: winpool
    /// does not change it. A class that winpool does not change and that does not meet the pool's needs is a conflict.
    pub runtime_class_adoption_policy: AdoptionPolicy,

    /// The rule for the deletion of this pool. `Delete`: winpool removes its labels, annotations and taints from the nodes
    /// and deletes RuntimeClasses that no pod uses; it stops managing those in use. `Retain`: everything stays.
    pub deletion_policy: DeletionPolicy,

    /// The RuntimeClass for pods with `os.name: windows` that choose neither a class nor a build. Requires the admission
    /// policy `assign-class`. Omitted: only the label `winpool.dev/runtime-class` of a namespace chooses a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_defaults: Option<PodDefaults>,
}

impl Default for WindowsPoolSpec {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            node_selector: BTreeMap::new(),
            taints: None,
            retired_taints: Vec::new(),
            runtime_class_discovery: RuntimeClassDiscovery::default(),
            runtime_class_name_format: "windows-{version}".to_owned(),
            runtime_class_host_match: HostMatch::default(),
            runtime_classes: Vec::new(),
            build_names: Vec::new(),
            taint_policy: TaintPolicy::default(),
            runtime_class_adoption_policy: AdoptionPolicy::default(),
            deletion_policy: DeletionPolicy::default(),
            pod_defaults: None,
        }
    }
}

/// The RuntimeClass for Windows pods that choose none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDefaults {
    /// A RuntimeClass of this pool, discovered or declared. The policy uses it once its state is Applied or Adopted, and
    /// only for pods that select nodes by nothing but operating system and architecture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// First try to choose the class by the Windows version that the tags of all images of the pod name, such as
    /// `ltsc2022` or `10.0.20348.2655`.
    pub from_image_tags: bool,
}

/// A name for a Windows build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedBuild {
    /// The build, such as `10.0.29000`.
    pub build: String,
    /// Its name in RuntimeClass names, such as `preview`.
    pub version: String,
}
