//! What a pool may add to nodes at this moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::{Taint, names};
use crate::labels::Labels;
use crate::node::NodeFields;
use crate::plan::pools::objector::Objector;
use crate::windows::Build;

/// The taints that a pool may add to nodes, and those that wait.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolConsent {
    /// The time at which winpool first added each taint to a node, as status records it.
    pub since: BTreeMap<Taint, Timestamp>,
    /// The `DaemonSets` that hold taints, as status records them.
    pub held_by: BTreeSet<String>,
    /// True if winpool knows the pods and the `DaemonSets`.
    pub may_add: bool,
    /// The `DaemonSets` that may object to a taint.
    pub objectors: Arc<Vec<Objector>>,
    /// The pool's RuntimeClasses that do not tolerate its taints yet. The nodes that they select wait for them.
    pub lagging: Vec<LaggingClass>,
    /// The builds that have a planned class. A node of another build waits until its class is planned too.
    pub planned_builds: BTreeSet<Build>,
    /// The builds whose capability labels the pool's RuntimeClasses select, now or as soon as the nodes have them.
    pub images: BTreeSet<Build>,
    /// True while winpool cannot read nodes, pools or RuntimeClasses, so that no node gets a taint.
    pub cannot_read: bool,
}

impl PoolConsent {
    /// True if a `DaemonSet` would lose its pod on a node with these labels and this name by the taint.
    pub(crate) fn objects(&self, taint: &Taint, labels: &Labels, node: &str) -> bool {
        let since = self.since.get(taint).copied();
        self.objectors.iter().any(|objector| objector.objects(taint, since, labels, node))
    }
}

/// A RuntimeClass of a pool that does not tolerate some taints yet. The nodes that it selects wait for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaggingClass {
    pub name: String,
    pub selector: BTreeMap<String, String>,
    /// The taints that its pods do not tolerate, or that some API servers may not know yet.
    pub taints: Vec<Taint>,
    /// True if the class does not exist yet, so that no pod can use it.
    pub is_missing: bool,
}

impl LaggingClass {
    /// True if it exists and does not tolerate the taint, with which no node may register then.
    pub(crate) fn lags(&self, taint: &Taint) -> bool {
        !self.is_missing && self.taints.contains(taint)
    }

    /// True if the node may not get the taint before the class tolerates it: the class selects the node, now or once that has
    /// its build label and capability labels.
    pub(crate) fn holds(&self, taint: &Taint, node: &NodeFields, build: Option<Build>) -> bool {
        let is_planned = |key: &str, value: &str| match key {
            names::WINDOWS_BUILD => build.is_none_or(|build| build.to_string() == value),
            key => key.starts_with(names::CAPABILITY_LABEL_PREFIX),
        };
        let is_selected = |key: &str, value: &str| node.labels.get(key) == Some(value) || is_planned(key, value);
        self.taints.contains(taint) && self.selector.iter().all(|(key, value)| is_selected(key, value))
    }
}
