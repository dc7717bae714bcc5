//! The input of a forecast.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::{
    labels::Labels,
    plan::{
        GuardedPool, NodeFields,
        reconcile::{ControlPlaneInfo, Now},
    },
    pod::{Pod, Workload, WorkloadKind},
};

/// A cluster at one point in time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub pools: Vec<GuardedPool>,
    /// The nodes by name: Windows nodes, and nodes with labels, annotations or taints of winpool.
    pub nodes: BTreeMap<String, NodeFields>,
    pub classes: Vec<Arc<RuntimeClass>>,
    pub other_nodes: Vec<Labels>,
    /// The objects that create pods from a template.
    pub workloads: Vec<(WorkloadKind, Workload)>,
    /// The kinds that cannot be listed, with the API server's message.
    pub unlisted: BTreeMap<String, String>,
    /// The unfinished pods, or the reason why they cannot be read.
    pub pods: Result<Vec<Pod>, String>,
    /// The information that the control plane reports about itself.
    pub control_plane: ControlPlaneInfo,
    /// The current time.
    pub now: Now,
}
