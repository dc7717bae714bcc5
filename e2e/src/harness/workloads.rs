//! Workloads, and waiting until a pool names the DaemonSets that do not tolerate its taint.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;

use super::objects::{condition_text, has_taint};
use super::{Harness, merge_status};
use crate::machine::wait::{LIMIT, wait_for};
use crate::scene::manifests;

/// The hash in the name of the `ReplicaSet` of each Deployment.
const TEMPLATE_HASH: &str = "5d8f7";

/// A workload in the namespace `default`. Its pods have this spec, and by default one container.
pub fn workload(kind: &str, name: &str, mut pod: Value) -> Value {
    if pod["containers"].is_null() {
        pod["containers"] = containers();
    }
    if matches!(kind, "Job" | "CronJob") {
        pod["restartPolicy"] = json!("Never");
    }
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let selector = json!({"matchLabels": labels});
    let (version, spec) = match kind {
        "Job" => ("batch/v1", json!({"template": template})),
        "CronJob" => ("batch/v1", json!({"schedule": "@yearly", "jobTemplate": {"spec": {"template": template}}})),
        "DaemonSet" => ("apps/v1", json!({"selector": selector, "template": template})),
        "StatefulSet" => ("apps/v1", json!({"serviceName": name, "selector": selector, "template": template})),
        "ReplicationController" => ("v1", json!({"replicas": 0, "selector": labels, "template": template})),
        _ => ("apps/v1", json!({"replicas": 0, "selector": selector, "template": template})),
    };
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A pod as the controller of this workload creates it. It has this spec, except for its container.
pub fn pod_of(kind: &str, workload: &str, name: &str, mut spec: Value) -> Value {
    spec["containers"] = containers();
    let mut labels = json!({"app": workload});
    let (version, kind, owner) = match kind {
        "Deployment" => {
            labels["pod-template-hash"] = json!(TEMPLATE_HASH);
            ("apps/v1", "ReplicaSet", format!("{workload}-{TEMPLATE_HASH}"))
        }
        "ReplicaSet" | "StatefulSet" | "DaemonSet" => ("apps/v1", kind, workload.to_owned()),
        _ => ("example.com/v1", kind, workload.to_owned()),
    };
    let owner = json!([{"apiVersion": version, "kind": kind, "name": owner, "uid": owner, "controller": true}]);
    json!({"metadata": {"name": name, "labels": labels, "ownerReferences": owner}, "spec": spec})
}

fn containers() -> Value {
    json!([{"name": "c", "image": "servercore"}])
}

impl Harness {
    /// Applies a namespaced or cluster-scoped object as `kubectl apply --server-side` does.
    pub async fn apply(&self, object: Value) {
        manifests::apply(&self.client, &[serde_json::from_value(object).unwrap()]).await.unwrap();
    }

    /// Creates a pod in the namespace `default`, on the node that it names, and lets it run.
    pub async fn start_pod(&self, pod: Value) {
        let name = self.create_pod(pod).await.name_any();
        let container = json!({
            "name": "c", "image": "servercore", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}},
        });
        let running = json!({"status": {"phase": "Running", "containerStatuses": [container]}});
        let _: Pod = merge_status(&self.pods(), &name, running).await;
    }

    /// Waits until there is an Event in the namespace `default` for which this holds.
    pub async fn event_until(&self, what: &str, holds: impl Fn(&Event) -> bool) -> Event {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let event = async || Ok(events.list(&ListParams::default()).await?.items.into_iter().find(&holds));
        wait_for(&format!("an Event {what}"), LIMIT, event).await.unwrap()
    }

    /// Creates the DaemonSet `default/web` for this node. It tolerates nothing.
    pub async fn run_web(&self, node: &str) {
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        let required = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "affinity": affinity});
        self.apply(workload("DaemonSet", "web", spec)).await;
    }

    /// Waits until the pool `default` holds this taint and names all these workloads. Fails at once if one of these nodes
    /// gets the taint.
    pub async fn held(&self, taint: &str, nodes: &[&str], workloads: &[&str]) -> WindowsPool {
        let mut seen = None;
        let result = wait_for(&format!("pool default holds {taint} and names {workloads:?}"), LIMIT, async || {
            for name in nodes {
                let node = self.node(name).await;
                assert!(!has_taint(&node, taint), "node {name} got {taint} while {workloads:?} do not tolerate it");
            }
            let pool = self.pools().get("default").await?;
            let current = pool.status.as_ref().and_then(|s| s.observed_generation) == pool.metadata.generation;
            let (status, reason, message) = condition_text(&pool, "TaintsApplied").unwrap_or_default();
            let held = (status.as_str(), reason.as_str()) == ("False", "DaemonSetsNotTolerating");
            let done = current && held && workloads.iter().all(|workload| message.contains(workload));
            seen = Some((status, reason, message));
            Ok(done.then_some(pool))
        })
        .await;
        result.unwrap_or_else(|error| panic!("{error}; TaintsApplied last seen: {seen:?}"))
    }
}
