//! The results of a workload check.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::api::Taint;

/// The kind without which a check has no result.
pub const PODS: &str = "pods";

/// The results of a check for one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckAnswer {
    /// The nodes that may get each taint, by uid: no workload becomes unschedulable.
    pub clean: BTreeMap<Taint, Arc<BTreeSet<Arc<str>>>>,
    /// The taints that would make a workload unschedulable.
    pub held: BTreeSet<Taint>,
    /// Workloads that would become unschedulable, each with the number of its pods that count.
    pub unschedulable: BTreeMap<String, usize>,
    /// Kinds that were left out, with the API server's message.
    pub unlisted: BTreeMap<String, String>,
    /// The RuntimeClasses that the pods and templates use which the check has read.
    pub used_classes: Arc<BTreeSet<String>>,
}
