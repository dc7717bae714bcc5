//! The operator of the model: one process while it leads, with stale caches and requests in flight. Like
//! `src/controllers/` it interprets the decisions of the core, and decides nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use json_patch::PatchOperation;
use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::api::TaintPolicy;
use winpool_core::node::{Applied, NodePlan};
use winpool_core::plan::Now;
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::nodes::{NodeAnswer, NodeEvent, NodeStep, NodeTable, OtherNodes};
use winpool_core::plan::pods::{ClusterFacts, PodHealth, UnknownPods, WindowsNodes};
use winpool_core::plan::pools::pool::{GuardedPool, Policy, Pool, PoolEntry, policy_of};
use winpool_core::plan::reconcile::{Answer, CachedCluster, Memory, Step, next};
use winpool_core::pod::Pod;

use super::cluster::{Classes, Kind, Node, Nodes, PoolObject, Pools, TODAY, Work};
use super::model::Break;
use super::shared::{Copies, Shared, fingerprint, share};

/// One process, while it leads.
#[derive(Clone, Debug)]
pub struct Operator {
    pub now: Instant,
    pub nodes: Nodes,
    pub pools: Pools,
    pub classes: Classes,
    pub pods: Pods,
    /// What it remembers, and its tables of nodes.
    pub process: winpool_simulation::Operator,
    /// The request in flight for a pool, and the pool when it was sent.
    pub requests: BTreeMap<&'static str, (Step, PoolObject)>,
    /// The request in flight for a node; true if it is for a Windows node.
    pub node_requests: BTreeMap<&'static str, (bool, NodePatch)>,
    /// The `DaemonSets` by which the published pools were decided.
    decided_by: BTreeMap<&'static str, Pods>,
    /// The times at which the pools are due again.
    pub wake: Option<Instant>,
    pub broken: Break,
}

pub type Process = Shared<Operator>;

/// A patch in flight for a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePatch {
    pub operations: Vec<PatchOperation>,
    /// The `DaemonSets` by which it was decided, if it adds a taint.
    pub known: Pods,
    /// The version of the node that it was computed from.
    pub from: Box<str>,
}

/// The pause after a refusal, and the time that a deletion waits without progress.
const PATIENCE: Duration = Duration::from_mins(10);

/// The pods and `DaemonSets`, as the watches last showed them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pods {
    /// The first lists are not complete.
    Unlisted,
    /// The watch is forbidden.
    Denied,
    Seen(Vec<Work>),
}

