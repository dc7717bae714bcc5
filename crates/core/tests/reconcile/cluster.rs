//! A cluster in memory whose API server can refuse any request.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_analysis::{
    explain::forecast::{Simulation, Snapshot},
    pod::{Pod, PodSpec},
    view::Workload,
    workload::WorkloadKind,
};
use winpool_core::{
    api::{Problem, WindowsPool, WindowsPoolStatus, names},
    plan::{
        nodes::node::NodeFields,
        pods::{ClusterFacts, PodHealth, PodTable},
        pools::pool::{GuardedPool, Policy},
        reconcile::{Answer, ClassRequest, Step},
        refusal::{Outage, RequestError},
    },
    pod::PodProgress,
};

use crate::common::{self, at_registration, node, pool_object, read, recorded_in};

pub const MINE: &str = "os=windows:NoSchedule";

/// The API server's answer to a request that it does not execute.
type Refuse = dyn Fn(&str) -> Option<RequestError>;

/// The answer to a write that a webhook reverts, or from which an old CustomResourceDefinition `prunes` the taints.
fn unchanged(pool: &GuardedPool, step: &Step, prunes: bool) -> Answer {
    match step {
        Step::Class(class) => Answer::Class(class.current.clone()),
        Step::WriteStatus { status, .. } if prunes => {
            let mut stored = pool.pool().unwrap().clone();
            stored.status = Some(WindowsPoolStatus { taints: Vec::new(), ..status.as_ref().clone() });
            Answer::Written(Box::new(stored.into()))
        }
        _ => Answer::Written(Box::new(pool.clone())),
    }
}

/// The cluster, with a record of requests.
pub struct World {
    simulation: Simulation,
    /// Requests that were sent, such as `Create windows-2022`.
    pub sent: Vec<String>,
    /// The API server's answers to requests that it does not execute.
    pub refuse: Box<Refuse>,
    /// Requests whose line begins like this are accepted, and a webhook reverts them.
    pub reverts: Option<&'static str>,
    /// True if the CustomResourceDefinition has no `status.taints`: writes that are reverted then store a status without them.
    pub prunes: bool,
    /// The table by which pods are counted, in tests about that.
    pub counted: Option<PodTable>,
}

impl Deref for World {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.simulation
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Simulation {
        &mut self.simulation
    }
}

pub fn failed() -> RequestError {
    RequestError::failed("the server is down")
}

pub fn denied() -> RequestError {
    RequestError::Denied("a policy says no".to_owned())
}

/// `default` with winpool's finalizer, merged with `changes`.
pub fn pool(changes: &str) -> WindowsPool {
    let mut object = json!({"metadata": {"finalizers": [names::CLEANUP]}});
    json_patch::merge(&mut object, &common::yaml(changes));
    pool_object(&object.to_string())
}

/// The request of a step, as a line; `None` if it has none.
fn line(step: &Step) -> Option<String> {
    Some(match step {
        Step::Wait(_) | Step::Publish(_) => return None,
        Step::ReadPool { .. } => "ReadPool".to_owned(),
        Step::SetFinalizer(wanted) => format!("SetFinalizer {wanted}"),
        Step::Class(class) => {
            let verb = match class.request {
                ClassRequest::Create(_) => "Create",
                ClassRequest::Patch { .. } => "Patch",
                ClassRequest::Delete(_) => "Delete",
            };
            format!("{verb} {}", class.name)
        }
        Step::ListLabelledNodes => "ListLabelledNodes".to_owned(),
        Step::WriteStatus { .. } => "WriteStatus".to_owned(),
    })
}

/// A pod that has started.
pub fn started(spec: PodSpec) -> Pod {
    let (namespace, name) = ("shop".to_owned(), "web".to_owned());
    Pod { namespace, name, spec, progress: PodProgress::Started, ..Pod::default() }
}

/// A pod that uses the class.
pub fn of_class(class: &str) -> Pod {
    started(common::yaml(&format!("{{runtimeClassName: {class}}}")))
}

