//! A cluster in memory whose API server can refuse any request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use json_patch::Patch;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::api::{Problem, WindowsPool, WindowsPoolStatus, names};
use winpool_core::node::{NodeFields, NodeObject, NodePlan, TaintList};
use winpool_core::plan::Now;
use winpool_core::plan::attempt::{Outage, RequestError};
use winpool_core::plan::nodes::{NodeAnswer, NodeEvent, NodeStep, NodeTable, OtherNodes};
use winpool_core::plan::patch::{finalizer_patch, status_patch};
use winpool_core::plan::pods::{ClusterFacts, PodHealth, PodTable, UnknownPods, WindowsNodes};
use winpool_core::plan::pools::pool::{GuardedPool, Policy, policy_of};
use winpool_core::plan::reconcile::{Answer, CachedCluster, ClassRequest, Memory, Pauses, Step, next};
use winpool_core::pod::{DaemonSet, Pod, PodProgress, PodSpec};

use crate::common::{
    self, apply, at_registration, node, now, pool_object, read, recorded_in, request_class, set_label,
};

pub const MINE: &str = "os=windows:NoSchedule";

/// The API server's answer to a request that it does not execute.
type Refuse = dyn Fn(&str) -> Option<RequestError>;

/// The time before winpool retries a refused request, and the time that a deletion waits without progress.
const PATIENCE: Duration = Duration::from_mins(10);

/// The cluster, with a record of requests.
pub struct World {
    pub pools: Vec<Arc<GuardedPool>>,
    /// The nodes by name. The name is also the uid.
    pub nodes: BTreeMap<String, NodeFields>,
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub pods: Vec<Pod>,
    pub daemon_sets: Vec<DaemonSet>,
    /// The nodes whose changes the API server refuses.
    pub blocked: BTreeSet<String>,
    /// The nodes whose next change is executed, while its answer is lost.
    pub unanswered: BTreeSet<String>,
    pub now: Now,
    pub memory: Memory,
    /// The policy by which winpool changes nodes.
    pub published: Option<Arc<Policy>>,
    /// winpool's tables of Windows nodes, and of nodes that came back with another system.
    tables: [NodeTable; 2],
    table: PodTable,
    pub unknown_pods: Option<UnknownPods>,
    pub unknown_daemon_sets: Option<UnknownPods>,
    health: PodHealth,
    /// The kinds that winpool cannot read.
    pub outages: BTreeMap<&'static str, Outage>,
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
    version: u64,
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

/// Changes the node by this plan.
fn execute(node: &mut NodeFields, plan: &NodePlan) {
    for change in plan.labels() {
        set_label(node, &change.key, change.to.as_deref());
    }
    if let Some(change) = &plan.taints {
        node.taints = Arc::new(TaintList::new(Some(change.to.clone())));
    }
    if let Some(change) = &plan.applied {
        node.applied = change.to.as_deref().map(Into::into);
        node.has_annotations |= change.to.is_some();
    }
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
        let refuse = Box::new(|_: &str| None);
        let mut world = Self {
            pools: Vec::new(),
            nodes: nodes.into_iter().map(|(name, node)| (name.to_owned(), read(&node))).collect(),
            classes: BTreeMap::new(),
            pods: Vec::new(),
            daemon_sets: Vec::new(),
            blocked: BTreeSet::new(),
            unanswered: BTreeSet::new(),
            now: now(),
            memory: Memory::default(),
            published: None,
            tables: [NodeTable::new(PATIENCE), NodeTable::new(PATIENCE)],
            table: PodTable::default(),
            unknown_pods: None,
            unknown_daemon_sets: None,
            health: PodHealth::Off,
            outages: BTreeMap::new(),
            sent: Vec::new(),
            refuse,
            reverts: None,
            prunes: false,
            counted: None,
            version: 0,
        };
        for mut pool in pools {
            let name = pool.name_any();
            pool.metadata.uid.get_or_insert(name);
            world.pools.push(Arc::new(pool.into()));
        }
        world.restart();
        world
    }

