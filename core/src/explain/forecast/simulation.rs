//! A cluster in memory with an API server and the operator. Its clock advances only when the caller sets it.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{api::node::v1::RuntimeClass, apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    api::names,
    labels::Labels,
    plan::{
        CheckAnswer, ClassUsers, Consent, GuardedPool, HeldTaints, Node, NodeShare, PODS, Policy, Pool, Sighting,
        Tally, Watched, WorkloadCheck, assess, finalizers,
        reconcile::{
            Answer, CheckTask, ClassRequest, Cluster, ControlPlaneInfo, Memory, Now, Pauses, Refusal, SeenNode, Step,
            next,
        },
        runtime_class_patch,
    },
    pod::{Pod, Workload, WorkloadKind},
};

use super::Snapshot;

/// The time before the operator retries a refused request, and the time that a deletion waits without progress.
const PATIENCE: Duration = Duration::from_mins(10);

/// A cluster in memory, with the operator.
pub struct Simulation {
    pub pools: Vec<Arc<GuardedPool>>,
    /// The nodes by name. The name is also the uid.
    pub nodes: BTreeMap<String, Node>,
    /// The RuntimeClasses by name.
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    /// The unfinished pods, or the reason why they cannot be listed.
    pub pods: Result<Vec<Pod>, String>,
    /// The objects that create pods from a template.
    pub workloads: Vec<(WorkloadKind, Workload)>,
    /// The nodes whose changes the API server refuses.
    pub blocked: BTreeSet<String>,
    /// The state that the operator keeps in memory.
    pub memory: Memory,
    /// The policy by which the operator changes nodes.
    pub published: Option<Arc<Policy>>,
    /// The current time.
    pub now: Now,
    unlisted: BTreeMap<String, String>,
    other_nodes: Vec<Labels>,
    control_plane: ControlPlaneInfo,
    watched: BTreeMap<String, Watched>,
    version: u64,
}

impl Simulation {
    /// Returns the cluster of this snapshot, with an operator that has no state yet.
    pub fn new(snapshot: Snapshot) -> Self {
        let mut simulation = Self {
            pools: Vec::new(),
            nodes: snapshot.nodes,
            classes: BTreeMap::new(),
            pods: snapshot.pods,
            workloads: snapshot.workloads,
            blocked: BTreeSet::new(),
            memory: Memory::default(),
            published: None,
            now: snapshot.now,
            unlisted: snapshot.unlisted,
            other_nodes: snapshot.other_nodes,
            control_plane: snapshot.control_plane,
            watched: BTreeMap::new(),
            version: 0,
        };
        for mut pool in snapshot.pools {
            let name = pool.name_any();
            pool.metadata.uid.get_or_insert(name);
            pool.metadata.resource_version = Some(simulation.next_version());
            simulation.pools.push(Arc::new(pool));
        }
        for mut class in snapshot.classes {
            let name = class.name_any();
            let metadata = &mut Arc::make_mut(&mut class).metadata;
            metadata.uid.get_or_insert_with(|| name.clone());
            metadata.resource_version = Some(simulation.next_version());
            simulation.classes.insert(name, class);
        }
        simulation.restart();
        simulation
    }

    /// Restarts the operator, which loses its state.
    pub fn restart(&mut self) {
        (self.memory, self.published) = (Memory::new(PATIENCE, Pauses::default()), None);
        self.watched.clear();
        self.watch(Sighting::Listed);
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub fn update_pool(&mut self, name: &str, change: impl FnOnce(&mut GuardedPool)) {
        let version = self.next_version();
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.name_any() == name) {
            let pool = Arc::make_mut(pool);
            change(pool);
            pool.metadata.resource_version = Some(version);
        }
    }

    /// Adds or replaces this class.
    pub fn put_class(&mut self, mut class: RuntimeClass) -> Arc<RuntimeClass> {
        class.metadata.resource_version = Some(self.next_version());
        let (name, class) = (class.name_any(), Arc::new(class));
        self.classes.insert(name, Arc::clone(&class));
        class
    }

