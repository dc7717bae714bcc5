//! A small cluster, and the check of one taint on one of its nodes.

use std::collections::BTreeMap;

use k8s_openapi::{api::node::v1::RuntimeClass, jiff::Timestamp};
use serde_json::{Value, json};
use winpool_answers::prediction::WorkloadCheck;
use winpool_core::{
    api::Taint,
    labels::Labels,
    plan::{
        Admission, CheckAnswer, CheckScope, ClassSource, InstalledPolicy, PODS, PlannedNode, PoolMembers, TaintQuestion,
    },
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
    /// What `assign-class` reads of the pool, if it is installed, and the classes of namespaces.
    pub assign_class: Option<ClassSource>,
    pub namespace_classes: Vec<(&'static str, &'static str)>,
    /// Nodes that do not serve.
    pub down: Vec<&'static str>,
    /// True if the taint is approved for the pool.
    pub is_approved: bool,
    /// The node selector of the pool, which has all nodes that it matches.
    pub pool: &'static str,
    /// True if the candidate carries the taint already, so that there is no candidate.
    pub all_carry: bool,
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
            namespace_classes: Vec::new(),
            down: Vec::new(),
            is_approved: true,
            pool: "{team: a}",
            all_carry: false,
            unlisted: Vec::new(),
        }
    }
}

fn known_node(name: &str, labels: &str, taints: &[&str]) -> PlannedNode {
    let mut all = json!({
        "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "node.kubernetes.io/windows-build": "10.0.20348",
    });
    json_patch::merge(&mut all, &yaml(labels));
    let labels: BTreeMap<String, String> = serde_json::from_value(all).unwrap();
    let taints = taints.iter().map(|text| text.parse().unwrap()).collect();
    let uid = format!("{name}-uid").into();
    PlannedNode { name: name.into(), uid, labels: labels.into_iter().collect(), taints, serves: true }
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
        for node in &mut nodes {
            node.serves = !self.down.contains(&&*node.name);
        }
        if self.all_carry {
            nodes[0].taints.push(taint.clone());
        }
        let mut labels: BTreeMap<String, String> = yaml(self.pool);
        let present = (0..nodes.len()).filter(|index| nodes[*index].labels.matches(&labels)).collect();
        labels.insert("kubernetes.io/os".to_owned(), "windows".to_owned());
        let question = TaintQuestion {
            pool: "default".to_owned(),
            taint,
            candidates: (0..usize::from(!self.all_carry)).collect(),
            to_approve: (!self.is_approved).then_some(PoolMembers { present, labels }),
            enforces: true,
        };
        let class = |text: &&str| {
            let class: RuntimeClass = yaml(text);
            (class.metadata.name.clone().unwrap(), Class::from(&class))
        };
        let policy = |excluded: &str| {
            let excluded = Some([excluded.to_owned()].into());
            Some(InstalledPolicy { excluded, pool: Some("default".to_owned()), taint_keys: None })
        };
        let namespaces = self.namespace_classes.iter();
        let admission = Admission {
            installed: [
                ("assign-class", self.assign_class.as_ref().and_then(|_| policy("ci"))),
                ("tolerate-windows", policy("kube-system").filter(|_| self.tolerates_windows)),
            ]
            .into(),
            namespace_classes: Some(namespaces.map(|(name, class)| ((*name).into(), (*class).into())).collect()),
            ..Admission::default()
        };
        CheckScope {
            nodes,
            questions: vec![question],
            classes: self.classes.iter().map(class).collect(),
            admission,
            class_sources: self.assign_class.iter().map(|source| ("default".to_owned(), source.clone())).collect(),
            now: minute(0).parse().unwrap(),
            ..CheckScope::default()
        }
    }

    /// The results of the check for these workloads and pods.
    pub fn check(&self, objects: &[Object]) -> CheckAnswer {
        let mut check = WorkloadCheck::start(self.scope());
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
        for choice in check.undecided() {
            let labels = self.others.iter().map(|labels| yaml::<BTreeMap<String, String>>(labels));
            let matches = labels.map(|l| l.into_iter().collect::<Labels>()).any(|l| choice.matches(&l, "lin"));
            check.decide(&choice, matches);
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
        "metadata": {"namespace": "shop", "name": name, "creationTimestamp": minute(-60), "generation": 1},
        "spec": spec,
        "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1},
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
    let group = WorkloadKind::by_name(kind).map_or("example.org", |kind| kind.resource().0);
    owned_by_group(group, kind, name)
}

/// Changes: this object of any group controls it.
pub fn owned_by_group(group: &str, kind: &str, name: &str) -> String {
    let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    format!(
        "metadata: {{ownerReferences: [{{apiVersion: {version}, kind: {kind}, name: {name}, uid: u, controller: true}}]}}"
    )
}
