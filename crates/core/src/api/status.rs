//! `WindowsPool.status`. Its size does not grow with the number of nodes.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Isolation;

/// The state of the pool as winpool sees it. Only winpool writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WindowsPoolStatus {
    /// The `metadata.generation` that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The time at which winpool last said that it runs. winpool renews it every ten minutes.
    #[serde(deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// The number of nodes by state.
    pub nodes: NodeCounts,
    /// The names in `runtimeClasses` and `builds`, for `kubectl get windowspools -o wide`.
    pub summary: Summary,
    /// Every taint that winpool may have added to nodes of this pool. winpool removes a taint only if it is listed here or in
    /// the spec of a pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["taint"]))]
    pub taints: Vec<TaintStatus>,
    /// The last ten workloads whose pods got tolerations from winpool, three of a namespace if there are others. Add the
    /// toleration to their pod templates: while winpool is away, their new pods wait. A name stays for 35 days after the last
    /// pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub helped_workloads: Vec<HelpedWorkload>,
    /// The Windows builds of the pool's nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["build"]))]
    pub builds: Vec<BuildStatus>,
    /// The pool's RuntimeClasses, discovered and declared ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 80), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub runtime_classes: Vec<RuntimeClassStatus>,
    /// Problems that need attention: at most ten entries, and one entry for all nodes with the same problem.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub problems: Vec<Problem>,
    /// `Ready` covers everything that winpool can do. The others are about one part of it, such as `NodesLabeled` or
    /// `TaintsApplied`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A taint that winpool may have added to nodes of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaintStatus {
    /// The taint, as `key=value:effect`.
    pub taint: String,
    /// The time at which winpool first added it to a node; absent before that. A DaemonSet that was created later does not
    /// keep it off nodes.
    #[serde(default, deserialize_with = "readable", skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// True if new nodes may register with it: the RuntimeClasses tolerate it, and no DaemonSet holds it. The admission policy
    /// `born-tainted` adds it then.
    #[serde(default)]
    pub at_registration: bool,
    /// Number of nodes that have it from winpool, or are about to get it.
    #[serde(default)]
    pub nodes: i64,
    /// Number of nodes that lack it and may not get it now. The condition `TaintsApplied` says why.
    #[serde(default)]
    pub waiting: i64,
    /// The DaemonSets that hold it, such as `DaemonSet shop/agent`, at most ten: they would make no pods for nodes with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "set"))]
    pub held_by: Vec<String>,
    /// The DaemonSets for Windows that make no new pods for nodes that have it, at most ten. Add the toleration to their
    /// templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "set"))]
    pub without_pods: Vec<String>,
}

/// The time, if a type here can hold it. The rest counts all the same.
fn readable<'de, D: Deserializer<'de>>(time: D) -> Result<Option<Time>, D::Error> {
    Ok(Time::deserialize(Value::deserialize(time)?).ok())
}

/// A workload whose pods got tolerations from winpool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HelpedWorkload {
    /// Its kind, namespace and name, such as `Deployment shop/web`.
    pub name: String,
    /// The time of the last pod.
    pub last: Time,
}

/// The names in two lists, separated by commas, because the path of a printer column reaches only the first entry of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Summary {
    /// Names of the pool's RuntimeClasses.
    pub runtime_classes: String,
    /// Builds of the pool's nodes.
    pub builds: String,
}

/// Numbers of nodes: `selected` = `converged` + `pending` + `held` + `contested` + `blocked` +
/// `ignored`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCounts {
    /// Nodes that belong to this pool.
    pub selected: i64,
    /// Nodes with the right label and taints.
    pub converged: i64,
    /// Nodes that winpool has yet to change. With `mode: DryRun`: nodes that winpool would change.
    pub pending: i64,
    /// Nodes that lack a taint because DaemonSets do not tolerate it, or because winpool has yet to list the pods.
    pub held: i64,
    /// Nodes on which another writer keeps reverting what winpool writes.
    pub contested: i64,
    /// Nodes that winpool cannot change: their build is not known, or the API server refuses the change.
    pub blocked: i64,
    /// Nodes with the annotation `winpool.dev/ignore: "true"`.
    pub ignored: i64,
}

