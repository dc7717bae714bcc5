//! The operator's loop on a copy of a cluster, with a clock that only goes on when everything waits.

mod pools;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::api::names;

use super::{
    super::{
        CheckAnswer, ClassUsers, Consent, GuardedPool, Labels, Node, NodeShare, PODS, Pod, Policy, Sighting, Tally,
        Watched, Workload, WorkloadCheck, WorkloadKind, assess,
        reconcile::{
            Answer, CheckTask, ClassRequest, Cluster, ControlPlaneInfo, Memory, Note, Now, Refusal, SeenNode, Step,
            next,
        },
    },
    Snapshot, by_name,
    changes::{self, Reasons},
};

/// When nothing was written for this time, nothing will be.
const QUIET: Duration = Duration::from_secs(45);
/// A loop that does not come to rest ends here.
const STEPS: usize = 20_000;

/// A cluster in memory, and the operator that works on it.
pub(super) struct Interpreter {
    pub pools: Vec<Arc<GuardedPool>>,
    pub nodes: BTreeMap<String, Node>,
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub pods: Result<Vec<Pod>, String>,
    pub reasons: Reasons,
    workloads: Vec<(WorkloadKind, Workload)>,
    unlisted: BTreeMap<String, String>,
    other_nodes: Vec<Labels>,
    control_plane: ControlPlaneInfo,
    watched: BTreeMap<String, Watched>,
    memory: Memory,
    policy: Arc<Policy>,
    published: Option<Arc<Policy>>,
    now: Now,
    version: u64,
    gone: Vec<String>,
}

impl Interpreter {
    pub fn new(snapshot: Snapshot) -> Self {
        let mut version = 0;
        let mut next_version = || {
            version += 1;
            version.to_string()
        };
        let mut pools = snapshot.pools;
        for pool in &mut pools {
            let name = pool.name_any();
            pool.metadata.uid.get_or_insert(name);
            pool.metadata.resource_version = Some(next_version());
        }
        let mut classes = by_name(&snapshot.classes);
        for (name, class) in &mut classes {
            let metadata = &mut Arc::make_mut(class).metadata;
            metadata.uid.get_or_insert_with(|| name.clone());
            metadata.resource_version = Some(next_version());
        }
        let mut interpreter = Self {
            pools: pools.into_iter().map(Arc::new).collect(),
            classes,
            nodes: snapshot.nodes,
            pods: snapshot.pods,
            reasons: Reasons::default(),
            workloads: snapshot.workloads,
            unlisted: snapshot.unlisted,
            other_nodes: snapshot.other_nodes,
            control_plane: snapshot.control_plane,
            watched: BTreeMap::new(),
            memory: Memory::new(Duration::from_mins(10)),
            policy: Arc::default(),
            published: None,
            now: snapshot.now,
            version,
            gone: Vec::new(),
        };
        interpreter.judge();
        interpreter
    }

    /// Runs until nothing is left to do but to wait for somebody else.
    pub fn run(&mut self) {
        let mut last_write = self.now.instant;
        for _ in 0..STEPS {
            let (mut wrote, mut dues) = (false, Vec::new());
            for pool in self.pools.iter().map(|pool| pool.name_any()).collect::<Vec<_>>() {
                match self.step(&pool) {
                    Step::Wait(until) => dues.extend(until),
                    _ => wrote = true,
                }
            }
            wrote |= self.write_nodes();
            self.judge();
            if wrote {
                last_write = self.now.instant;
                continue;
            }
            self.check();
            self.judge();
            dues.extend(self.memory.check_due(self.now.instant));
            dues.extend(self.watched.values().filter_map(Watched::label_settles));
            let Some(due) = dues.into_iter().filter(|due| *due > self.now.instant).min() else { return };
            if due.duration_since(last_write) > QUIET {
                return;
            }
            self.now.instant = due;
        }
    }

    fn judge(&mut self) {
        self.policy = Arc::new(self.memory.policy(&self.pools));
        for (name, node) in &self.nodes {
            let owner = self.policy.owner(&node.labels).map(|entry| entry.pool.as_ref());
            let watched = self.watched.entry(name.clone()).or_default();
            // What is looked at for the first time is in a list.
            let sighting = if *watched == Watched::default() { Sighting::Listed } else { Sighting::Changed };
            *watched = Watched::next(Some(watched), node, owner, sighting, self.now.instant);
        }
    }

