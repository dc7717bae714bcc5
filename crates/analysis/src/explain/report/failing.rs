//! The pods that fail because of Windows, by the rules of the operator.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::names::reason;
use winpool_core::api::{ObjectReference, Problem};
use winpool_core::plan::Now;
use winpool_core::plan::nodes::{NodeEvent, NodeTable};
use winpool_core::plan::pods::{ClusterFacts, PoolFailures};
use winpool_core::plan::pools::pool::policy_of;
use winpool_core::pod::Pod;

use crate::explain::status::PoolSummary;
use crate::pod::table_of;
use crate::view::View;

/// The pods of a pool that fail because of Windows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailingPool {
    /// The pool.
    pub pool: String,
    /// Number of pods by cause, such as `other_build`.
    pub causes: BTreeMap<String, usize>,
    /// The workloads with most failing pods.
    pub workloads: Vec<FailingWorkload>,
    /// Number of other workloads with failing pods.
    pub more: usize,
    /// Workloads with pods that only Events show, which the operator watches. The causes do not count them.
    pub reported: Vec<Problem>,
}

/// A workload whose pods fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailingWorkload {
    /// The workload.
    pub object: ObjectReference,
    /// The cause.
    pub cause: String,
    /// Number of its pods that fail.
    pub pods: usize,
    /// An example, the explanation, and the remedy.
    pub message: String,
}

/// Searches all unfinished pods once for failures, by pool. Returns `None` if pods, nodes or pools are not known, or there is no pool: the
/// operator attributes each failing pod to a pool.
pub(super) fn failures(view: &View, now: Now) -> Option<BTreeMap<String, PoolFailures>> {
    let (pods, nodes) = (view.pods.known()?, view.nodes.known()?);
    let pools: Vec<_> = view.pools.known()?.iter().map(|(_, pool)| pool.clone()).collect();
    if pools.is_empty() {
        return None;
    }
    let mut table = NodeTable::default();
    let windows = nodes.iter().filter(|seen| seen.object.node.is_windows());
    table.observe(NodeEvent::Listed(windows.map(|seen| seen.object.clone().into()).collect()), now.instant);
    let policy = policy_of(&pools);
    let mut seen = table_of(pods.iter().map(Pod::from), now);
    // Pods whose class is not known are judged without it.
    let classes = view.classes.known().map_or(&[][..], Vec::as_slice);
    seen.count(&ClusterFacts { nodes: &table, policy: &policy, classes }, now);
    seen.summary().map(|summary| summary.pools.clone())
}

/// Returns the failures of each pool, with those that only its status reports.
pub(super) fn by_pool(mut failures: BTreeMap<String, PoolFailures>, pools: &[PoolSummary]) -> Vec<FailingPool> {
    let of_pool = |pool: &PoolSummary| {
        let failures = failures.remove(&pool.name).unwrap_or_default();
        let workloads = failures.workloads.into_iter().map(|workload| FailingWorkload {
            object: workload.object,
            cause: workload.cause.as_str().to_owned(),
            pods: workload.pods,
            message: workload.message,
        });
        let workloads: Vec<FailingWorkload> = workloads.collect();
        let is_new = |problem: &&Problem| {
            let is_seen = workloads.iter().any(|workload| workload.object == problem.object);
            problem.reason == reason::PODS_FAILING && !is_seen
        };
        FailingPool {
            pool: pool.name.clone(),
            causes: failures.counts.iter().map(|(cause, pods)| (cause.as_str().to_owned(), *pods)).collect(),
            more: failures.more,
            reported: pool.problems.iter().filter(is_new).cloned().collect(),
            workloads,
        }
    };
    let pools = pools.iter().map(of_pool);
    pools.filter(|pool| !pool.causes.is_empty() || !pool.reported.is_empty()).collect()
}
