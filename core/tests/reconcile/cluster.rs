//! A cluster in memory whose API server can refuse any request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use serde_json::{Value, json};
use winpool_core::{
    api::{Problem, WindowsPoolStatus, names},
    plan::{
        CheckAnswer, Consent, GuardedPool, Node, NodeShare, PODS, Policy, Sighting, Tally, Watched, WorkloadCheck,
        assess,
        reconcile::{
            Answer, CheckTask, ClassRequest, Cluster, ControlPlaneInfo, Memory, Now, Refusal, SeenNode, Step, next,
        },
    },
    pod::{Pod, PodProgress, PodSpec, Workload, WorkloadKind},
};

use crate::common::{self, pool_object, read};

/// How long what was refused is not tried again, and how long a deletion waits without progress.
pub const PATIENCE: Duration = Duration::from_mins(10);
const STEPS: usize = 200;

/// What the API server answers to a request instead of doing it.
type Refuse = dyn Fn(&str) -> Option<Refusal>;

/// The cluster, and the operator's memory of it.
pub struct World {
    pub pools: Vec<Arc<GuardedPool>>,
    pub nodes: BTreeMap<String, Node>,
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub pods: Result<Vec<Pod>, String>,
    pub workloads: Vec<(WorkloadKind, Workload)>,
    pub memory: Memory,
    pub now: Now,
    pub published: Option<Arc<Policy>>,
    /// Requests that were sent, such as `Create windows-2022`.
    pub sent: Vec<String>,
    /// What the API server answers instead of doing it.
    pub refuse: Box<Refuse>,
    /// Nodes whose changes the API server refuses.
    pub blocked: BTreeSet<String>,
    pub version: u64,
    watched: BTreeMap<String, Watched>,
}

pub fn failed() -> Refusal {
    Refusal::Failed("the server is down".to_owned())
}

pub fn denied() -> Refusal {
    Refusal::Denied("a policy says no".to_owned())
}

/// `default` with winpool's finalizer, merged with `changes`.
pub fn pool(changes: &str) -> GuardedPool {
    let mut object = json!({"metadata": {"uid": "default", "finalizers": [names::CLEANUP]}});
    json_patch::merge(&mut object, &common::yaml(changes));
    let name = object["metadata"]["name"].clone();
    if name.is_string() {
        object["metadata"]["uid"] = name;
    }
    pool_object(&object.to_string()).into()
}

/// What a step asks of the API server, as a line; empty if nothing.
fn line(step: &Step) -> String {
    match step {
        Step::Judge | Step::Wait(_) | Step::Publish(_) => String::new(),
        Step::ReadPool { .. } => "ReadPool".to_owned(),
        Step::SetFinalizer(wanted) => format!("SetFinalizer {wanted}"),
        Step::FindUsers { classes, .. } => {
            format!("FindUsers {}", classes.iter().cloned().collect::<Vec<_>>().join(" "))
        }
        Step::Class(name, request) => {
            let verb = match request {
                ClassRequest::Read => "Read",
                ClassRequest::Create(_) => "Create",
                ClassRequest::TryCreate(_) => "TryCreate",
                ClassRequest::Patch { .. } => "Patch",
                ClassRequest::Delete(_) => "Delete",
            };
            format!("{verb} {name}")
        }
        Step::ListMarkedNodes => "ListMarkedNodes".to_owned(),
        Step::WriteStatus { .. } => "WriteStatus".to_owned(),
    }
}

/// A pod that uses the class.
pub fn of_class(class: &str) -> Pod {
    Pod {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        spec: PodSpec { runtime_class: Some(class.to_owned()), ..PodSpec::default() },
        progress: PodProgress::Started,
        ..Pod::default()
    }
}

impl World {
    pub fn new<'n>(
        pools: impl IntoIterator<Item = GuardedPool>,
        nodes: impl IntoIterator<Item = (&'n str, Value)>,
    ) -> Self {
        let versioned = |mut pool: GuardedPool| {
            pool.metadata.resource_version = Some("1".to_owned());
            Arc::new(pool)
        };
        let mut world = Self {
            pools: pools.into_iter().map(versioned).collect(),
            nodes: nodes.into_iter().map(|(name, node)| (name.to_owned(), read(&node))).collect(),
            classes: BTreeMap::new(),
            pods: Ok(Vec::new()),
            workloads: Vec::new(),
            memory: Memory::new(PATIENCE),
            now: common::now(),
            published: None,
            sent: Vec::new(),
            refuse: Box::new(|_| None),
            blocked: BTreeSet::new(),
            watched: BTreeMap::new(),
            version: 1,
        };
        world.watch(Sighting::Listed);
        world
    }

