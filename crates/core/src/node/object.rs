//! A node as winpool reads it.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    api::{Taint, names},
    labels::Labels,
    windows::{Build, ReportedVersion, compatibility::WindowsHost},
};

/// The fields of a node that winpool reads, as the API server sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFields {
    pub labels: Labels,
    /// True if `metadata.annotations` is not empty: a JSON Patch cannot add a key to an absent map.
    pub has_annotations: bool,
    /// The annotation `winpool.dev/applied`.
    pub applied: Option<Arc<str>>,
    /// The annotation `winpool.dev/ignore`.
    pub ignore: Option<Box<str>>,
    pub taints: Arc<TaintList>,
    /// `spec.unschedulable`.
    pub is_cordoned: bool,
    /// `status.nodeInfo.kernelVersion`.
    pub kernel_version: Option<ReportedVersion>,
    /// `status.nodeInfo.operatingSystem`.
    pub operating_system: Option<Arc<str>>,
    /// `status.nodeInfo.containerRuntimeVersion`.
    pub container_runtime: Option<Arc<str>>,
}

impl NodeFields {
    /// The Windows build that the node reports, or else that of a well-formed `windows-build` label.
    pub fn windows_build(&self) -> Option<Build> {
        self.reported_build().or_else(|| self.labels.get(names::WINDOWS_BUILD)?.parse().ok())
    }

    pub(crate) fn reported_build(&self) -> Option<Build> {
        Some(self.kernel_version.as_ref()?.version?.build)
    }

    /// What decides which images it runs; `None` if its build is not known.
    pub fn windows_host(&self) -> Option<WindowsHost> {
        let runtime = self.container_runtime.as_deref().and_then(|text| text.parse().ok());
        Some(WindowsHost { build: self.windows_build()?, runtime })
    }

    /// True if its labels say that it runs Windows.
    pub fn is_windows(&self) -> bool {
        self.labels.get(names::OS) == Some(names::WINDOWS)
    }

    pub fn is_ignored(&self) -> bool {
        self.ignore.as_deref() == Some("true")
    }

    pub(crate) fn was_reimaged(&self) -> bool {
        self.labels.get(names::OS).is_some_and(|os| os != names::WINDOWS)
    }

    /// True if the node's operating system label contradicts its report. winpool does not write such a node. A node that
    /// was reimaged may keep its old label until its kubelet reports, or report its old system for a moment after the
    /// kubelet has written the label. A kubelet restores a label that another writer changed within 10 seconds.
    pub fn contradicts_itself(&self) -> bool {
        let reported = self.operating_system.as_deref().filter(|os| !os.is_empty());
        reported.is_some_and(|os| (os == names::WINDOWS) != self.is_windows())
    }
}

/// A node as a watch or a read shows it: its identity, and the fields that winpool reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeObject {
    pub name: Arc<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    /// The fields that winpool decides by.
    pub node: NodeFields,
    /// The field manager that last wrote the node, apart from its status and from winpool's own writes.
    pub other_writer: Option<Arc<str>>,
}

/// A label of nodes from a known provisioner, and the place where their taints and labels are configured.
const REMEDIES: [(&str, &str); 3] = [
    ("kubernetes.azure.com/agentpool", "set the same taint and label on the AKS node pool, whose API keeps its own"),
    (
        "node.openshift.io/os_id",
        "set the same taint in the kubelet configuration of the Windows Machine Config Operator",
    ),
    ("karpenter.sh/nodepool", "set the same taint in the Karpenter NodePool"),
];

impl NodeObject {
    /// Describes the writer that keeps reverting winpool's changes: the last one besides winpool, and the setting to change if
    /// the node's provisioner is known. A writer that removes the last taint is not among the field managers.
    pub(crate) fn describe_other_writer(&self) -> String {
        let known = REMEDIES.iter().find(|(label, _)| self.node.labels.get(label).is_some());
        let remedy = known.map_or(
            "find out which controller writes its taints and labels, or set winpool.dev/ignore on it",
            |(_, remedy)| remedy,
        );
        let cause = match &self.other_writer {
            Some(writer) => format!("another writer keeps reverting winpool's changes (last field manager: {writer})"),
            None => "another writer keeps reverting winpool's changes, or the kubelet keeps reporting another version"
                .to_owned(),
        };
        format!("{cause}; {remedy}")
    }
}

/// `spec.taints` of a node as the API server sent it, with its parsed form.
///
/// A patch tests and writes the raw JSON, so that `timeAdded` and fields unknown to this client survive, and so that a
/// value which the API server omits is not tested as `""`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TaintList {
    raw: Option<Vec<Value>>,
    taints: Vec<Taint>,
}

impl TaintList {
    /// The list of this raw JSON; `None` if the node has no `spec.taints`.
    pub fn new(raw: Option<Vec<Value>>) -> Self {
        let taints = raw.iter().flatten().map(taint_of).collect();
        Self { raw, taints }
    }

    /// The API server's JSON; `null` if the node has no `spec.taints`.
    pub fn to_json(&self) -> Value {
        self.raw.clone().map_or(Value::Null, Value::Array)
    }

    /// The taints in their order.
    pub fn taints(&self) -> &[Taint] {
        &self.taints
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&Value, &Taint)> {
        self.raw.iter().flatten().zip(&self.taints)
    }
}

fn taint_of(raw: &Value) -> Taint {
    let part = |key: &str| raw.get(key).and_then(Value::as_str).unwrap_or_default();
    Taint::new(part("key"), part("value"), part("effect"))
}
