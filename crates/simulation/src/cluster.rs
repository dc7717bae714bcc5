//! A cluster whose API server executes what the operator asks for. Its clock advances only when somebody sets it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;
use thiserror::Error;
use winpool_core::api::{WindowsPoolStatus, names};
use winpool_core::node::{NodeFields, NodeObject, NodePlan};
use winpool_core::plan::Now;
use winpool_core::plan::attempt::{Outage, RequestError};
use winpool_core::plan::nodes::{NodeAnswer, NodeStep, NodeTable, OtherNodes};
use winpool_core::plan::patch::finalizers;
use winpool_core::plan::pods::{ClusterFacts, PodHealth, PodTable, UnknownPods, WindowsNodes};
use winpool_core::plan::pools::pool::{GuardedPool, policy_of};
use winpool_core::plan::reconcile::{Answer, CachedCluster, ClassRequest, Memory, Step, next};

use crate::operator::Operator;
use crate::request;

/// The time before the operator retries a refused request, and the time that a deletion waits without progress.
const PATIENCE: Duration = Duration::from_mins(10);

/// The objects of a cluster, and the operator, whose watches show them at once.
#[derive(Debug)]
pub struct Cluster {
    pub pools: Vec<Arc<GuardedPool>>,
    /// The nodes by name. The name is also the uid.
    pub nodes: BTreeMap<String, NodeFields>,
    /// The RuntimeClasses by name.
    pub classes: BTreeMap<String, Arc<RuntimeClass>>,
    pub operator: Operator,
    /// The operator's table of pods and `DaemonSets`. The caller fills it.
    pub pods: PodTable,
    /// The reason why the operator does not know the pods, if it does not.
    pub unknown_pods: Option<UnknownPods>,
    /// The reason why the operator does not know the `DaemonSets`, if it does not.
    pub unknown_daemon_sets: Option<UnknownPods>,
    /// The kinds that the operator cannot read.
    pub outages: BTreeMap<&'static str, Outage>,
    /// What the operator has counted of the pods.
    pub health: PodHealth,
    pub now: Now,
    version: u64,
    /// True if nodes, pools or classes have changed since the operator looked at the pods.
    has_news: bool,
    /// The nodes whose next step is due, and the others that wait for a time.
    due: BTreeSet<Arc<str>>,
    waits: BTreeMap<Arc<str>, Instant>,
    /// The patch that follows the answer to another one.
    following: Option<(Arc<str>, NodePlan)>,
}

/// The operator still wrote when the limit was reached. It should not do so for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("winpool still had something to do after {0} rounds; please report this as a bug of winpool")]
pub struct Unfinished(usize);

impl Cluster {
    /// Returns a cluster of these nodes, with an operator that begins.
    pub fn new(nodes: BTreeMap<String, NodeFields>, now: Now) -> Self {
        let mut cluster = Self {
            pools: Vec::new(),
            nodes,
            classes: BTreeMap::new(),
            operator: Operator::new(PATIENCE),
            pods: PodTable::default(),
            unknown_pods: None,
            unknown_daemon_sets: None,
            outages: BTreeMap::new(),
            health: PodHealth::Off,
            now,
            version: 0,
            has_news: true,
            due: BTreeSet::new(),
            waits: BTreeMap::new(),
            following: None,
        };
        cluster.restart();
        cluster
    }

    /// Another process of the operator begins, without memory.
    pub fn restart(&mut self) {
        (self.operator, self.pods) = (Operator::new(PATIENCE), PodTable::default());
        (self.due, self.waits, self.following, self.has_news) = (BTreeSet::new(), BTreeMap::new(), None, true);
        self.operator.count(&self.pools, self.now.instant);
        let nodes: Vec<_> = self.nodes.keys().cloned().collect();
        let nodes: Vec<_> = nodes.iter().filter_map(|name| self.object(name)).collect();
        self.due.extend(self.operator.list(nodes, self.now.instant));
    }

    /// A new version of an object: something has changed.
    fn next_version(&mut self) -> String {
        (self.version, self.has_news) = (self.version + 1, true);
        self.version.to_string()
    }

    pub fn pool(&self, name: &str) -> Option<&Arc<GuardedPool>> {
        self.pools.iter().find(|pool| pool.name_any() == name)
    }

    /// Adds a pool, whose uid is its name if it has none, or replaces the one with its name.
    pub fn put_pool(&mut self, pool: &GuardedPool) {
        let (name, mut pool) = (pool.name_any(), pool.clone());
        pool.metadata.uid.get_or_insert_with(|| name.clone());
        pool.metadata.resource_version = Some(self.next_version());
        let pool = Arc::new(request::changed_pool(&pool, |_| {}));
        match self.pools.iter_mut().find(|pool| pool.name_any() == name) {
            Some(found) => *found = pool,
            None => self.pools.push(pool),
        }
    }