/// A DaemonSet in the namespace `shop` with this pod spec.
pub fn daemon_set(name: &str, spec: &str) -> (WorkloadKind, Workload) {
    let text = format!("{{metadata: {{namespace: shop, name: {name}}}, spec: {{template: {{spec: {spec}}}}}}}");
    (WorkloadKind::DaemonSet, common::yaml(&text))
}

/// A DaemonSet for all Windows nodes that tolerates no taint.
pub fn agent() -> (WorkloadKind, Workload) {
    daemon_set("agent", "{os: {name: windows}}")
}

impl World {
    pub fn new<'n>(
        pools: impl IntoIterator<Item = WindowsPool>,
        nodes: impl IntoIterator<Item = (&'n str, Value)>,
    ) -> Self {
        Self::of(common::snapshot(pools, nodes))
    }

    pub fn of(snapshot: Snapshot) -> Self {
        let refuse = Box::new(|_: &str| None);
        Self {
            simulation: Simulation::new(snapshot),
            sent: Vec::new(),
            refuse,
            reverts: None,
            prunes: false,
            counted: None,
        }
    }

    /// One pool with this spec and the node `win`.
    pub fn with(changes: &str) -> Self {
        Self::new([pool(changes)], [("win", node("{}"))])
    }

    /// The same at rest.
    pub fn at_rest(changes: &str) -> Self {
        let mut world = Self::with(changes);
        world.rest();
        world
    }

    /// From now on the API server answers requests whose line starts like this with `refusal`.
    pub fn refuse(&mut self, line: &'static str, refusal: RequestError) {
        self.refuse = Box::new(move |sent| sent.starts_with(line).then(|| refusal.clone()));
    }

    pub fn accept_all(&mut self) {
        self.refuse = Box::new(|_| None);
    }

    /// A list or watch of this kind fails.
    pub fn read_fails(&mut self, kind: &'static str) {
        let now = self.now.instant;
        let outage = Outage::next(self.outages.get(kind), false, format!("no answer about {kind}"), now);
        self.outages.insert(kind, outage);
    }

    /// Adds a class that is there already.
    pub fn class(&mut self, text: &str) {
        self.put_class(common::class(text).as_ref().clone());
    }

    pub fn advance(&mut self, by: Duration) {
        self.now.instant += by;
        self.now.time += SignedDuration::try_from(by).unwrap();
    }

    pub fn change_pool(&mut self, name: &str, changes: &str) {
        let current = self.guarded(name);
        let mut object = json!(current.pool().unwrap());
        object["status"] = json!(current.status);
        object["metadata"] = json!(current.metadata);
        json_patch::merge(&mut object, &common::yaml(changes));
        if changes.contains("spec:") {
            object["metadata"]["generation"] = json!(current.metadata.generation.unwrap() + 1);
        }
        let new: GuardedPool = serde_json::from_value(object).unwrap();
        self.update_pool(name, |pool| *pool = new);
        self.watch();
    }

    /// A user deletes `default`.
    pub fn delete(&mut self) {
        self.change_pool("default", "metadata: {deletionTimestamp: '2026-03-01T12:00:00Z'}");
    }

    /// True if the class has none of winpool's labels.
    pub fn is_released(&self, class: &str) -> bool {
        let labels = self.classes[class].metadata.labels.clone().unwrap_or_default();
        labels.keys().all(|key| !key.contains("winpool"))
    }

    pub fn change_class(&mut self, name: &str, changes: &str) {
        let mut object = json!(*self.classes[name]);
        json_patch::merge(&mut object, &common::yaml(changes));
        self.put_class(serde_json::from_value(object).unwrap());
    }

    pub fn change_node(&mut self, name: &str, change: impl FnOnce(&mut NodeFields)) {
        change(self.nodes.get_mut(name).unwrap());
        self.watch();
    }

    /// A node registers.
    pub fn add_node(&mut self, name: &str, object: &Value) {
        self.nodes.insert(name.to_owned(), read(object));
        self.watch_node(name);
    }

    pub fn guarded(&self, name: &str) -> &GuardedPool {
        self.pools.iter().find(|pool| pool.name_any() == name).unwrap()
    }

    pub fn status(&self) -> WindowsPoolStatus {
        self.guarded("default").status.clone().unwrap_or_default()
    }