    /// Reports all nodes to the operator as this kind of sighting.
    pub fn watch(&mut self, sighting: Sighting) {
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.watch_node(&name, sighting);
        }
    }

    /// Reports this node to the operator as this kind of sighting.
    pub fn watch_node(&mut self, name: &str, sighting: Sighting) {
        let (policy, Some(node)) = (self.memory.policy(&self.pools), self.nodes.get(name)) else { return };
        let owner = policy.owner(&node.labels).map(|entry| entry.pool.as_ref());
        let watched = Watched::next(self.watched.get(name), node, owner, sighting, self.now.instant);
        self.watched.insert(name.to_owned(), watched);
    }

    fn with_cluster<T>(&mut self, work: impl FnOnce(&Cluster<'_>, &mut Memory, Now) -> T) -> T {
        let mut memory = std::mem::take(&mut self.memory);
        let (policy, shares, none) = (memory.policy(&self.pools), OnceCell::new(), Watched::default());
        let classes: Vec<_> = self.classes.values().cloned().collect();
        let cluster = Cluster {
            pools: &self.pools,
            classes: &classes,
            tally: &|pool| Tally::of(pool, shares.get_or_init(|| self.shares(&policy))),
            nodes: &|show| {
                for (name, node) in self.nodes.iter().filter(|(_, node)| node.is_windows()) {
                    show(SeenNode { name, uid: name, node, watched: self.watched.get(name).unwrap_or(&none) });
                }
            },
            is_blocked: &|name, _| self.blocked.contains(name),
            settled: true,
            control_plane: self.control_plane.clone(),
        };
        let result = work(&cluster, &mut memory, self.now);
        self.memory = memory;
        result
    }

    /// Returns the contribution of each node to the status of its pools.
    fn shares(&self, policy: &Policy) -> Vec<(Arc<str>, NodeShare)> {
        let none = Watched::default();
        let share = |(name, node): (&String, &Node)| {
            let watched = self.watched.get(name).unwrap_or(&none);
            let consent = Consent::Known { uid: name, watched, now: self.now.instant };
            let refusal = self.blocked.contains(name).then(|| Arc::from("the API server refuses the change"));
            let share = NodeShare::of(node, assess(node, policy, consent), policy, consent, refusal, None);
            (Arc::from(name.as_str()), share)
        };
        self.nodes.iter().map(share).collect()
    }

    /// Returns the reason why taints of the pool are held, if it is known.
    pub(super) fn held(&self, pool: &Pool) -> Option<HeldTaints> {
        self.memory.held(pool, &Tally::of(&pool.name, &self.shares(&self.memory.policy(&self.pools))))
    }

    /// Executes one step of the reconciliation of this pool, unless `refuse` returns a refusal by the API server.
    pub fn step(&mut self, pool: &str, refuse: impl FnOnce(&Step) -> Option<Refusal>) -> Step {
        let step = self.with_cluster(|cluster, memory, now| next(cluster, memory, pool, now));
        let answer = refuse(&step).map_or_else(|| self.execute(pool, &step), Answer::Refused);
        self.memory.answer(pool, &step, answer, self.now.instant);
        step
    }

    fn execute(&mut self, pool: &str, step: &Step) -> Answer {
        match step {
            Step::Judge | Step::Wait(_) => Answer::Done,
            Step::Publish(policy) => {
                self.published = Some(Arc::clone(policy));
                Answer::Done
            }
            Step::ReadPool { .. } => {
                let found = self.pools.iter().find(|found| found.name_any() == pool);
                Answer::Pool(found.map(|found| Box::new(found.metadata.clone())))
            }
            Step::SetFinalizer(wanted) => {
                self.update_pool(pool, |pool| pool.metadata.finalizers = Some(finalizers(&pool.metadata, *wanted)));
                self.pools.retain(|pool| !pool.is_being_deleted() || !pool.finalizers().is_empty());
                Answer::Done
            }
            Step::FindUsers { classes, taints } => {
                let pods = self.pods.as_ref().map_err(Clone::clone);
                Answer::Users(pods.map(|pods| ClassUsers::count(pods, classes, taints)))
            }
            Step::Class(class) => self.request(&class.name, &class.request),
            Step::ListMarkedNodes => {
                let is_marked = |node: &Node| node.labels.get(names::POOL) == Some(pool) && !node.is_ignored();
                let marked = self.nodes.iter().filter(|(_, node)| is_marked(node));
                Answer::Nodes(marked.map(|(name, _)| name.clone()).collect())
            }
            Step::WriteStatus { status, .. } => {
                self.update_pool(pool, |pool| *pool = pool.with_status(status));
                Answer::Done
            }
        }
    }

    fn request(&mut self, name: &str, request: &ClassRequest) -> Answer {
        let uid = format!("{name}-{}", self.version);
        match request.apply(self.classes.get(name).map(AsRef::as_ref), uid) {
            Err(refusal) => Answer::Refused(refusal),
            Ok(class) if request.is_a_question() => Answer::Class(class.map(Arc::new)),
            Ok(Some(class)) => Answer::Class(Some(self.put_class(class))),
            Ok(None) => {
                self.classes.remove(name);
                Answer::Done
            }
        }
    }

    /// Assesses every node once with the published policy. Returns true if it changed a node.
    pub fn write_nodes(&mut self) -> bool {
        let Some(policy) = self.published.clone() else { return false };
        let (mut wrote, none) = (false, Watched::default());
        for (name, node) in self.nodes.iter_mut().filter(|(name, _)| !self.blocked.contains(*name)) {
            let watched = self.watched.get(name).unwrap_or(&none);
            let plan = assess(node, &policy, Consent::Known { uid: name, watched, now: self.now.instant }).plan;
            if !plan.is_empty() {
                *node = node.after(&plan);
                wrote = true;
            }
        }
        self.watch(Sighting::Changed);
        wrote
    }

    /// Starts the workload check that is due, if any.
    pub fn start_check(&mut self) -> Option<CheckTask> {
        self.with_cluster(|cluster, memory, now| memory.start_check(cluster, now))
    }

    /// Completes a check of all workloads.
    pub fn finish_check(&mut self, found: Result<BTreeMap<String, CheckAnswer>, String>) {
        self.with_cluster(|cluster, memory, now| memory.checked(cluster, found, now.instant));
    }

    /// Runs the check that is due, if any. Returns true if it listed all workloads.
    pub fn check(&mut self) -> bool {
        match self.start_check() {
            Some(CheckTask::Everything(check)) => {
                let found = self.listing(*check);
                self.finish_check(Ok(found));
                return true;
            }
            Some(CheckTask::Named { pool, .. }) => self.memory.asked(&pool, false),
            None => {}
        }
        false
    }

    /// Returns the results of a check of all workloads.
    pub fn listing(&self, mut check: WorkloadCheck) -> BTreeMap<String, CheckAnswer> {
        for (kind, words) in &self.unlisted {
            check.unlisted(kind, words.clone());
        }
        for (kind, workload) in &self.workloads {
            check.workload(*kind, workload);
        }
        match &self.pods {
            Ok(pods) => pods.iter().for_each(|pod| check.pod(pod)),
            Err(words) => check.unlisted(PODS, words.clone()),
        }
        let undecided: Vec<_> = check.undecided().cloned().collect();
        for selector in undecided {
            check.decide(&selector, self.other_nodes.iter().any(|labels| labels.matches(&selector)));
        }
        check.finish()
    }

    /// Runs until the operator has nothing to do except wait for other writers.
    pub(super) fn run(&mut self) {
        /// The operator has finished if it writes nothing for this long.
        const QUIET: Duration = Duration::from_secs(45);
        /// The limit for a loop that never finishes.
        const ROUNDS: usize = 20_000;
        let mut last_write = self.now.instant;
        for _ in 0..ROUNDS {
            let (mut wrote, mut dues) = (false, Vec::new());
            for pool in self.pools.iter().map(|pool| pool.name_any()).collect::<Vec<_>>() {
                match self.step(&pool, |_| None) {
                    Step::Wait(until) => dues.extend(until),
                    _ => wrote = true,
                }
            }
            wrote |= self.write_nodes();
            if wrote {
                last_write = self.now.instant;
                continue;
            }
            self.check();
            dues.extend(self.memory.check_due(self.now.instant));
            dues.extend(self.watched.values().filter_map(Watched::label_settles));
            let is_soon = |due: &Instant| due.duration_since(last_write) <= QUIET;
            let next = dues.into_iter().filter(|due| *due > self.now.instant).min().filter(is_soon);
            let Some(due) = next else { return };
            self.now.instant = due;
        }
    }
}

