//! The pods that fail because of Windows: what counts by which message, and how long.

mod counted;
mod messages;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use winpool_core::{
    plan::{
        Policy,
        failing_pods::{
            ClusterFacts, FailingPauses, FailingPods, PodAnswer, PodEvent, PodHealth, PodStep, PoolFailures,
        },
        nodes::{NodeEvent, NodeObject, NodeTable},
        reconcile::Now,
    },
    pod::Pod,
};

use crate::common::{node, now, policy, pool, read};

/// The cluster, and what the table knows of it.
struct World {
    table: FailingPods,
    nodes: NodeTable,
    policy: Policy,
    classes: BTreeMap<String, String>,
    pods: Vec<Value>,
    now: Now,
    /// The pods that were read by name.
    reads: usize,
    allowed: bool,
}

/// A cluster with the Windows node `win` of 10.0.20348.825, a Linux node, and one pool.
fn world() -> World {
    let (mut nodes, now) = (NodeTable::new(Duration::from_mins(10)), now());
    let win = read(&node("status: {nodeInfo: {containerRuntimeVersion: 'containerd://1.7.20'}}"));
    let object = NodeObject { name: "win".into(), uid: "win".into(), node: win, ..NodeObject::default() };
    nodes.observe(NodeEvent::Listed(vec![Arc::new(object)]), now.instant);
    World {
        table: FailingPods::new(FailingPauses::default()),
        nodes,
        policy: policy([pool("{}")]),
        classes: [("windows-2022".to_owned(), "default".to_owned())].into(),
        pods: Vec::new(),
        now,
        reads: 0,
        allowed: true,
    }
}

impl World {
    fn wait(&mut self, seconds: u64) {
        let pause = Duration::from_secs(seconds);
        self.now = Now { instant: self.now.instant + pause, time: self.now.time + pause };
    }

    /// Executes a round after the pause.
    fn round(&mut self) -> PoolFailures {
        self.wait(15);
        let pending = |pod: &&Value| pod["status"]["phase"] == "Pending";
        loop {
            let step = self.table.next(self.now.instant);
            let facts = ClusterFacts { nodes: &self.nodes, policy: &self.policy, classes: &self.classes };
            let answer = match step {
                PodStep::Wait(_) => return self.failures(),
                _ if !self.allowed => PodAnswer::Denied("pods is forbidden".to_owned()),
                PodStep::List { only_with_node } => {
                    let listed = self.pods.iter().filter(pending).map(decode);
                    for pod in listed.filter(|pod| !only_with_node || pod.spec.node.is_some()).take(500) {
                        self.table.see(&pod, &facts, self.now);
                    }
                    PodAnswer::Listed
                }
                PodStep::Read((namespace, name)) => {
                    self.reads += 1;
                    let mut all = self.pods.iter().map(decode);
                    PodAnswer::Read(all.find(|pod| (&pod.namespace, &pod.name) == (&namespace, &name)).map(Box::new))
                }
            };
            self.table.answer(answer, &facts, self.now);
        }
    }

    fn failures(&self) -> PoolFailures {
        match self.table.health(None, self.now.instant) {
            PodHealth::Seen { pools, .. } => pools.get("default").cloned().unwrap_or_default(),
            PodHealth::Off | PodHealth::NotYet => PoolFailures::default(),
        }
    }

    fn event(&mut self, pod: &str, reason: &str, message: &str) {
        self.event_on("win", pod, reason, message);
    }

    fn event_on(&mut self, node: &str, pod: &str, reason: &str, message: &str) {
        let event = PodEvent {
            namespace: "shop".to_owned(),
            pod: pod.to_owned(),
            node: node.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            first: Some(self.now.time),
            last: Some(self.now.time),
        };
        self.table.observe(&event, &self.nodes, self.now);
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
    pod(name, "win", &json!({}), &container("app", &json!({"waiting": {"reason": "ContainerCreating"}}), &json!({})))
}

fn runs(name: &str) -> Value {
    let mut status = container("app", &json!({"running": {}}), &json!({}));
    status["phase"] = json!("Running");
    pod(name, "win", &json!({}), &status)
}

fn refused(name: &str, reason: &str) -> Value {
    pod(name, "win", &json!({}), &json!({"phase": "Failed", "reason": reason}))
}