    /// Adds or replaces a class, whose uid is its name if it has none.
    pub fn put_class(&mut self, mut class: RuntimeClass) -> Arc<RuntimeClass> {
        let name = class.name_any();
        class.metadata.uid.get_or_insert_with(|| name.clone());
        class.metadata.resource_version = Some(self.next_version());
        let class = Arc::new(class);
        self.classes.insert(name, Arc::clone(&class));
        class
    }

    fn object(&mut self, name: &str) -> Option<Arc<NodeObject>> {
        let resource_version = self.next_version().into();
        let node = self.nodes.get(name)?.clone();
        Some(Arc::new(NodeObject { name: name.into(), uid: name.into(), resource_version, node, other_writer: None }))
    }

    /// Shows the nodes that have changed to the operator, as its watches do.
    pub fn watch(&mut self) {
        let now = self.now.instant;
        self.operator.count(&self.pools, now);
        let Operator { windows, reimaged, .. } = &self.operator;
        let gone = windows.objects().chain(reimaged.objects()).filter(|shown| !self.nodes.contains_key(&*shown.name));
        let gone: Vec<_> = gone.map(|shown| Arc::clone(&shown.name)).collect();
        let shown = |name: &str| windows.object(name).or_else(|| reimaged.object(name));
        let is_news = |(name, node): &(&String, &NodeFields)| shown(name).is_none_or(|shown| shown.node != **node);
        let news: Vec<_> = self.nodes.iter().filter(is_news).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.operator.lose(&name, now);
            self.has_news = true;
        }
        for name in news {
            if let Some(object) = self.object(&name) {
                self.due.extend(self.operator.see(object, now));
            }
        }
    }

    /// What decides which pods lack tolerations.
    pub fn windows_nodes(&self) -> WindowsNodes {
        let mut others = OtherNodes::default();
        for (name, node) in self.nodes.iter().filter(|(name, _)| self.operator.windows.object(name).is_none()) {
            others.see(name.as_str().into(), &node.labels);
        }
        let Operator { windows, reimaged, .. } = &self.operator;
        let facts = ClusterFacts { nodes: windows, policy: &policy_of(&self.pools), classes: &self.all_classes() };
        WindowsNodes::of(&facts, others, reimaged)
    }

    fn all_classes(&self) -> Vec<Arc<RuntimeClass>> {
        self.classes.values().cloned().collect()
    }

    /// Lets the operator look at the pods. It looks again at all of them if something has changed.
    pub fn look(&mut self) {
        let changed = std::mem::take(&mut self.has_news).then(|| self.windows_nodes());
        self.pods.look(changed, self.now.instant);
    }

    /// Shows the cluster and the present moment to the operator.
    pub fn with_cluster<T>(&mut self, work: impl FnOnce(&mut CachedCluster<'_>, &mut Memory, Now) -> T) -> T {
        let (classes, Operator { memory, windows, .. }) = (self.all_classes(), &mut self.operator);
        let mut cluster = CachedCluster {
            pools: &self.pools,
            classes: &classes,
            nodes: windows,
            unconfined: None,
            outages: self.outages.clone(),
            pods: self.unknown_pods.clone().map_or(Ok(&self.pods), Err),
            unknown_daemon_sets: self.unknown_daemon_sets.clone(),
            health: self.health.clone(),
        };
        work(&mut cluster, memory, self.now)
    }

    /// The operator's next step of this pool.
    pub fn next(&mut self, pool: &str) -> Step {
        self.with_cluster(|cluster, memory, now| next(cluster, memory, pool, now))
    }

    /// The answer to a step of this pool arrives.
    pub fn answer(&mut self, pool: &str, step: &Step, answer: Answer) {
        self.operator.memory.answer(pool, step, answer, self.now.instant);
    }

    /// Executes a step of this pool as the API server does.
    pub fn execute(&mut self, pool: &str, step: &Step) -> Answer {
        match step {
            Step::Wait(_) => Answer::Done,
            Step::Publish(policy) => {
                self.due.extend(self.operator.publish(policy, self.now.instant));
                Answer::Done
            }
            Step::ReadPool { .. } => Answer::Pool(self.pool(pool).map(|found| Box::new(found.metadata.clone()))),
            Step::SetFinalizer(wanted) => self.change_pool(pool, |pool| {
                pool.metadata.finalizers = Some(finalizers(&pool.metadata, *wanted));
            }),
            Step::Class(class) => self.execute_class(&class.name, &class.request),
            Step::ListLabelledNodes => {
                let is_labelled = |node: &NodeFields| node.labels.get(names::POOL) == Some(pool) && !node.is_ignored();
                let labelled = self.nodes.iter().filter(|(_, node)| is_labelled(node));
                Answer::Nodes(labelled.map(|(name, _)| name.clone()).collect())
            }
            Step::WriteStatus { status, .. } => {
                self.change_pool(pool, |pool| pool.status = Some(WindowsPoolStatus::clone(status)))
            }
        }
    }

    fn change_pool(&mut self, name: &str, change: impl FnOnce(&mut GuardedPool)) -> Answer {
        let Some(pool) = self.pool(name) else { return Answer::Refused(RequestError::Gone) };
        let mut changed = GuardedPool::clone(pool);
        change(&mut changed);
        self.put_pool(&changed);
        let answer = self.pool(name).map(|pool| Answer::Written(Box::new(GuardedPool::clone(pool))));
        self.pools.retain(|pool| pool.metadata.deletion_timestamp.is_none() || !pool.finalizers().is_empty());
        answer.unwrap_or(Answer::Done)
    }

    fn execute_class(&mut self, name: &str, request: &ClassRequest) -> Answer {
        let uid = format!("{name}-{}", self.version);
        match request::class(request, self.classes.get(name).map(AsRef::as_ref), uid) {
            Err(refusal) => Answer::Refused(refusal),
            Ok(Some(class)) => Answer::Class(Some(self.put_class(class))),
            Ok(None) => {
                self.classes.remove(name);
                self.has_news = true;
                Answer::Done
            }
        }
    }

    /// The next patch that the operator sends for a node now. Its answer belongs to [`Self::answer_node`].
    pub fn next_patch(&mut self) -> Option<(Arc<str>, NodePlan)> {
        let now = self.now.instant;
        let over = self.waits.iter().filter(|(_, until)| **until <= now).map(|(name, _)| Arc::clone(name));
        self.due.extend(over.collect::<Vec<_>>());
        self.following.take().or_else(|| {
            while let Some(name) = self.due.pop_first() {
                let step = self.table_of(&name).next(&name, now);
                if let Some(patch) = self.follow(name, step) {
                    return Some(patch);
                }
            }
            None
        })
    }

    fn follow(&mut self, name: Arc<str>, step: NodeStep) -> Option<(Arc<str>, NodePlan)> {
        self.waits.remove(&name);
        match step {
            NodeStep::Patch { plan, .. } => Some((name, *plan)),
            NodeStep::Wait(until) => {
                self.waits.extend(until.map(|until| (name, until)));
                None
            }
        }
    }

    /// The answer to a patch of a node arrives.
    pub fn answer_node(&mut self, name: &Arc<str>, answer: NodeAnswer) {
        let now = self.now.instant;
        let step = self.table_of(name).answer(name, answer, now);
        self.following = self.follow(Arc::clone(name), step);
    }

    /// Executes a patch of a node as the API server does.
    pub fn execute_node(&mut self, name: &str, plan: &NodePlan) -> NodeAnswer {
        match self.nodes.get_mut(name) {
            Some(node) => *node = request::node(node, plan),
            None => return NodeAnswer::Refused(RequestError::Gone),
        }
        NodeAnswer::Written(None)
    }

    fn table_of(&mut self, name: &str) -> &mut NodeTable {
        let is_windows = self.nodes.get(name).is_some_and(NodeFields::is_windows);
        self.operator.table(is_windows)
    }

    /// Runs until the operator has nothing to do except wait for other writers.
    ///
    /// # Errors
    /// Fails if it does not end.
    pub fn run(&mut self) -> Result<(), Unfinished> {
        /// The operator has finished if it writes nothing for this long.
        const QUIET: Duration = Duration::from_secs(45);
        /// The limit for a loop that never finishes.
        const ROUNDS: usize = 20_000;
        let mut last_write = self.now.instant;
        for _ in 0..ROUNDS {
            self.look();
            let (mut wrote, mut dues) = (false, Vec::new());
            for pool in self.pools.iter().map(|pool| pool.name_any()).collect::<Vec<_>>() {
                let step = self.next(&pool);
                let answer = self.execute(&pool, &step);
                self.answer(&pool, &step, answer);
                match step {
                    Step::Wait(until) => dues.extend(until),
                    _ => wrote = true,
                }
            }
            while let Some((name, plan)) = self.next_patch() {
                let answer = self.execute_node(&name, &plan);
                self.answer_node(&name, answer);
                wrote = true;
            }
            if wrote {
                last_write = self.now.instant;
                self.watch();
                continue;
            }
            let dues = dues.into_iter().chain(self.waits.values().copied());
            let is_soon = |due: &Instant| due.duration_since(last_write) <= QUIET;
            let Some(due) = dues.filter(|due| *due > self.now.instant).min().filter(is_soon) else { return Ok(()) };
            self.now.instant = due;
        }
        Err(Unfinished(ROUNDS))
    }
}
