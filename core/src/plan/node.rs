//! A node as winpool reads it, its states, and changes of it.

use std::sync::Arc;

use crate::{
    api::names,
    labels::Labels,
    windows::{KernelVersion, compatibility::WindowsHost},
};

use super::taint_list::{TaintChange, TaintList};

/// The fields of a node that winpool reads, as the API server sent them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFields {
    pub labels: Labels,
    /// True if `metadata.annotations` is not empty: a JSON Patch cannot add a key to an absent map.
    pub has_annotations: bool,
    /// The annotation `winpool.dev/applied`.
    pub applied: Option<Box<str>>,
    /// The annotation `winpool.dev/ignore`.
    pub ignore: Option<Box<str>>,
    pub taints: Arc<TaintList>,
    /// `spec.unschedulable`.
    pub is_cordoned: bool,
    /// `status.nodeInfo.kernelVersion`.
    pub kernel_version: Option<Arc<str>>,
    /// `status.nodeInfo.operatingSystem`.
    pub operating_system: Option<Arc<str>>,
    /// `status.nodeInfo.containerRuntimeVersion`.
    pub container_runtime: Option<Arc<str>>,
}

impl NodeFields {
    /// The Windows version that the node reports, or else the build of a well-formed `windows-build` label.
    pub fn windows_version(&self) -> Option<KernelVersion> {
        let reported = self.kernel_version.as_deref().and_then(|text| text.parse().ok());
        reported.or_else(|| {
            let build = self.labels.get(names::WINDOWS_BUILD)?.parse().ok()?;
            Some(KernelVersion { build, revision: None })
        })
    }

    /// What decides which images it runs; `None` if its build is not known.
    pub fn windows_host(&self) -> Option<WindowsHost> {
        let runtime = self.container_runtime.as_deref().and_then(|text| text.parse().ok());
        Some(WindowsHost { build: self.windows_version()?.build, runtime })
    }

    /// True if its labels say that it runs Windows.
    pub fn is_windows(&self) -> bool {
        self.labels.get(names::OS) == Some(names::WINDOWS)
    }

    pub fn is_ignored(&self) -> bool {
        self.ignore.as_deref() == Some("true")
    }

    pub(super) fn was_reimaged(&self) -> bool {
        self.labels.get(names::OS).is_some_and(|os| os != names::WINDOWS)
    }

    /// The node after this plan was executed.
    pub fn after(&self, plan: &NodePlan) -> Self {
        let labels = self.labels.with(plan.labels().map(|change| (change.key.as_str(), change.to.as_deref())));
        let mut after = Self { labels, ..self.clone() };
        if let Some(change) = &plan.taints {
            after.taints = Arc::new(TaintList::new(Some(change.to.clone())));
        }
        if let Some(MetadataChange { to, .. }) = &plan.applied {
            after.applied = to.as_deref().map(Into::into);
            after.has_annotations |= to.is_some();
        }
        after
    }

    /// True if the node's operating system label contradicts its report. winpool does not write such a node. A node that
    /// was reimaged may keep its old label until its kubelet reports, or report its old system for a moment after the
    /// kubelet has written the label. A kubelet restores a label that another writer changed within 10 seconds.
    pub fn contradicts_itself(&self) -> bool {
        let reported = self.operating_system.as_deref().filter(|os| !os.is_empty());
        reported.is_some_and(|os| (os == names::WINDOWS) != self.is_windows())
    }
}

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
    pub(super) fn between(key: &str, from: Option<&str>, to: Option<&str>) -> Option<Self> {
        let change = || Self { key: key.to_owned(), from: from.map(str::to_owned), to: to.map(str::to_owned) };
        (from != to).then(change)
    }
}

/// The changes that a node needs. They are sent in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// The plan of which this is the first part and `rest` the second one.
    pub(super) fn with_rest(self, rest: &Self) -> Self {
        Self { windows_build: self.windows_build, capability_labels: self.capability_labels, ..rest.clone() }
    }
}

named! {
    /// State of a node, as status and metrics count it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum NodeState {
        /// It has the right labels and taints.
        Converged = "converged",
        /// winpool is about to change it.
        Pending = "pending",
        /// It lacks a taint that DaemonSets do not tolerate.
        Held = "held",
        /// Another writer keeps reverting what winpool writes.
        Contested = "contested",
        /// winpool cannot change it.
        Blocked = "blocked",
        /// It has the annotation `winpool.dev/ignore`.
        Ignored = "ignored",
    }
}
