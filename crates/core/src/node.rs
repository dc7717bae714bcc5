//! A node: the fields that winpool reads, changes of them, and winpool's own record.

use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::{Taint, names};
use crate::labels::Labels;
use crate::windows::compatibility::WindowsHost;
use crate::windows::{Build, ReportedVersion};

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

    /// The taints that winpool may have added, without a proof of it: those that the status of the node's pool (`recorded`) names
    /// and the node's record does not; if that pool does not exist, those that the record names.
    pub fn doubtful_taints(&self, recorded: Option<&[Taint]>) -> impl Iterator<Item = &Taint> {
        let applied = self.applied.as_deref().and_then(Applied::parse).unwrap_or_default();
        self.taints.taints().iter().filter(move |taint| {
            let is_claimed = applied.claims(taint);
            !taint.has_foreign_key() && recorded.map_or(is_claimed, |recorded| recorded.contains(taint) && !is_claimed)
        })
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

// Changes of a node.

/// A label or annotation to set, or to remove when `to` is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetadataChange {
    pub key: String,
    /// The value that the node has.
    pub from: Option<String>,
    /// The value that it should have.
    pub to: Option<String>,
}

impl MetadataChange {
    /// Returns the change; `None` if the values are equal.
    pub(crate) fn between(key: &str, from: Option<&str>, to: Option<&str>) -> Option<Self> {
        let change = || Self { key: key.to_owned(), from: from.map(str::to_owned), to: to.map(str::to_owned) };
        (from != to).then(change)
    }
}

/// The changes that a node needs. They are sent in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodePlan {
    /// `node.kubernetes.io/windows-build`.
    pub windows_build: Option<MetadataChange>,
    /// Labels under `runs.winpool.dev/`.
    pub capability_labels: Vec<MetadataChange>,
    pub taints: Option<TaintChange>,
    /// The label `winpool.dev/pool`.
    pub pool: Option<MetadataChange>,
    /// The annotation `winpool.dev/applied`.
    pub applied: Option<MetadataChange>,
}

impl NodePlan {
    /// True if only the record that the plan writes is missing on a node with this label `winpool.dev/pool` and this annotation
    /// `winpool.dev/applied`. If the label is missing as well, another writer reverts everything.
    pub fn is_stripped(&self, label: Option<&str>, annotation: Option<&str>) -> bool {
        let record = self.applied.as_ref().and_then(|change| change.to.as_deref());
        label.is_some() && record.is_some() && record != annotation
    }

    /// True if the node needs no change.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn labels(&self) -> impl Iterator<Item = &MetadataChange> {
        self.windows_build.iter().chain(&self.capability_labels).chain(&self.pool)
    }

    /// The labels, and everything else. Each part can be sent if the other one is refused.
    pub fn parts(&self) -> [Self; 2] {
        let labels = Self {
            windows_build: self.windows_build.clone(),
            capability_labels: self.capability_labels.clone(),
            ..Self::default()
        };
        let rest = Self { windows_build: None, capability_labels: Vec::new(), ..self.clone() };
        [labels, rest]
    }

    /// The plan as it is tried to be sent: as a whole and then, if it has two parts, each of them.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = Self> {
        let parts = move || self.parts().into_iter().filter(move |part| !part.is_empty() && part != self);
        let whole = (!self.is_empty()).then(|| self.clone());
        whole.into_iter().chain(iter::once_with(parts).flatten())
    }
}

/// A change of the taint list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaintChange {
    /// The whole list to write.
    pub to: Vec<Value>,
    /// Taints that the new list adds.
    pub added: Vec<Taint>,
    /// Taints that the new list lacks.
    pub removed: Vec<Taint>,
}

// What winpool records on a node of what it added, and what this process knows of the node besides its object.

/// The annotation `winpool.dev/applied`: the pool that manages the node, and the taints that winpool added.
///
/// A kubelet can write it on its own node, so it is only a hint: see `Policy::may_remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub pool: String,
    /// The taints that winpool added, as `key=value:effect`.
    #[serde(default)]
    pub taints: Vec<String>,
}

