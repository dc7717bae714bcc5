//! The input of a forecast.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::{
    api::names,
    labels::Labels,
    plan::{
        GuardedPool, NodeFields,
        reconcile::{ControlPlaneInfo, Now},
    },
    pod::{Pod, Workload, WorkloadKind},
};

use crate::view::{Known, View};

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

impl Snapshot {
    /// Converts the view to the input of the operator's decisions.
    pub fn of(view: View, now: Now) -> Self {
        let nodes = view.nodes.all().iter().map(|node| &node.object);
        let is_watched =
            |labels: &Labels| labels.get(names::OS) == Some(names::WINDOWS) || labels.get(names::POOL).is_some();
        let others = nodes.clone().filter(|object| !object.node.is_windows());
        Self {
            other_nodes: others.map(|object| object.node.labels.clone()).collect(),
            nodes: nodes
                .filter(|object| is_watched(&object.node.labels))
                .map(|object| (object.name.to_string(), object.node.clone()))
                .collect(),
            pools: view.guarded().cloned().collect(),
            classes: view.classes.all().to_vec(),
            pods: match view.pods {
                Known::Forbidden(message) => Err(message),
                Known::Complete(pods) | Known::Partial(pods) => Ok(pods),
                Known::NotRead => Ok(Vec::new()),
            },
            workloads: view.workloads,
            unlisted: view.unlisted,
            control_plane: view.control_plane,
            now,
        }
    }
}
