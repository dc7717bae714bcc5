//! The nodes for which the DaemonSet controller creates a pod. It reads the template, and ignores the RuntimeClass and
//! resources (kubernetes/kubernetes `pkg/controller/daemon/daemon_controller.go`, `NodeShouldRunDaemonPod`).

use k8s_openapi::api::core::v1::Toleration;

use crate::placement::{Obstacle, obstacles};
use crate::pod::{ClassExt, PodSpec};
use crate::view::Node;

use super::{AdmittedPod, PlacedBy};

/// The key and effect of the taints for which the controller adds a toleration to every pod
/// (`pkg/controller/daemon/util`, `AddOrUpdateDaemonPodTolerations`).
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
/// The taint for which it adds a toleration to pods on the host's network.
const TOLERATED_ON_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

impl AdmittedPod<'_> {
    /// Returns the reasons if the controller creates no pod for the node.
    pub(super) fn daemon_set_obstacles(&self, machine: &Node) -> Vec<Obstacle> {
        let by_name = self.spec.node.as_ref().filter(|name| **name != machine.name);
        if let Some(name) = by_name {
            return vec![Obstacle::NamesAnotherNode(name.clone())];
        }
        let mut found = obstacles(&made(&self.spec), machine);
        found.retain(|obstacle| !matches!(obstacle, Obstacle::Resource { .. }));
        found
    }

    /// Returns the reason if the scheduler does not bind the pod that the controller creates for the node.
    pub(super) fn stays_pending(&self, machine: &Node) -> Option<String> {
        if self.placed_by != PlacedBy::DaemonSet || self.spec.node.is_some() {
            return None;
        }
        let mut spec = made(&self.spec);
        spec.terms.clear();
        if let Some((_, class)) = self.class {
            class.admit(&mut spec);
        }
        let obstacle = obstacles(&spec, machine).into_iter().next()?;
        let is_made = self.daemon_set_obstacles(machine).is_empty();
        is_made.then(|| {
            format!("the pod that the DaemonSet controller makes for it stays Pending: {}", self.describe(&obstacle))
        })
    }
}

/// Returns the pod that the controller creates from a template.
fn made(template: &PodSpec) -> PodSpec {
    let mut spec = template.clone();
    spec.node = None;
    let on_host = template.has_host_network.then_some(TOLERATED_ON_HOST_NETWORK);
    spec.tolerations.extend(TOLERATED.into_iter().chain(on_host).map(|(key, effect)| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some(effect.to_owned()),
        ..Toleration::default()
    }));
    spec
}