    /// Adds a class that is there already.
    pub fn class(&mut self, text: &str) {
        let class = common::class(text);
        self.classes.insert(class.name_any(), class);
    }

    /// The operator was restarted: it remembers nothing.
    pub fn restart(&mut self) {
        (self.memory, self.published) = (Memory::new(PATIENCE), None);
        self.watched.clear();
        self.watch(Sighting::Listed);
    }

    pub fn advance(&mut self, by: Duration) {
        self.now.instant += by;
        let seconds = i64::try_from(by.as_secs()).unwrap();
        self.now.time += k8s_openapi::jiff::SignedDuration::from_secs(seconds);
    }

    pub fn change_pool(&mut self, name: &str, changes: &str) {
        let current = self.pools.iter().find(|pool| pool.name_any() == name).unwrap();
        let mut object = json!(current.pool.clone().unwrap());
        object["status"] = json!(current.status);
        object["metadata"] = json!(current.metadata);
        json_patch::merge(&mut object, &common::yaml(changes));
        if changes.contains("spec:") {
            object["metadata"]["generation"] = json!(current.metadata.generation.unwrap() + 1);
        }
        let new: GuardedPool = serde_json::from_value(object).unwrap();
        self.update_pool(name, |pool| *pool = new);
        self.watch(Sighting::Changed);
    }