impl Applied {
    /// Parses the annotation. One that does not parse names no pool and no taint.
    pub fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    /// True if it says that winpool added this taint.
    pub(crate) fn claims(&self, taint: &Taint) -> bool {
        self.taints.contains(&taint.to_string())
    }

    /// The annotation's value, as compact JSON.
    pub fn to_annotation(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// The label `winpool.dev/pool` and the annotation `winpool.dev/applied` of a node.
pub(crate) struct NodeRecord<'n> {
    label: Option<&'n str>,
    annotation: Option<&'n str>,
    pub(crate) applied: Option<Applied>,
}

impl<'n> NodeRecord<'n> {
    pub(crate) fn of(node: &'n NodeFields) -> Self {
        let annotation = node.applied.as_deref();
        Self { label: node.labels.get(names::POOL), annotation, applied: annotation.and_then(Applied::parse) }
    }

    /// The record with what this process knows of it, if somebody removed or replaced the annotation and left the label. A former
    /// leader may have written the other one, or this process, without an answer: the label agrees with it then.
    pub(crate) fn or_known(self, watched: Option<&Watched>) -> Self {
        let known = watched.and_then(|watched| watched.applied.as_deref());
        if self.label.is_none() || known == self.annotation {
            return self;
        }
        let Some(mut known) = known.and_then(Applied::parse) else { return self };
        if let Some(other) = self.applied {
            known.taints.extend(other.taints);
            if self.label == Some(&*other.pool) {
                known.pool = other.pool;
            }
        }
        Self { applied: Some(known), ..self }
    }

    pub(crate) fn exists(&self) -> bool {
        self.label.is_some() || self.annotation.is_some()
    }

    pub(crate) fn pool(&self) -> Option<&str> {
        self.applied.as_ref().map(|applied| applied.pool.as_str()).or(self.label)
    }

    pub(crate) fn label_change(&self, pool: Option<&str>) -> Option<MetadataChange> {
        MetadataChange::between(names::POOL, self.label, pool)
    }

    pub(crate) fn annotation_change(&self, wanted: Option<&Applied>) -> Option<MetadataChange> {
        if wanted.is_some() && self.annotation.and_then(Applied::parse).as_ref() == wanted {
            return None;
        }
        let to = wanted.map(Applied::to_annotation);
        MetadataChange::between(names::APPLIED, self.annotation, to.as_deref())
    }
}

/// The time for which winpool does not correct a build label that contradicts the node's report. After an in-place
/// upgrade the kubelet writes the label of the new build first, and reports that build 0.2 seconds later, or some
/// seconds later if the API server is busy.
pub const LABEL_SETTLES: Duration = Duration::from_secs(5);

/// What this process knows of a node besides its object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// The time until which winpool leaves the build label alone although the node reports another build.
    pub label_settles: Option<Instant>,
    /// The annotation `winpool.dev/applied` that this process wrote last or, while it writes nothing, saw last.
    pub(crate) applied: Option<Arc<str>>,
    /// True while pods that run on the node are to get tolerations before it gets taints.
    pub(crate) awaits_pods: bool,
}

impl Watched {
    /// Takes in the node as it was seen by a process that leads, or by another one.
    pub fn see(&mut self, node: &NodeFields, leads: bool, now: Instant) {
        let label = node.labels.get(names::WINDOWS_BUILD).and_then(|text| text.parse::<Build>().ok());
        let contradicts = label.zip(node.reported_build()).is_some_and(|(label, reported)| label != reported);
        self.label_settles = contradicts.then(|| self.label_settles.unwrap_or(now + LABEL_SETTLES));
        let known = self.applied.take();
        self.applied = if leads { known.or_else(|| node.applied.clone()) } else { node.applied.clone().or(known) };
    }
}
