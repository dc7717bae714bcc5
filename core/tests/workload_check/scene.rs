//! A small cluster, and the check of one taint on one of its nodes.

use std::collections::BTreeSet;

use k8s_openapi::{api::node::v1::RuntimeClass, jiff::Timestamp};
use serde_json::{Value, json};
use winpool_core::{
    api::Taint,
    labels::Labels,
    plan::{AssignClass, CheckAnswer, CheckScope, KnownNode, PODS, Question, WorkloadCheck},
    pod::{Class, Pod, Workload, WorkloadKind},
};

use crate::common::yaml;

/// `os.name`, for templates and pods that say Windows.
pub const WINDOWS: &str = "os: {name: windows}";
/// The toleration of the taint that the check is about.
pub const TOLERATES: &str = "tolerations: [{key: os, value: windows, effect: NoSchedule}]";

/// The input of a check: node `win` would get `os=windows:NoSchedule`.
pub struct Scene {
    pub taints: &'static [&'static str],
    /// Further Windows nodes: name, labels and taints.
    pub nodes: Vec<(&'static str, &'static str, &'static [&'static str])>,
    /// Labels of nodes of another system.
    pub others: Vec<&'static str>,
    pub classes: Vec<&'static str>,
    pub tolerates_windows: bool,
    pub assign_class: Option<AssignClass>,
    pub unlisted: Vec<&'static str>,
}

impl Default for Scene {
    fn default() -> Self {
        Self {
            taints: &[],
            nodes: Vec::new(),
            others: vec!["{kubernetes.io/os: linux, team: shared}"],
            classes: Vec::new(),
            tolerates_windows: false,
            assign_class: None,
            unlisted: Vec::new(),
        }
    }
}

fn known_node(name: &str, labels: &str, taints: &[&str]) -> KnownNode {
    let mut all = json!({
        "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": "10.0.20348",
    });
    json_patch::merge(&mut all, &yaml(labels));
    let labels: std::collections::BTreeMap<String, String> = serde_json::from_value(all).unwrap();
    let taints = taints.iter().map(|text| text.parse().unwrap()).collect();
    KnownNode { name: name.into(), uid: format!("{name}-uid").into(), labels: labels.into_iter().collect(), taints }
}

/// 2026-03-01, this many minutes before or after noon, at which checks start.
pub fn minute(minutes: i64) -> String {
    let noon: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    Timestamp::from_second(noon.as_second() + 60 * minutes).unwrap().to_string()
}

impl Scene {
    pub fn scope(&self) -> CheckScope {
        let mut nodes = vec![known_node("win", "{team: a, kubernetes.io/hostname: win}", self.taints)];
        nodes.extend(self.nodes.iter().map(|(name, labels, taints)| known_node(name, labels, taints)));
        let taint = Taint::os_windows();
        let question = Question { pool: "default".to_owned(), taint, candidates: BTreeSet::from([0]), enforces: true };
        let class = |text: &&str| {
            let class: RuntimeClass = yaml(text);
            (class.metadata.name.clone().unwrap(), Class::from(&class))
        };
        CheckScope {
            nodes,
            questions: vec![question],
            classes: self.classes.iter().map(class).collect(),
            intolerant_namespaces: self.tolerates_windows.then(|| ["kube-system".to_owned()].into()),
            assign_class: self.assign_class.clone(),
            now: minute(0).parse().unwrap(),
        }
    }

    /// The results of the check for these workloads and pods.
    pub fn check(&self, objects: &[Object]) -> CheckAnswer {
        let mut check = WorkloadCheck::start(self.scope()).unwrap();
        for kind in &self.unlisted {
            check.unlisted(kind, format!("{kind} is forbidden"));
        }
        for object in objects {
            if let Object::Workload(kind, workload) = object {
                check.workload(*kind, workload);
            }
        }
        for object in objects {
            if let Object::Pod(pod) = object {
                check.pod(pod);
            }
        }
        for selector in check.undecided().cloned().collect::<Vec<_>>() {
            let labels = self.others.iter().map(|labels| yaml::<std::collections::BTreeMap<String, String>>(labels));
            let matches = labels.map(|labels| labels.into_iter().collect::<Labels>()).any(|l| l.matches(&selector));
            check.decide(&selector, matches);
        }
        check.finish().remove("default").unwrap()
    }

    /// The workloads that hold the taint, each with the number of its pods that count.
    #[track_caller]
    pub fn holds(&self, fact: &str, objects: &[Object], expected: &[(&str, usize)]) {
        let answer = self.check(objects);
        let found: Vec<_> = answer.unschedulable.iter().map(|(name, pods)| (name.as_str(), *pods)).collect();
        assert_eq!(found, expected, "{fact}");
        let is_held = answer.held.contains(&Taint::os_windows()) || self.unlisted.contains(&PODS);
        assert_eq!(is_held, !expected.is_empty() || self.unlisted.contains(&PODS), "{fact}");
        assert_ne!(answer.clean.contains_key(&Taint::os_windows()), is_held, "{fact}");
    }
}

/// Something that a check is handed.
#[derive(Clone)]
pub enum Object {
    Workload(WorkloadKind, Box<Workload>),
    Pod(Box<Pod>),
}

/// A workload of this kind, `shop/<name>`, with this pod template, merged with `changes`.
pub fn workload(kind: &str, name: &str, template: &str, changes: &str) -> Object {
    let template = json!({"template": {"spec": yaml::<Value>(&format!("{{{template}}}"))}});
    let spec = if kind == "CronJob" { json!({"jobTemplate": {"spec": template}}) } else { template };
    let mut object = json!({
        "metadata": {"namespace": "shop", "name": name, "creationTimestamp": minute(-60)},
        "spec": spec,
    });
    json_patch::merge(&mut object, &yaml(changes));
    Object::Workload(WorkloadKind::by_name(kind).unwrap(), Box::new(serde_json::from_value(object).unwrap()))
}

/// A pod `shop/<name>` with this spec, created an hour ago, merged with `changes`.
pub fn pod(name: &str, spec: &str, changes: &str) -> Object {
    let mut object = json!({
        "metadata": {"namespace": "shop", "name": name, "creationTimestamp": minute(-60)},
        "spec": yaml::<Value>(&format!("{{{spec}}}")),
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut object, &yaml(changes));
    Object::Pod(Box::new(serde_json::from_value(object).unwrap()))
}

/// [`pod`] that runs on node `win`.
pub fn running(name: &str, spec: &str, changes: &str) -> Object {
    let Object::Pod(mut pod) = pod(name, spec, changes) else { panic!("a pod is a pod") };
    pod.spec.node.get_or_insert_with(|| "win".to_owned());
    if pod.progress == winpool_core::pod::PodProgress::Waiting {
        pod.progress = winpool_core::pod::PodProgress::Started;
    }
    Object::Pod(pod)
}

/// Changes: this object controls it.
pub fn owned_by(kind: &str, name: &str) -> String {
    format!("metadata: {{ownerReferences: [{{apiVersion: v1, kind: {kind}, name: {name}, uid: u, controller: true}}]}}")
}
