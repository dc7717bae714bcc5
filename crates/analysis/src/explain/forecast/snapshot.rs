//! The input of a forecast.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::api::{Mode, names};
use winpool_core::labels::Labels;
use winpool_core::node::NodeFields;
use winpool_core::plan::Now;
use winpool_core::plan::pools::pool::GuardedPool;

use crate::kinds::WorkloadKind;
use crate::pod::Pod;
use crate::view::{Admission, Known, Policies, View, Workloads, changed_pool};

/// A cluster at one point in time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub pools: Vec<GuardedPool>,
    /// The nodes by name: Windows nodes, and nodes with labels, annotations or taints of winpool.
    pub nodes: BTreeMap<String, NodeFields>,
    pub classes: Vec<Arc<RuntimeClass>>,
    pub workloads: Workloads,
    /// The unfinished pods.
    pub pods: Known<Vec<Pod>>,
    /// winpool's admission policies that are in force.
    pub policies: Known<Policies>,
    /// What happens to new pods.
    pub admission: Admission,
    /// The current time.
    pub now: Now,
}

impl Snapshot {
    /// Converts the view to the input of the operator's decisions. The operator decides by the nodes, classes and pools that are
    /// known: commands say what they lack.
    pub fn of(view: View, now: Now) -> Self {
        let snapshot = Self::without_workloads(&view, now);
        Self { pods: view.pods, workloads: view.workloads, ..snapshot }
    }

    /// Returns the cluster with all pools enforced.
    pub fn enforced(mut self) -> Self {
        for pool in &mut self.pools {
            *pool = changed_pool(pool, |pool| pool.spec.mode = Mode::Enforce);
        }
        self
    }

    /// Returns the cluster without its `DaemonSets`, which are what holds taints.
    pub(super) fn without_daemon_sets(mut self) -> Self {
        if let Some(kind) = WorkloadKind::own("DaemonSet") {
            *self.workloads.of_kind(kind) = Known::Complete(Vec::new());
        }
        self
    }

    /// Does so as if pods and workloads could not be read: the operator removes nothing that they may use.
    pub fn without_workloads(view: &View, now: Now) -> Self {
        let nodes = view.nodes.known().into_iter().flatten().map(|node| &node.object);
        let is_watched =
            |labels: &Labels| labels.get(names::OS) == Some(names::WINDOWS) || labels.get(names::POOL).is_some();
        Self {
            nodes: nodes
                .filter(|object| is_watched(&object.node.labels))
                .map(|object| (object.name.to_string(), object.node.clone()))
                .collect(),
            pools: view.guarded().into_iter().flatten().cloned().collect(),
            classes: view.classes.known().cloned().unwrap_or_default(),
            pods: Known::Forbidden("not read".to_owned()),
            workloads: Workloads::default(),
            policies: Policies::of(&view.related),
            admission: view.admission(),
            now,
        }
    }
}