impl Operator {
    /// A process that begins to lead with these caches.
    pub fn begin(nodes: Nodes, pools: Pools, classes: Classes, broken: Break, patience: Option<Duration>) -> Self {
        static START: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_hours(1));
        let mut process = Self {
            now: *START,
            nodes: BTreeMap::new(),
            pools,
            classes,
            pods: Pods::Seen(Vec::new()),
            process: winpool_simulation::Operator::new(patience.unwrap_or(PATIENCE)),
            requests: BTreeMap::new(),
            node_requests: BTreeMap::new(),
            decided_by: BTreeMap::new(),
            wake: None,
            broken,
        };
        process.list_nodes(nodes);
        process
    }

    /// The shared copy of this state. Times that no rule looks back to are left out.
    pub fn share(self, processes: &Copies<u128, Self>) -> Process {
        let key = fingerprint(&self, self.now);
        share(processes, key, |_| self)
    }

    fn guarded(&self) -> Vec<Arc<GuardedPool>> {
        self.pools.values().map(|pool| Arc::clone(&pool.guarded)).collect()
    }

    /// A list of all nodes: earlier changes are unknown.
    pub fn list_nodes(&mut self, nodes: Nodes) {
        self.process.count(&self.guarded(), self.now);
        let is_shown = |node: &&Node| node.is_windows() || self.broken != Break::NoReimaged;
        let shown: Vec<_> = nodes.values().filter(is_shown).map(|node| Arc::clone(&node.seen)).collect();
        self.process.list(shown, self.now);
        self.nodes = nodes;
    }

    /// The next event of the watch of nodes. Windows nodes are watched by their label.
    pub fn watch_nodes(&mut self, nodes: Nodes) {
        self.process.count(&self.guarded(), self.now);
        let before = std::mem::replace(&mut self.nodes, nodes);
        for name in before.keys().filter(|name| !self.nodes.contains_key(*name)) {
            self.process.lose(name, self.now);
        }
        for (name, node) in self.nodes.iter().filter(|(name, node)| before.get(*name) != Some(node)) {
            if node.is_windows() || self.broken != Break::NoReimaged {
                self.process.see(Arc::clone(&node.seen), self.now);
            } else {
                self.process.lose(name, self.now);
            }
        }
    }

    fn with_cluster<T>(&mut self, work: impl FnOnce(&mut CachedCluster<'_>, &mut Memory, Now) -> T) -> T {
        let pools = self.guarded();
        let classes: Vec<Arc<RuntimeClass>> = self.classes.values().map(|class| Arc::clone(class)).collect();
        let now = Now { instant: self.now, time: TODAY };
        let works = if let Pods::Seen(works) = &self.pods { works.as_slice() } else { &[] };
        let mut table = crate::common::table_of(std::iter::empty::<Pod>(), now);
        table.daemon_sets.begin_list();
        works.iter().filter_map(Work::daemon_set).for_each(|set| table.daemon_sets.see(&set, self.now));
        table.daemon_sets.end_list(self.now);
        // In the model a DaemonSet that is gone holds nothing, even if the status still names it.
        table.look(Some(WindowsNodes::default()), self.now);
        table.begin_list();
        works.iter().flat_map(Work::pods).for_each(|pod| table.see(&pod, now));
        table.end_list();
        // Without DaemonSets the nodes decide nothing.
        let none = NodeTable::default();
        let nodes = if works.is_empty() { &none } else { &self.process.windows };
        let facts = ClusterFacts { nodes, policy: &policy_of(&pools), classes: &classes };
        table.look(Some(WindowsNodes::of(&facts, OtherNodes::default(), &none)), self.now);
        let pods = match &self.pods {
            Pods::Unlisted if self.broken != Break::TrustsUnlistedPods => Err(UnknownPods::NotListed),
            Pods::Denied => Err(UnknownPods::Denied("pods is forbidden".to_owned())),
            Pods::Seen(_) | Pods::Unlisted => Ok(&table),
        };
        let mut cluster = CachedCluster {
            pools: &pools,
            classes: &classes,
            nodes: &mut self.process.windows,
            unconfined: None,
            outages: BTreeMap::new(),
            pods,
            unknown_daemon_sets: None,
            health: PodHealth::Off,
        };
        work(&mut cluster, &mut self.process.memory, now)
    }

    /// Advances all pools until they wait for an answer.
    pub fn advance(&mut self) {
        self.wake = None;
        let gone = self.with_cluster(|cluster, memory, now| memory.drop_gone(cluster, now.instant));
        self.follow(gone);
        self.decided_by.retain(|name, _| self.pools.contains_key(name));
        for name in self.pools.keys().copied().collect::<Vec<_>>() {
            while !self.requests.contains_key(name) {
                let step = self.with_cluster(|cluster, memory, now| next(cluster, memory, name, now));
                if matches!(step, Step::Wait(_) | Step::Publish(_)) {
                    self.decided_by.insert(name, self.daemon_sets(name));
                }
                match step {
                    Step::Wait(until) => {
                        self.wake = self.wake.into_iter().chain(until).min();
                        break;
                    }
                    Step::Publish(_) => self.follow(Some(step)),
                    step => {
                        self.requests.insert(name, (step, self.pools[name].clone()));
                    }
                }
            }
        }
        if self.broken == Break::EvidenceAfterwards {
            self.publish(&Arc::new(self.process.memory.policy(&self.guarded())));
        }
        self.process.memory.take_notes();
    }

    fn publish(&mut self, policy: &Arc<Policy>) {
        if self.process.published.as_ref() != Some(policy) {
            self.process.publish(policy, self.now);
        }
    }

    fn follow(&mut self, step: Option<Step>) {
        let Some(Step::Publish(policy)) = step else { return };
        self.publish(&self.broken_policy(&policy).map_or(policy, Arc::new));
    }

    /// The policy if a safeguard is left out.
    fn broken_policy(&self, policy: &Policy) -> Option<Policy> {
        let change: &dyn Fn(&mut Pool) = match self.broken {
            Break::NoLag => &|pool| {
                Arc::make_mut(&mut pool.consent).lagging.clear();
                Arc::make_mut(&mut pool.spec).discover = false;
            },
            Break::AgesIgnored => &|pool| Arc::make_mut(&mut pool.consent).since.clear(),
            Break::ObjectorsIgnored => &|pool| Arc::make_mut(&mut pool.consent).objectors = Arc::default(),
            _ => return None,
        };
        Some(changed(policy, change))
    }

    /// The node controller reconciles a node.
    pub fn plan_node(&mut self, name: &'static str) {
        if self.node_requests.contains_key(name) {
            return;
        }
        let (now, is_windows) = (self.now, self.nodes.get(name).is_some_and(|node| node.is_windows()));
        if let Some(policy) = self.with_claims(name) {
            self.process.table(is_windows).write_by(Some(Arc::new(policy)), now);
        }
        let step = self.process.table(is_windows).next(name, now);
        self.take_node_step(name, is_windows, step);
    }

    /// A request for a node ended.
    pub fn node_answered(&mut self, name: &'static str, answer: NodeAnswer) {
        if let Some((is_windows, _)) = self.node_requests.remove(name) {
            self.take_node_answer(name, is_windows, answer);
        }
    }

    fn take_node_answer(&mut self, name: &'static str, is_windows: bool, answer: NodeAnswer) {
        let (now, is_written) = (self.now, matches!(answer, NodeAnswer::Written(_)));
        let is_denied = matches!(answer, NodeAnswer::Refused(RequestError::Denied(_)));
        let answer = match answer {
            NodeAnswer::Written(_) if self.broken == Break::TrustsAnswers => NodeAnswer::Written(None),
            answer => answer,
        };
        let step = self.process.table(is_windows).answer(name, answer, now);
        let step =
            if self.broken == Break::NoParts && is_denied { self.deny_parts(name, is_windows, step) } else { step };
        let forgets = match self.broken {
            Break::ForgetsRefusals => is_denied && matches!(step, NodeStep::Wait(_)),
            Break::ForgetsWrites => is_written && matches!(step, NodeStep::Wait(_)),
            _ => false,
        };
        if forgets {
            // As if the node were a new one.
            let object = Arc::clone(&self.nodes[name].seen);
            self.process.table(is_windows).observe(NodeEvent::Deleted(name.into()), now);
            self.process.table(is_windows).observe(NodeEvent::Seen(object), now);
        }
        self.take_node_step(name, is_windows, step);
    }

    /// Refuses the parts of a refused plan without sending them.
    fn deny_parts(&mut self, name: &'static str, is_windows: bool, mut step: NodeStep) -> NodeStep {
        let now = self.now;
        while matches!(step, NodeStep::Patch { .. }) {
            step = self.process.table(is_windows).answer(
                name,
                NodeAnswer::Refused(RequestError::Denied("a policy".to_owned())),
                now,
            );
        }
        step
    }

    fn take_node_step(&mut self, name: &'static str, is_windows: bool, step: NodeStep) {
        match step {
            NodeStep::Wait(_) => {}
            NodeStep::Patch { patch, plan } => {
                let known = self.known(name, &plan);
                let from = self.nodes.get(name).map(|node| node.seen.resource_version.clone()).unwrap_or_default();
                let tests = |operation: &PatchOperation| matches!(operation, PatchOperation::Test(_));
                let is_sent = |operation: &PatchOperation| self.broken != Break::NoGuard || !tests(operation);
                let operations = patch.0.into_iter().filter(is_sent).collect();
                let request = NodePatch { operations, known, from };
                self.node_requests.insert(name, (is_windows, request));
                if self.broken == Break::BlindDeletion {
                    // The operator does not know that the request is in flight.
                    let now = self.now;
                    self.process.table(is_windows).answer(name, NodeAnswer::Refused(RequestError::Gone), now);
                }
            }
        }
    }

    /// The `DaemonSets` that the process knows and that may object to taints of the pool.
    fn daemon_sets(&self, pool: &str) -> Pods {
        let pool = self.pools[pool].pool.as_ref();
        let asks = pool.is_some_and(|pool| pool.spec.taint_policy != TaintPolicy::TaintOnly);
        match &self.pods {
            Pods::Seen(works) if asks => {
                Pods::Seen(works.iter().filter(|work| work.kind != Kind::Other).cloned().collect())
            }
            unknown if asks => unknown.clone(),
            _ => Pods::Seen(Vec::new()),
        }
    }

    /// The `DaemonSets` by which this plan was decided, if it adds a taint.
    fn known(&self, name: &str, plan: &NodePlan) -> Pods {
        let labels = self.nodes.get(name).map(|node| &node.seen.node.labels);
        let owner = self.process.published.as_ref().zip(labels).and_then(|(policy, labels)| policy.owner(labels));
        let adds = plan.taints.as_ref().is_some_and(|change| !change.added.is_empty());
        let known = owner.filter(|_| adds).and_then(|owner| self.decided_by.get(owner.pool.spec.name.as_str()));
        known.cloned().unwrap_or_else(|| Pods::Seen(Vec::new()))
    }

    /// Without evidence, every taint that a node claims may be removed.
    fn with_claims(&self, name: &str) -> Option<Policy> {
        let node = self.nodes.get(name).filter(|_| self.broken == Break::NoEvidence)?;
        let claims = node.seen.node.applied.as_deref().and_then(Applied::parse)?;
        Some(changed(self.process.published.as_ref()?, &|pool| {
            pool.managed_taints.extend(claims.taints.iter().filter_map(|text| text.parse().ok()));
        }))
    }

    pub fn answer(&mut self, pool: &'static str, answer: Answer) {
        let Some((step, _)) = self.requests.remove(pool) else { return };
        self.process.memory.answer(pool, &step, answer, self.now);
    }
}

fn changed(policy: &Policy, change: &dyn Fn(&mut Pool)) -> Policy {
    let entries = policy.entries().iter().map(|entry| {
        let mut pool = Pool::clone(&entry.pool);
        change(&mut pool);
        PoolEntry { pool: Arc::new(pool), ready: entry.ready }
    });
    Policy::new(entries, [].into())
}