/// One Windows build among the pool's nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildStatus {
    /// The build, as in the label `node.kubernetes.io/windows-build`.
    pub build: String,
    /// The product of that build, such as `Windows Server 2022`; absent if winpool does not know the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product: Option<String>,
    /// Number of nodes with this build.
    pub nodes: i64,
    /// The discovered RuntimeClass of this build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
}

/// One RuntimeClass of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeClassStatus {
    /// Name of the RuntimeClass.
    pub name: String,
    /// `metadata.uid` of a RuntimeClass that winpool created. winpool deletes no other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The build of its images, or `Any`.
    pub build: String,
    /// `Process` or `HyperV`.
    #[serde(default)]
    pub isolation: Isolation,
    /// The handler that it names.
    pub handler: String,
    /// `Applied`: winpool created it, and it is up to date. `Adopted`: winpool did not create it but manages it, and it is up
    /// to date. `Satisfied`: winpool does not manage it, and it meets the pool's needs. `Conflict`: winpool does not manage
    /// it or cannot change it, and it does not meet the pool's needs; see `problems`. `Pending`: winpool has yet to write it.
    pub state: ClassState,
    /// Number of the pool's nodes with that build.
    pub nodes: i64,
}

named! {
    /// State of a RuntimeClass.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
    pub enum ClassState {
        /// winpool created it, and it is up to date.
        Applied = "Applied",
        /// winpool did not create it but manages it, and it is up to date.
        Adopted = "Adopted",
        /// winpool does not manage it, and it meets the pool's needs.
        Satisfied = "Satisfied",
        /// winpool does not manage it or cannot change it, and it does not meet the pool's needs; see `problems`.
        Conflict = "Conflict",
        /// winpool has yet to write it.
        Pending = "Pending",
    }
}

/// A problem that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The reason in one word, such as `AdmissionDenied`.
    pub reason: String,
    /// The object that the problem is about; one example if several are affected.
    pub object: ObjectReference,
    /// The problem and its remedy.
    pub message: String,
}

/// A Kubernetes object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Kind, such as `Node` or `RuntimeClass`.
    pub kind: String,
    /// Namespace; absent for objects that have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ObjectReference {
    fn cluster_scoped(kind: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: None, name: name.to_owned() }
    }

    /// The object in this namespace.
    pub fn namespaced(kind: &str, namespace: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), namespace: Some(namespace.to_owned()), name: name.to_owned() }
    }

    /// The object with a name such as `Deployment shop/web`, as it is displayed.
    pub fn named(text: &str) -> Self {
        let (kind, name) = text.split_once(' ').unwrap_or(("Pod", text));
        match name.split_once('/') {
            Some((namespace, name)) => Self::namespaced(kind, namespace, name),
            None => Self::cluster_scoped(kind, name),
        }
    }

    /// The Node with this name.
    pub fn node(name: &str) -> Self {
        Self::cluster_scoped("Node", name)
    }

    /// The Namespace with this name.
    pub fn namespace(name: &str) -> Self {
        Self::cluster_scoped("Namespace", name)
    }

    /// The RuntimeClass with this name.
    pub fn runtime_class(name: &str) -> Self {
        Self::cluster_scoped("RuntimeClass", name)
    }

    /// The CustomResourceDefinition of WindowsPools.
    pub fn custom_resource_definition() -> Self {
        Self::cluster_scoped("CustomResourceDefinition", "windowspools.winpool.dev")
    }

    /// The WindowsPool with this name.
    pub fn windows_pool(name: &str) -> Self {
        Self::cluster_scoped("WindowsPool", name)
    }
}

impl Problem {
    /// A problem of this object.
    pub fn new(reason: &str, object: ObjectReference, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), object, message: message.into() }
    }
}

impl fmt::Display for ObjectReference {
    /// Formats it as `RuntimeClass windows-2022`, or `Pod shop/web-0` with a namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// A count in the API's integer type.
pub fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