impl ClassRequest {
    /// Returns true if the request writes nothing.
    pub fn is_a_question(&self) -> bool {
        matches!(self, Self::Read | Self::TryCreate(_))
    }

    /// Returns the class after this request, as an API server would; `None` if it is absent. A new class gets `uid`.
    /// The caller sets the new `resourceVersion`.
    ///
    /// # Errors
    /// Fails if the class differs from the one that the request was computed from.
    pub fn apply(&self, current: Option<&RuntimeClass>, uid: String) -> Result<Option<RuntimeClass>, Refusal> {
        let is_seen = |seen: (Option<String>, Option<String>), class: &RuntimeClass| {
            if seen == (class.uid(), class.resource_version()) { Ok(()) } else { Err(Refusal::Conflict) }
        };
        match (self, current) {
            (Self::Read, current) => Ok(current.cloned()),
            (Self::Create(_) | Self::TryCreate(_), Some(_)) => Err(Refusal::Conflict),
            (Self::Create(class) | Self::TryCreate(class), None) => {
                let mut class = RuntimeClass::clone(class);
                class.metadata.uid = Some(uid);
                Ok(Some(class))
            }
            (Self::Patch { uid, version, changes }, Some(class)) => {
                is_seen((Some(uid.clone()), Some(version.clone())), class)?;
                let mut object = json!(class);
                let patched = json_patch::patch(&mut object, &runtime_class_patch(uid, version, changes));
                let failed = |words: String| Refusal::Failed(words);
                patched.map_err(|error| failed(error.to_string()))?;
                serde_json::from_value(object).map(Some).map_err(|error| failed(error.to_string()))
            }
            (Self::Delete(seen), Some(class)) => {
                is_seen((seen.uid(), seen.resource_version()), class)?;
                let mut kept = class.clone();
                kept.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
                Ok(Some(kept).filter(|class| !class.finalizers().is_empty()))
            }
            (Self::Patch { .. } | Self::Delete(_), None) => Err(Refusal::Gone),
        }
    }
}
