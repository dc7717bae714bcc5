//! The taints that winpool does not add yet, and those on trial.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::Serialize;
use winpool_core::api::{ObjectReference, TaintTrial};

use crate::explain::{pod_count::PodCount, status::PoolSummary};

/// The reason why a taint is not on all nodes for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum TaintState {
    /// winpool does not add it, because workloads do not tolerate it.
    Held,
    /// winpool removed it, because a pod waited only because of it.
    Objected,
    /// winpool adds it, and looks for a week if a pod waits only because of it.
    OnTrial,
}

/// A taint that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingTaint {
    /// The pool.
    pub pool: String,
    /// The taint, as `key=value:effect`.
    pub taint: String,
    /// The reason.
    pub state: TaintState,
    /// The end of the trial, or the time of the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Number of trials that failed.
    pub failures: i64,
    /// The workloads that do not tolerate it, or whose pod waited.
    pub workloads: Vec<PodCount>,
}

/// Returns the taints of these pools that wait.
pub(super) fn waiting(pools: &[PoolSummary]) -> Vec<WaitingTaint> {
    pools.iter().flat_map(of_pool).collect()
}

fn of_pool(pool: &PoolSummary) -> Vec<WaitingTaint> {
    let is_on_trial = |taint: &str| pool.taint_trials.iter().any(|trial| trial.taint == taint && trial.until.is_none());
    let held = pool.held_taints.iter().filter(|taint| !is_on_trial(taint)).map(|taint| WaitingTaint {
        pool: pool.name.clone(),
        taint: taint.clone(),
        state: TaintState::Held,
        until: None,
        failures: 0,
        workloads: pool.held_for.clone(),
    });
    held.chain(pool.taint_trials.iter().map(|trial| of_trial(pool, trial))).collect()
}

fn of_trial(pool: &PoolSummary, trial: &TaintTrial) -> WaitingTaint {
    let state = if trial.until.is_some() { TaintState::OnTrial } else { TaintState::Objected };
    let objector = trial.workload.iter().filter(|_| state == TaintState::Objected);
    WaitingTaint {
        pool: pool.name.clone(),
        taint: trial.taint.clone(),
        state,
        until: trial.until.clone().or_else(|| trial.retry_at.clone()),
        failures: trial.failures,
        workloads: objector.map(|name| PodCount { object: ObjectReference::named(name), pods: 1 }).collect(),
    }
}
