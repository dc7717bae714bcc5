//! The input of a workload check.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::Taint,
    labels::Labels,
    plan::admission::Admission,
    pod::{Class, WorkloadKind},
};

use super::class_source::ClassSource;

/// The limit of questions in one check. Further ones go to the next check.
pub const QUESTIONS: usize = 64;

/// A Windows node in its planned state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlannedNode {
    pub name: Arc<str>,
    pub uid: Arc<str>,
    /// Its planned labels.
    pub labels: Labels,
    /// Its taints and those that it is about to get, without the ones that the check is about.
    pub taints: Vec<Taint>,
    /// True if pods can start there: it is ready and not cordoned.
    pub serves: bool,
}

/// The question: would a workload become unschedulable if these nodes got this taint?
#[derive(Clone, Debug, PartialEq)]
pub struct TaintQuestion {
    /// The pool that asks.
    pub pool: String,
    pub taint: Taint,
    /// The nodes that lack it and would get it, as indexes into the list of nodes.
    pub candidates: BTreeSet<usize>,
    /// Before the taint is approved: approved taints are added to new nodes at once.
    pub to_approve: Option<PoolMembers>,
    /// True if the pool enforces. Other questions then assume that the nodes get the taint.
    pub enforces: bool,
}

/// The nodes that a pool has, and those that it may get.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolMembers {
    /// Its present nodes, as indexes into the list of nodes.
    pub present: BTreeSet<usize>,
    /// The labels of all its nodes, also future ones.
    pub labels: BTreeMap<String, String>,
}

/// The input of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckScope {
    pub nodes: Vec<PlannedNode>,
    pub questions: Vec<TaintQuestion>,
    /// The RuntimeClasses by name.
    pub classes: BTreeMap<String, Class>,
    /// In a dry run, the RuntimeClasses that would be written.
    pub planned_classes: BTreeMap<String, Class>,
    /// The admission policies.
    pub admission: Admission,
    /// The fields of each pool that the admission policy `assign-class` reads, if it acts for the pool.
    pub class_sources: BTreeMap<String, ClassSource>,
    /// The present time, to tell how long a pod has waited.
    pub now: Timestamp,
}

/// Kind, namespace and name of a workload.
pub type WorkloadName = (WorkloadKind, String, String);

/// Reads a name such as `Deployment shop/web`; `None` for a kind that winpool does not read.
pub(crate) fn workload_name(text: &str) -> Option<WorkloadName> {
    let (kind, rest) = text.split_once(' ')?;
    let (namespace, name) = rest.split_once('/')?;
    Some((WorkloadKind::by_name(kind)?, namespace.to_owned(), name.to_owned()))
}
