//! The input of a trial check.

use std::{collections::BTreeMap, sync::Arc, time::Instant};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::Taint,
    plan::{nodes::NodeObject, pools::Policy, trial::WorkloadName},
    pod::Class,
};

/// A taint on trial.
#[derive(Clone, Debug, PartialEq)]
pub struct OnTrial {
    pub pool: String,
    pub taint: Taint,
    pub since: Timestamp,
    pub until: Timestamp,
}

/// A taint that pauses after its trial, and the workload whose repair ends the pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Paused {
    pub pool: String,
    pub taint: Taint,
    pub workload: WorkloadName,
}

/// The input of a check.
#[derive(Clone, Debug)]
pub struct TrialCheckScope {
    pub trials: Vec<OnTrial>,
    pub paused: Vec<Paused>,
    /// The Windows nodes that serve.
    pub nodes: Vec<Arc<NodeObject>>,
    /// Decides which taints winpool put on them and may remove.
    pub policy: Policy,
    /// The RuntimeClasses by name.
    pub classes: BTreeMap<String, Class>,
    /// The start of the check.
    pub started: Instant,
    /// Pods that an earlier check found at this time or before may object.
    pub ripe: Instant,
}
