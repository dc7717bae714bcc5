//! The taints that winpool does not add yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::explain::pod_count::PodCount;
use crate::explain::status::PoolSummary;

/// A taint that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingTaint {
    /// The pool.
    pub pool: String,
    /// The taint, as `key=value:effect`.
    pub taint: String,
    /// True for a pool in dry run: winpool would hold the taint.
    #[serde(default)]
    pub is_dry_run: bool,
    /// The `DaemonSets` that would make no pods for nodes with it, each with the number of those nodes.
    pub workloads: Vec<PodCount>,
}

/// Returns the taints of these pools that wait.
pub(super) fn waiting(pools: &[PoolSummary]) -> Vec<WaitingTaint> {
    let of_pool = |pool: &PoolSummary| {
        let waiting = |taint: &String| WaitingTaint {
            pool: pool.name.clone(),
            taint: taint.clone(),
            is_dry_run: pool.mode == "DryRun",
            workloads: pool.held_for.clone(),
        };
        pool.held_taints.iter().map(waiting).collect::<Vec<_>>()
    };
    pools.iter().flat_map(of_pool).collect()
}