    /// Another process starts, without memory.
    pub fn restart(&mut self) {
        (self.memory, self.published) = (Memory::new(PATIENCE, Pauses::default()), None);
        self.tables = [NodeTable::new(PATIENCE), NodeTable::new(PATIENCE)];
        self.table = PodTable::default();
        self.count_nodes();
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let objects: Vec<_> = names.iter().map(|name| self.object(name)).collect();
        let (windows, others) = objects.into_iter().partition(|object| object.node.is_windows());
        for (table, nodes) in self.tables.iter_mut().zip([windows, others]) {
            table.observe(NodeEvent::Listed(nodes), self.now.instant);
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

    fn put_class(&mut self, mut class: RuntimeClass) -> Arc<RuntimeClass> {
        self.version += 1;
        class.metadata.resource_version = Some(self.version.to_string());
        let (name, class) = (class.name_any(), Arc::new(class));
        self.classes.insert(name, Arc::clone(&class));
        class
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
        self.version += 1;
        let pool = self.pools.iter_mut().find(|pool| pool.name_any() == name).unwrap();
        let mut object = json!(pool.pool().unwrap());
        (object["metadata"], object["status"]) = (json!(pool.metadata), json!(pool.status));
        change(&mut object);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        *pool = serde_json::from_value(object).map(Arc::new).unwrap();
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

    fn object(&mut self, name: &str) -> Arc<NodeObject> {
        self.version += 1;
        let (resource_version, node) = (self.version.to_string().into(), self.nodes[name].clone());
        Arc::new(NodeObject { name: name.into(), uid: name.into(), resource_version, node, other_writer: None })
    }

    fn count_nodes(&mut self) {
        let policy = self.memory.policy(&self.pools);
        self.tables.iter_mut().for_each(|table| table.count_by(policy.clone(), self.now.instant));
    }

    /// Shows all nodes to winpool, as its watches do.
    pub fn watch(&mut self) {
        self.count_nodes();
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        let objects: Vec<_> = names.iter().map(|name| self.object(name)).collect();
        for (table, is_of_windows) in self.tables.iter_mut().zip([true, false]) {
            let is_shown = |name: &str| self.nodes.get(name).is_some_and(|node| node.is_windows() == is_of_windows);
            let gone = table.nodes().map(|(object, _)| Arc::clone(&object.name)).filter(|name| !is_shown(name));
            for name in gone.collect::<Vec<_>>() {
                table.observe(NodeEvent::Deleted(name), self.now.instant);
            }
            for object in objects.iter().filter(|object| is_shown(&object.name)) {
                table.observe(NodeEvent::Seen(Arc::clone(object)), self.now.instant);
            }
        }
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

    /// Shows the pods to winpool, as its watch does.
    fn watch_pods(&mut self) {
        self.table.begin_list();
        self.pods.iter().for_each(|pod| self.table.see(pod, self.now));
        self.table.end_list();
        self.table.daemon_sets.begin_list();
        self.daemon_sets.iter().for_each(|set| self.table.daemon_sets.see(set, self.now.instant));
        self.table.daemon_sets.end_list(self.now.instant);
    }

    /// Shows the cluster to winpool.
    fn with_cluster<T>(&mut self, work: impl FnOnce(&mut CachedCluster<'_>, &mut Memory, Now) -> T) -> T {
        let classes: Vec<_> = self.classes.values().cloned().collect();
        let [nodes, _] = &mut self.tables;
        let facts = ClusterFacts { nodes, policy: &policy_of(&self.pools), classes: &classes };
        self.table.look(Some(WindowsNodes::of(&facts, OtherNodes::default(), &NodeTable::default())), self.now.instant);
        let mut cluster = CachedCluster {
            pools: &self.pools,
            classes: &classes,
            nodes,
            unconfined: None,
            outages: self.outages.clone(),
            pods: self.unknown_pods.clone().map_or(Ok(&self.table), Err),
            unknown_daemon_sets: self.unknown_daemon_sets.clone(),
            health: self.health.clone(),
        };
        work(&mut cluster, &mut self.memory, self.now)
    }

    /// One step of this pool, carried out unless the API server refuses it.
    pub fn step(&mut self, pool: &str) -> Step {
        self.watch_pods();
        self.count_pods();
        let step = self.with_cluster(|cluster, memory, now| next(cluster, memory, pool, now));
        let answer = self.answer(pool, &step);
        self.memory.answer(pool, &step, answer, self.now.instant);
        if let Step::Publish(policy) = &step {
            self.assert_recorded(policy);
        }
        step
    }

    fn answer(&mut self, pool: &str, step: &Step) -> Answer {
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

    fn execute(&mut self, pool: &str, step: &Step) -> Answer {
        match step {
            Step::Wait(_) => Answer::Done,
            Step::Publish(policy) => {
                self.published = Some(Arc::clone(policy));
                for table in &mut self.tables {
                    table.write_by(Some(Arc::clone(policy)), self.now.instant);
                }
                Answer::Done
            }
            Step::ReadPool { .. } => {
                let found = self.pools.iter().find(|found| found.name_any() == pool);
                Answer::Pool(found.map(|found| Box::new(found.metadata.clone())))
            }
            Step::SetFinalizer(wanted) => self.patch_pool(pool, |seen| finalizer_patch(&seen.metadata, *wanted)),
            Step::Class(class) => self.request(&class.name, &class.request),
            Step::ListLabelledNodes => {
                let is_labelled = |node: &NodeFields| node.labels.get(names::POOL) == Some(pool) && !node.is_ignored();
                let labelled = self.nodes.iter().filter(|(_, node)| is_labelled(node));
                Answer::Nodes(labelled.map(|(name, _)| name.clone()).collect())
            }
            Step::WriteStatus { status, seen, .. } => {
                self.patch_pool(pool, |pool| status_patch(&pool.uid().unwrap(), seen.as_ref(), status))
            }
        }
    }

    fn patch_pool(&mut self, name: &str, patch: impl FnOnce(&GuardedPool) -> Patch) -> Answer {
        if !self.pools.iter().any(|pool| pool.name_any() == name) {
            return Answer::Refused(RequestError::Gone);
        }
        let patch = patch(self.guarded(name));
        let mut is_stale = false;
        self.update_pool(name, |object| match apply(object, &patch) {
            Ok(after) => *object = after,
            Err(_) => is_stale = true,
        });
        let answer = Answer::Written(Box::new(self.guarded(name).clone()));
        self.pools.retain(|pool| pool.metadata.deletion_timestamp.is_none() || !pool.finalizers().is_empty());
        if is_stale { Answer::Refused(RequestError::Conflict) } else { answer }
    }

    fn request(&mut self, name: &str, request: &ClassRequest) -> Answer {
        let uid = format!("{name}-{}", self.version);
        match request_class(request, self.classes.get(name).map(AsRef::as_ref), uid) {
            Err(refusal) => Answer::Refused(refusal),
            Ok(Some(class)) => Answer::Class(Some(self.put_class(class))),
            Ok(None) => {
                self.classes.remove(name);
                Answer::Done
            }
        }
    }

    /// Executes the steps of every node until it waits. True if a node changed.
    pub fn write_nodes(&mut self) -> bool {
        let mut wrote = false;
        for (name, node) in &mut self.nodes {
            let table = &mut self.tables[usize::from(!node.is_windows())];
            let mut step = table.next(name, self.now.instant);
            while let NodeStep::Patch { plan, .. } = step {
                let answer = if self.blocked.contains(name) {
                    NodeAnswer::Refused(denied())
                } else {
                    wrote = true;
                    execute(node, &plan);
                    let is_lost = self.unanswered.remove(name);
                    if is_lost { NodeAnswer::Refused(failed()) } else { NodeAnswer::Written(None) }
                };
                step = table.answer(name, answer, self.now.instant);
            }
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