    /// `status reason` of the condition, and its message.
    pub fn condition(&self, name: &str) -> (String, String) {
        let status = self.status();
        let condition = status.conditions.iter().find(|condition| condition.type_ == name).unwrap();
        (format!("{} {}", condition.status, condition.reason), condition.message.clone())
    }

    pub fn problems(&self, reason: &str) -> Vec<Problem> {
        self.status().problems.into_iter().filter(|problem| problem.reason == reason).collect()
    }

    /// The taints with which nodes may register.
    pub fn at_registration(&self) -> Vec<String> {
        at_registration(&self.status())
    }

    pub fn taints(&self, node: &str) -> Vec<String> {
        self.nodes[node].taints.taints().iter().map(ToString::to_string).collect()
    }

    /// The requests since the last call that start with one of these words.
    pub fn take_sent(&mut self, verbs: &[&str]) -> Vec<String> {
        let is_asked = |line: &String| verbs.iter().any(|verb| line.split(' ').next() == Some(verb));
        std::mem::take(&mut self.sent).into_iter().filter(is_asked).collect()
    }

    /// One step of this pool, carried out unless the API server refuses it.
    pub fn step(&mut self, pool: &str) -> Step {
        self.simulation.watch_pods();
        self.count_pods();
        let before = self.pools.iter().find(|found| found.name_any() == pool).map(|pool| GuardedPool::clone(pool));
        let (sent, refuse, reverts, prunes) = (&mut self.sent, &self.refuse, self.reverts, self.prunes);
        let step = self.simulation.step(pool, |step| {
            let line = line(step)?;
            sent.push(line.clone());
            if reverts.is_some_and(|reverts| line.starts_with(reverts)) {
                return before.map(|pool| unchanged(&pool, step, prunes));
            }
            refuse(&line).map(Answer::Refused)
        });
        if let Step::Publish(policy) = &step {
            self.assert_recorded(policy);
        }
        step
    }

    /// Counts the pods if it is time to.
    fn count_pods(&mut self) {
        let Some(mut table) = self.counted.take() else { return };
        let now = self.now;
        table.begin_list();
        self.pods.iter().flatten().for_each(|pod| table.see(&pod.into(), now));
        table.end_list();
        if table.next_count(true, now.instant).is_some_and(|due| due <= now.instant) {
            self.with_cluster(|cluster, memory, now| {
                let policy = memory.policy(cluster.pools);
                table.count(&ClusterFacts { nodes: cluster.nodes, policy: &policy, classes: cluster.classes }, now);
            });
            let summary = table.summary().cloned().unwrap_or_default();
            self.health = PodHealth::Seen { summary, unseen: None };
        }
        self.counted = Some(table);
    }

    /// Nothing is published that no status records.
    fn assert_recorded(&self, policy: &Policy) {
        for pool in policy.entries().iter().map(|entry| &entry.pool).filter(|pool| pool.spec.enforces()) {
            let status = self.guarded(&pool.spec.name).status.clone().unwrap_or_default();
            let recorded = recorded_in(&status);
            for taint in &pool.managed_taints {
                assert!(recorded.contains(&taint.to_string()), "{taint} may be put on: {recorded:?}");
            }
        }
    }

    /// All steps of all pools, and the nodes, until everything waits.
    pub fn rest(&mut self) {
        for _ in 0..200 {
            let names: Vec<String> = self.pools.iter().map(|pool| pool.name_any()).collect();
            let steps: Vec<Step> = names.iter().map(|name| self.step(name)).collect();
            if !self.write_nodes().0 && steps.iter().all(|step| matches!(step, Step::Wait(_))) {
                return;
            }
        }
        panic!("no rest: {:#?}", self.sent.iter().rev().take(20).collect::<Vec<_>>());
    }

    /// Rests, waits for so many seconds, and rests again after each of them.
    pub fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.advance(Duration::from_secs(1));
            self.rest();
        }
    }

    /// Two facts: nodes may register with the taint of a pool without `taints`, and the node has it.
    pub fn has_taint(&self, node: &str) -> (bool, bool) {
        (self.at_registration() == [MINE], self.taints(node) == [MINE])
    }
}