    pub fn update_pool(&mut self, name: &str, change: impl FnOnce(&mut GuardedPool)) {
        self.version += 1;
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.name_any() == name) {
            let pool = Arc::make_mut(pool);
            change(pool);
            pool.metadata.resource_version = Some(self.version.to_string());
        }
    }

    pub fn change_class(&mut self, name: &str, changes: &str) {
        self.version += 1;
        let mut object = json!(*self.classes[name]);
        json_patch::merge(&mut object, &common::yaml(changes));
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.classes.insert(name.to_owned(), Arc::new(serde_json::from_value(object).unwrap()));
    }

    pub fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        change(self.nodes.get_mut(name).unwrap());
        self.watch(Sighting::Changed);
    }

    /// A node registers.
    pub fn add_node(&mut self, name: &str, object: &Value) {
        self.nodes.insert(name.to_owned(), read(object));
        let policy = self.memory.policy(&self.pools);
        let owner = policy.owner(&self.nodes[name].labels).map(|entry| entry.pool.as_ref());
        let watched = Watched::next(None, &self.nodes[name], owner, Sighting::Registered, self.now.instant);
        self.watched.insert(name.to_owned(), watched);
    }

    fn watch(&mut self, sighting: Sighting) {
        let policy = self.memory.policy(&self.pools);
        for (name, node) in &self.nodes {
            let owner = policy.owner(&node.labels).map(|entry| entry.pool.as_ref());
            let next = Watched::next(self.watched.get(name), node, owner, sighting, self.now.instant);
            self.watched.insert(name.clone(), next);
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

    pub fn approved(&self) -> Vec<String> {
        self.status().approved_taints.into_iter().map(|approved| approved.taint).collect()
    }

    pub fn taints(&self, node: &str) -> Vec<String> {
        self.nodes[node].taints.taints().iter().map(ToString::to_string).collect()
    }

    /// The requests since the last call that start with one of these words.
    pub fn take_sent(&mut self, verbs: &[&str]) -> Vec<String> {
        let is_asked = |line: &String| verbs.iter().any(|verb| line.split(' ').next() == Some(verb));
        std::mem::take(&mut self.sent).into_iter().filter(is_asked).collect()
    }

    fn with_cluster<T>(&mut self, work: impl FnOnce(&Cluster<'_>, &mut Memory, Now) -> T) -> T {
        let mut memory = std::mem::take(&mut self.memory);
        let policy = memory.policy(&self.pools);
        let (classes, none) = (self.classes.values().cloned().collect::<Vec<_>>(), Watched::default());
        let watched = |name: &str| self.watched.get(name).unwrap_or(&none);
        let result = {
            let cluster = Cluster {
                pools: &self.pools,
                classes: &classes,
                tally: &|pool| self.tally(pool, &policy),
                nodes: &|show| {
                    for (name, node) in &self.nodes {
                        if node.labels.get(names::OS) == Some(names::WINDOWS) {
                            show(SeenNode { name, uid: name, node, watched: watched(name) });
                        }
                    }
                },
                is_blocked: &|name, _| self.blocked.contains(name),
                settled: true,
                control_plane: ControlPlaneInfo::default(),
            };
            work(&cluster, &mut memory, self.now)
        };
        self.memory = memory;
        result
    }

    fn tally(&self, pool: &str, policy: &Policy) -> Tally {
        let (mut tally, none) = (Tally::default(), Watched::default());
        for (name, node) in &self.nodes {
            let watched = self.watched.get(name).unwrap_or(&none);
            let consent = Consent::Known { uid: name, watched, now: self.now.instant };
            let refusal = self.blocked.contains(name).then(|| Arc::from("a policy says no"));
            let share = NodeShare::of(node, assess(node, policy, consent), policy, consent, refusal, None);
            let key: Arc<str> = name.as_str().into();
            share.contributions.iter().filter(|added| added.pool == pool).for_each(|added| tally.add(&key, added));
        }
        tally
    }

    /// One step of this pool, carried out unless the API server refuses it.
    pub fn step(&mut self, pool: &str) -> Step {
        let step = self.with_cluster(|cluster, memory, now| next(cluster, memory, pool, now));
        let line = line(&step);
        if !line.is_empty() {
            self.sent.push(line.clone());
        }
        let answer = match (self.refuse)(&line) {
            Some(refusal) if !line.is_empty() => Answer::Refused(refusal),
            _ => self.execute(pool, &step),
        };
        self.memory.answer(pool, &step, answer, self.now.instant);
        step
    }

    /// All steps of all pools, and the nodes, until everything waits.
    pub fn rest(&mut self) {
        for _ in 0..STEPS {
            let names: Vec<String> = self.pools.iter().map(|pool| pool.name_any()).collect();
            let steps: Vec<Step> = names.iter().map(|name| self.step(name)).collect();
            let wrote = self.write_nodes();
            if !wrote && steps.iter().all(|step| matches!(step, Step::Wait(_))) {
                return;
            }
        }
        panic!("no rest after {STEPS} steps: {:#?}", self.sent.iter().rev().take(20).collect::<Vec<_>>());
    }

    /// Rests, waits for so many seconds, and rests again after each of them.
    pub fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.advance(Duration::from_secs(1));
            self.rest();
        }
    }

    /// Rests, carries out the check that is due, and rests again. Tells whether one was due.
    pub fn check(&mut self) -> bool {
        self.rest();
        let task = self.start_check();
        if let Some(CheckTask::Everything(check)) = &task {
            let found = self.listing(check.as_ref().clone());
            self.finish_check(Ok(found));
        }
        self.rest();
        matches!(task, Some(CheckTask::Everything(_)))
    }

    pub fn start_check(&mut self) -> Option<CheckTask> {
        self.with_cluster(|cluster, memory, now| memory.start_check(cluster, now))
    }

    pub fn finish_check(&mut self, found: Result<BTreeMap<String, CheckAnswer>, String>) {
        self.with_cluster(|cluster, memory, now| memory.checked(cluster, found, now.instant));
    }

    pub fn listing(&self, mut check: WorkloadCheck) -> BTreeMap<String, CheckAnswer> {
        self.workloads.iter().for_each(|(kind, workload)| check.workload(*kind, workload));
        match &self.pods {
            Ok(pods) => pods.iter().for_each(|pod| check.pod(pod)),
            Err(words) => check.unlisted(PODS, words.clone()),
        }
        check.finish()
    }

    fn write_nodes(&mut self) -> bool {
        let Some(policy) = self.published.clone() else { return false };
        let (mut wrote, none) = (false, Watched::default());
        for (name, node) in self.nodes.iter_mut().filter(|(name, _)| !self.blocked.contains(*name)) {
            let watched = self.watched.get(name).unwrap_or(&none);
            let consent = Consent::Known { uid: name, watched, now: self.now.instant };
            let plan = assess(node, &policy, consent).plan;
            if !plan.is_empty() {
                *node = node.after(&plan);
                wrote = true;
            }
        }
        self.watch(Sighting::Changed);
        wrote
    }
}
