//! The table of pods: what counts by which message, how long, and who uses a class.

mod counted;
mod daemon_sets;
mod messages;
mod table;
mod tolerations;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::{Value, json};
use winpool_core::node::NodeObject;
use winpool_core::plan::Now;
use winpool_core::plan::nodes::{NodeEvent, NodeTable, OtherNodes};
use winpool_core::plan::pods::{ClusterFacts, PodEvent, PodSummary, PodTable, PoolFailures, REASONS};
use winpool_core::plan::pools::pool::Policy;
use winpool_core::pod::Pod;

use crate::common::{class, node, now, policy, pool, read};

/// The cluster, and what the table knows of it.
struct World {
    table: PodTable,
    nodes: NodeTable,
    others: OtherNodes,
    reimaged: NodeTable,
    policy: Policy,
    classes: Vec<Arc<RuntimeClass>>,
    pods: Vec<Value>,
    now: Now,
}

/// A cluster with the Windows node `win` of 10.0.20348.825, a Linux node, one pool and its class.
fn world() -> World {
    let (mut nodes, now) = (NodeTable::new(Duration::from_mins(10)), now());
    let win = read(&node("status: {nodeInfo: {containerRuntimeVersion: 'containerd://1.7.20'}}"));
    let object = NodeObject { name: "win".into(), uid: "win".into(), node: win, ..NodeObject::default() };
    nodes.observe(NodeEvent::Listed(vec![Arc::new(object)]), now.instant);
    let mut others = OtherNodes::default();
    others.see("lin".into(), &[("kubernetes.io/os", "linux")].into_iter().collect());
    let of_pool = "{metadata: {name: windows-2022, labels: {winpool.dev/pool: default}}, handler: h, \
                   scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}}";
    World {
        table: PodTable::default(),
        nodes,
        others,
        reimaged: NodeTable::default(),
        policy: policy([pool("{}")]),
        classes: vec![class(of_pool)],
        pods: Vec::new(),
        now,
    }
}

impl World {
    fn wait(&mut self, seconds: u64) {
        let pause = Duration::from_secs(seconds);
        self.now = Now { instant: self.now.instant + pause, time: self.now.time + pause };
    }

    /// A list shows all pods.
    fn list(&mut self) {
        self.table.begin_list();
        self.pods.iter().for_each(|pod| self.table.see(&decode(pod), self.now));
        self.table.end_list();
    }

    /// Lists and counts all pods.
    fn count(&mut self) -> PoolFailures {
        self.list();
        self.summary().pools.get("default").cloned().unwrap_or_default()
    }

    fn summary(&mut self) -> PodSummary {
        let facts = ClusterFacts { nodes: &self.nodes, policy: &self.policy, classes: &self.classes };
        self.table.count(&facts, self.now);
        self.table.summary().unwrap().as_ref().clone()
    }

    fn event(&mut self, pod: &str, message: &str) {
        self.event_on("win", pod, message);
    }

    fn event_on(&mut self, node: &str, pod: &str, message: &str) {
        self.event_of(node, pod, REASONS[0], message);
    }

    fn event_of(&mut self, node: &str, pod: &str, reason: &str, message: &str) {
        let event = PodEvent {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            node: node.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            first: Some(self.now.time),
            last: Some(self.now.time),
        };
        self.table.observe(&event, self.now);
    }
}

fn decode(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

fn counts(failures: &PoolFailures) -> Vec<(&'static str, usize)> {
    failures.counts.iter().map(|(cause, pods)| (cause.as_str(), *pods)).collect()
}

/// A pod of the Deployment `web` on this node.
fn pod(name: &str, node: &str, spec: &Value, status: &Value) -> Value {
    let owner =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f7", "uid": "u", "controller": true}]);
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"pod-template-hash": "5d8f7"}, "ownerReferences": owner},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "app"}]},
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut pod, &json!({"spec": spec, "status": status}));
    pod
}

fn container(image: &str, state: &Value, last: &Value) -> Value {
    let status = json!({
        "name": "c", "image": image, "imageID": "", "ready": false, "restartCount": 1, "state": state, "lastState": last,
    });
    json!({"containerStatuses": [status]})
}

/// A pod that waits with this message.
fn waits(name: &str, node: &str, image: &str, message: &str) -> Value {
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": message}});
    pod(name, node, &json!({"containers": [{"name": "c", "image": image}]}), &container(image, &waiting, &json!({})))
}

/// A pod whose container cannot be started.
fn does_not_start(name: &str, image: &str, message: &str) -> Value {
    let last = json!({"terminated": {"reason": "StartError", "exitCode": 128, "message": message}});
    let mut status = container(image, &json!({"waiting": {"reason": "CrashLoopBackOff"}}), &last);
    status["phase"] = json!("Running");
    pod(name, "win", &json!({}), &status)
}

fn creating(name: &str) -> Value {
    creating_on("win", name)
}

fn creating_on(node: &str, name: &str) -> Value {
    pod(name, node, &json!({}), &container("app", &json!({"waiting": {"reason": "ContainerCreating"}}), &json!({})))
}

fn runs(name: &str) -> Value {
    let mut status = container("app", &json!({"running": {}}), &json!({}));
    status["phase"] = json!("Running");
    pod(name, "win", &json!({}), &status)
}

fn refused(name: &str, reason: &str) -> Value {
    pod(name, "win", &json!({}), &json!({"phase": "Failed", "reason": reason}))
}