    /// Does what the loop says for this pool.
    fn step(&mut self, pool: &str) -> Step {
        let classes: Vec<Arc<RuntimeClass>> = self.classes.values().cloned().collect();
        let (pools, mut memory) = (self.pools.clone(), std::mem::take(&mut self.memory));
        let step = self.with_cluster(&pools, &classes, |cluster, now| next(cluster, &mut memory, pool, now));
        self.memory = memory;
        let answer = self.execute(pool, &step);
        self.memory.answer(pool, &step, answer, self.now.instant);
        for (pool, note) in self.memory.take_notes() {
            self.explain(&pool, &note);
        }
        step
    }

    fn with_cluster<T>(
        &self,
        pools: &[Arc<GuardedPool>],
        classes: &[Arc<RuntimeClass>],
        work: impl FnOnce(&Cluster<'_>, Now) -> T,
    ) -> T {
        let none = Watched::default();
        let cluster = Cluster {
            pools,
            classes,
            tally: &|pool| self.tally(pool),
            nodes: &|show| {
                for (name, node) in self.nodes.iter().filter(|(_, node)| is_windows(node)) {
                    show(SeenNode { name, uid: name, node, watched: self.watched.get(name).unwrap_or(&none) });
                }
            },
            is_blocked: &|_, _| false,
            settled: true,
            control_plane: self.control_plane.clone(),
        };
        work(&cluster, self.now)
    }

    fn consent<'a>(&'a self, name: &'a str, none: &'a Watched) -> Consent<'a> {
        Consent::Known { uid: name, watched: self.watched.get(name).unwrap_or(none), now: self.now.instant }
    }

    fn tally(&self, pool: &str) -> Tally {
        let (mut tally, none) = (Tally::default(), Watched::default());
        for (name, node) in &self.nodes {
            let consent = self.consent(name, &none);
            let standing = assess(node, &self.policy, consent);
            let share = NodeShare::of(node, standing, &self.policy, consent, None, None);
            let key: Arc<str> = name.as_str().into();
            share.contributions.iter().filter(|added| added.pool == pool).for_each(|added| tally.add(&key, added));
            for (_, owner) in share.overlaps.iter().filter(|(other, _)| other == pool) {
                tally.overlaps(&key, owner);
            }
        }
        tally
    }

    fn execute(&mut self, pool: &str, step: &Step) -> Answer {
        match step {
            Step::Judge | Step::Wait(_) => Answer::Done,
            Step::ReadPool { .. } => {
                let found = self.pools.iter().find(|found| found.name_any() == pool);
                Answer::Pool(found.map(|found| Box::new(found.metadata.clone())))
            }
            Step::SetFinalizer(wanted) => {
                let wanted = *wanted;
                self.change_pool(pool, |pool| {
                    let finalizers = pool.metadata.finalizers.get_or_insert_default();
                    finalizers.retain(|finalizer| finalizer != names::CLEANUP);
                    finalizers.extend(wanted.then(|| names::CLEANUP.to_owned()));
                });
                if !wanted {
                    let goes = |pool: &Arc<GuardedPool>| pool.is_being_deleted() && pool.finalizers().is_empty();
                    let (gone, stay) = std::mem::take(&mut self.pools).into_iter().partition::<Vec<_>, _>(goes);
                    (self.pools, self.gone) =
                        (stay, gone.iter().map(|pool| pool.name_any()).chain(self.gone.drain(..)).collect());
                }
                Answer::Done
            }
            Step::FindUsers { classes, taints } => Answer::Users(match &self.pods {
                Ok(pods) => Ok(ClassUsers::count(pods, classes, taints)),
                Err(words) => Err(words.clone()),
            }),
            Step::Class(name, request) => self.request(pool, name, request),
            Step::ListMarkedNodes => {
                let marked = self.nodes.iter().filter(|(_, node)| {
                    node.labels.get(names::POOL) == Some(pool) && node.ignore.as_deref() != Some("true")
                });
                Answer::Nodes(marked.map(|(name, _)| name.clone()).collect())
            }
            Step::WriteStatus { status, .. } => {
                self.change_pool(pool, |pool| *pool = pool.with_status(status));
                Answer::Done
            }
            Step::Publish(policy) => {
                self.published = Some(Arc::clone(policy));
                Answer::Done
            }
        }
    }

    fn change_pool(&mut self, name: &str, change: impl FnOnce(&mut GuardedPool)) {
        self.version += 1;
        if let Some(pool) = self.pools.iter_mut().find(|pool| pool.name_any() == name) {
            let pool = Arc::make_mut(pool);
            change(pool);
            pool.metadata.resource_version = Some(self.version.to_string());
        }
    }

    fn request(&mut self, pool: &str, name: &str, request: &ClassRequest) -> Answer {
        let current = self.classes.get(name).cloned();
        let after = match (request, current) {
            (ClassRequest::Read | ClassRequest::TryCreate(_), current) => return Answer::Class(current),
            (ClassRequest::Create(_), Some(_)) => return Answer::Refused(Refusal::Conflict),
            (ClassRequest::Create(class), None) => {
                let mut class = RuntimeClass::clone(class);
                class.metadata.uid = Some(format!("{name}-{}", self.version));
                class
            }
            (ClassRequest::Patch { changes, .. }, Some(current)) => changes::apply(&current, changes),
            (ClassRequest::Delete(_), Some(_)) => {
                self.classes.remove(name);
                return Answer::Done;
            }
            (_, None) => return Answer::Refused(Refusal::Gone),
        };
        if let (Some((action, desired)), Some(pool)) = (self.memory.sent(pool, name), self.policy.pool(pool)) {
            self.reasons.class(action, desired, pool);
        }
        self.version += 1;
        let mut after = after;
        after.metadata.resource_version = Some(self.version.to_string());
        let after = Arc::new(after);
        self.classes.insert(name.to_owned(), Arc::clone(&after));
        Answer::Class(Some(after))
    }

    fn explain(&mut self, pool: &str, note: &Note) {
        let Some(pool) = self.policy.pool(pool) else { return };
        match note {
            Note::ClassDeleted(name) => self.reasons.class_retired(name, pool, "no pod uses it"),
            Note::Left(_, object, why) => {
                if let Some(name) = object.strip_prefix("RuntimeClass/") {
                    let why = why.rsplit_once("winpool's: ").map_or(why.as_str(), |(_, why)| why);
                    self.reasons.class_retired(name, pool, why);
                }
            }
            _ => {}
        }
    }

    /// Every node once, by the published policy. Tells whether any was written.
    fn write_nodes(&mut self) -> bool {
        let Some(policy) = self.published.clone() else { return false };
        let (mut wrote, none) = (false, Watched::default());
        for (name, node) in &mut self.nodes {
            let watched = self.watched.get(name).unwrap_or(&none);
            let consent = Consent::Known { uid: name, watched, now: self.now.instant };
            let standing = assess(node, &policy, consent);
            if !standing.plan.is_empty() {
                self.reasons.node(name, node, &standing, &policy);
                *node = node.after(&standing.plan);
                wrote = true;
            }
        }
        wrote
    }

    /// Carries out the check that is due, if any.
    fn check(&mut self) {
        let classes: Vec<Arc<RuntimeClass>> = self.classes.values().cloned().collect();
        let (pools, mut memory) = (self.pools.clone(), std::mem::take(&mut self.memory));
        let task = self.with_cluster(&pools, &classes, |cluster, now| memory.start_check(cluster, now));
        match task {
            Some(CheckTask::Everything(check)) => {
                let found = self.answer(*check);
                self.with_cluster(&pools, &classes, |cluster, now| memory.checked(cluster, Ok(found), now.instant));
            }
            // Nothing changes in memory.
            Some(CheckTask::Named { pool, .. }) => memory.asked(&pool, false),
            None => {}
        }
        self.memory = memory;
    }

    fn answer(&self, mut check: WorkloadCheck) -> BTreeMap<String, CheckAnswer> {
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
}

fn is_windows(node: &Node) -> bool {
    node.labels.get(names::OS) == Some(names::WINDOWS)
}
