//! A cluster in memory whose API server can refuse any request.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::api::{Problem, WindowsPool, WindowsPoolStatus, names};
use winpool_core::node::NodeFields;
use winpool_core::plan::attempt::{Outage, RequestError};
use winpool_core::plan::nodes::NodeAnswer;
use winpool_core::plan::pods::{ClusterFacts, PodHealth, PodTable};
use winpool_core::plan::pools::pool::{GuardedPool, Policy};
use winpool_core::plan::reconcile::{Answer, ClassRequest, Step};
use winpool_core::pod::{DaemonSet, Pod, PodProgress, PodSpec};
use winpool_simulation::Cluster;

use crate::common::{self, at_registration, node, now, pool_object, read, recorded_in};

pub const MINE: &str = "os=windows:NoSchedule";

/// The API server's answer to a request that it does not execute.
type Refuse = dyn Fn(&str) -> Option<RequestError>;

/// The cluster, with a record of requests.
pub struct World {
    cluster: Cluster,
    pub pods: Vec<Pod>,
    pub daemon_sets: Vec<DaemonSet>,
    /// The nodes whose changes the API server refuses.
    pub blocked: BTreeSet<String>,
    /// The nodes whose next change is executed, while its answer is lost.
    pub unanswered: BTreeSet<String>,
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
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
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
pub fn daemon_set(name: &str, spec: &str) -> DaemonSet {
    let (namespace, name) = ("shop".to_owned(), name.to_owned());
    DaemonSet { namespace, name, template: common::yaml(spec), ..DaemonSet::default() }
}

/// A DaemonSet for all Windows nodes that tolerates no taint.
pub fn agent() -> DaemonSet {
    daemon_set("agent", "{os: {name: windows}}")
}

impl World {
    pub fn new<'n>(
        pools: impl IntoIterator<Item = WindowsPool>,
        nodes: impl IntoIterator<Item = (&'n str, Value)>,
    ) -> Self {
        let nodes = nodes.into_iter().map(|(name, node)| (name.to_owned(), read(&node))).collect();
        let mut cluster = Cluster::new(nodes, now());
        pools.into_iter().for_each(|pool| cluster.put_pool(&pool.into()));
        cluster.watch();
        Self {
            cluster,
            pods: Vec::new(),
            daemon_sets: Vec::new(),
            blocked: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            sent: Vec::new(),
            refuse: Box::new(|_: &str| None),
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
        self.update_pool(name, |object| {
            json_patch::merge(object, &common::yaml(changes));
            if changes.contains("spec:") {
                object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_u64().unwrap() + 1);
            }
        });
        self.watch();
    }

    /// Stores the pool after this change of its object.
    fn update_pool(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let pool = self.guarded(name);
        let mut object = json!(pool.pool().unwrap());
        (object["metadata"], object["status"]) = (json!(pool.metadata), json!(pool.status));
        change(&mut object);
        let changed: GuardedPool = serde_json::from_value(object).unwrap();
        self.put_pool(&changed);
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
        self.watch();
    }

    pub fn guarded(&self, name: &str) -> &GuardedPool {
        self.pool(name).unwrap()
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

    /// Shows the pods to winpool, as its watch does.
    fn watch_pods(&mut self) {
        let Self { cluster, pods, daemon_sets, .. } = self;
        let (table, now) = (&mut cluster.pods, cluster.now);
        table.begin_list();
        for pod in &*pods {
            table.see(pod, now);
        }
        table.end_list();
        table.daemon_sets.begin_list();
        for set in &*daemon_sets {
            table.daemon_sets.see(set, now.instant);
        }
        table.daemon_sets.end_list(now.instant);
    }

    /// One step of this pool, carried out unless the API server refuses it.
    pub fn step(&mut self, pool: &str) -> Step {
        self.watch_pods();
        self.count_pods();
        self.cluster.look();
        let step = self.cluster.next(pool);
        let answer = self.reply(pool, &step);
        self.cluster.answer(pool, &step, answer);
        if let Step::Publish(policy) = &step {
            self.assert_recorded(policy);
        }
        step
    }

    fn reply(&mut self, pool: &str, step: &Step) -> Answer {
        let Some(line) = line(step) else { return self.execute(pool, step) };
        self.sent.push(line.clone());
        if self.reverts.is_some_and(|reverts| line.starts_with(reverts)) {
            return self.unchanged(pool, step);
        }
        (self.refuse)(&line).map_or_else(|| self.execute(pool, step), Answer::Refused)
    }

    /// The answer to a write that a webhook reverts, or from which an old CustomResourceDefinition prunes the taints.
    fn unchanged(&self, pool: &str, step: &Step) -> Answer {
        match step {
            Step::Class(class) => Answer::Class(class.current.clone()),
            Step::WriteStatus { status, .. } if self.prunes => {
                let mut stored = self.guarded(pool).pool().unwrap().clone();
                stored.status = Some(WindowsPoolStatus { taints: Vec::new(), ..status.as_ref().clone() });
                Answer::Written(Box::new(stored.into()))
            }
            _ => Answer::Written(Box::new(self.guarded(pool).clone())),
        }
    }

    /// Executes the steps of every node until it waits. True if a node changed.
    pub fn write_nodes(&mut self) -> bool {
        let mut wrote = false;
        while let Some((name, plan)) = self.next_patch() {
            let answer = if self.blocked.contains(&*name) {
                NodeAnswer::Refused(denied())
            } else {
                wrote = true;
                let answer = self.execute_node(&name, &plan);
                if self.unanswered.remove(&*name) { NodeAnswer::Refused(failed()) } else { answer }
            };
            self.answer_node(&name, answer);
        }
        if wrote {
            self.watch();
        }
        wrote
    }

    /// Counts the pods if it is time to.
    fn count_pods(&mut self) {
        let Some(mut table) = self.counted.take() else { return };
        let now = self.now;
        table.begin_list();
        self.pods.iter().for_each(|pod| table.see(pod, now));
        table.end_list();
        if table.next_count(true, now.instant).is_some_and(|due| due <= now.instant) {
            self.with_cluster(|cluster, memory, now| {
                let policy = memory.policy(cluster.pools);
                table.count(&ClusterFacts { nodes: cluster.nodes, policy: &policy, classes: cluster.classes }, now);
            });
            let summary = table.summary().cloned().unwrap_or_default();
            self.cluster.health = PodHealth::Seen { summary, unseen: None };
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
            if !self.write_nodes() && steps.iter().all(|step| matches!(step, Step::Wait(_))) {
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
