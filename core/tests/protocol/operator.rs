//! The operator of the model: one process while it leads, with stale caches and requests in flight. Like
//! `src/controllers/` it interprets the decisions of the core, and decides nothing.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, LazyLock, Mutex},
    time::{Duration, Instant},
};

use json_patch::PatchOperation;
use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::{
    api::Taint,
    plan::{
        Applied, Assessment, CheckAnswer, Consent, GuardedPool, NodePlan, NodeShare, Policy, Pool, PoolEntry, Sighting,
        Tally, Watched, WorkloadCheck, assess, node_patch,
        reconcile::{Answer, CheckTask, Cluster, ControlPlaneInfo, Memory, Now, Pauses, SeenNode, Step, next},
    },
};

use super::{
    cluster::{Classes, Node, Nodes, PoolObject, Pools, TODAY, Work},
    model::Break,
    shared::{Copies, Shared, fingerprint, share},
};

/// One process, while it leads.
#[derive(Clone, Debug)]
pub struct Operator {
    pub now: Instant,
    pub nodes: Nodes,
    pub pools: Pools,
    pub classes: Classes,
    memory: Memory,
    watched: BTreeMap<&'static str, Watched>,
    /// Node patches that admission refused, and the time of the next attempt.
    refused: BTreeMap<&'static str, (NodePlan, Instant)>,
    /// The policy for writing nodes.
    pub published: Option<Arc<Policy>>,
    /// The request in flight for a pool, and the pool when it was sent.
    pub requests: BTreeMap<&'static str, (Step, PoolObject)>,
    pub patches: BTreeMap<&'static str, NodePatch>,
    pub check: Option<Check>,
    /// The times at which the pools are due again.
    pub wake: Option<Instant>,
    pub broken: Break,
    /// Used only if consent is broken: pools with a taint that was approved once, and the results of the first check.
    approved_once: BTreeSet<String>,
    first_check: Option<BTreeMap<String, CheckAnswer>>,
}

pub type Process = Shared<Operator>;

/// A node patch in flight, and the state that it was computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePatch {
    pub seen: Node,
    pub plan: NodePlan,
    by: Arc<Policy>,
    pub patch: Vec<PatchOperation>,
    /// True if a workload check allows the taints that it adds.
    pub is_checked: bool,
}

/// A workload check in progress.
#[derive(Clone)]
pub enum Check {
    Started(CheckTask),
    Listed(Result<BTreeMap<String, CheckAnswer>, String>),
    Asked(String, bool),
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started(CheckTask::Everything(check)) => write!(f, "{:?}", check.scope()),
            Self::Started(CheckTask::Named { pool, check, workloads }) => {
                write!(f, "{pool} {:?} {workloads:?}", check.scope())
            }
            Self::Listed(result) => write!(f, "{result:?}"),
            Self::Asked(pool, are_settled) => write!(f, "{pool} {are_settled}"),
        }
    }
}

/// The pause after a refusal, and the time that a deletion waits without progress.
const PATIENCE: Duration = Duration::from_mins(10);

impl Operator {
    /// A process that begins to lead with these caches.
    pub fn begin(nodes: Nodes, pools: Pools, classes: Classes, broken: Break, patience: Option<Duration>) -> Self {
        static START: LazyLock<Instant> = LazyLock::new(|| Instant::now() + Duration::from_hours(1));
        let mut process = Self {
            now: *START,
            nodes: BTreeMap::new(),
            pools,
            classes,
            memory: Memory::new(patience.unwrap_or(PATIENCE), Pauses::default()),
            watched: BTreeMap::new(),
            refused: BTreeMap::new(),
            published: None,
            requests: BTreeMap::new(),
            patches: BTreeMap::new(),
            check: None,
            wake: None,
            broken,
            approved_once: BTreeSet::new(),
            first_check: None,
        };
        process.list_nodes(nodes);
        process
    }

    /// The shared copy of this state. Times that no rule looks back to are left out.
    pub fn share(self) -> Process {
        static PROCESSES: Copies<u128, Operator> = LazyLock::new(Mutex::default);
        let key = fingerprint(&self, self.now);
        share(&PROCESSES, key, |_| self)
    }

    fn guarded(&self) -> Vec<Arc<GuardedPool>> {
        self.pools.values().map(|pool| Arc::clone(&pool.guarded)).collect()
    }

    /// A list of all nodes: earlier changes are unknown.
    pub fn list_nodes(&mut self, nodes: Nodes) {
        let trusts = self.broken == Break::TrustsGaps && !self.watched.is_empty();
        self.nodes = nodes;
        self.see_all_nodes(if trusts { Sighting::Changed } else { Sighting::Listed });
    }

    /// The next event of the watch of nodes.
    pub fn watch_nodes(&mut self, nodes: Nodes) {
        let (before, policy) = (std::mem::replace(&mut self.nodes, nodes), self.memory.policy(&self.guarded()));
        for (name, node) in self.nodes.clone() {
            let is_new = before.get(name).is_none_or(|old| old.uid != node.uid);
            if is_new {
                self.watched.remove(name);
            }
            if before.get(name) != Some(&node) {
                self.see_node(name, if is_new { Sighting::Registered } else { Sighting::Changed }, &policy);
            }
        }
    }

    /// Counts all nodes again. Returns the policy by which they are counted.
    fn see_all_nodes(&mut self, sighting: Sighting) -> Policy {
        let policy = self.memory.policy(&self.guarded());
        for name in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.see_node(name, sighting, &policy);
        }
        policy
    }

    /// Windows nodes are watched by their label.
    fn see_node(&mut self, name: &'static str, sighting: Sighting, policy: &Policy) {
        let before = self.watched.remove(name);
        let Some(node) = self.nodes.get(name).filter(|node| node.is_windows()) else { return };
        let owner = policy.owner(&node.seen.labels).map(|owner| owner.pool.as_ref());
        self.watched.insert(name, Watched::next(before.as_ref(), &node.seen, owner, sighting, self.now));
    }

    fn consent<'a>(&self, node: &'a Node, watched: &'a Watched, policy: &Policy) -> Consent<'a> {
        let owner = policy.owner(&node.seen.labels).map(|owner| &owner.pool);
        let once = |pool: &&Arc<Pool>| self.approved_once.contains(&pool.name);
        if self.broken == Break::PoolConsents && owner.as_ref().is_some_and(once) {
            return Consent::Given;
        }
        Consent::Known { uid: &node.uid, watched, now: self.now }
    }

    fn with_cluster<T>(&mut self, work: impl FnOnce(&Cluster<'_>, &mut Memory, Now) -> T) -> T {
        let mut memory = std::mem::take(&mut self.memory);
        let (pools, none) = (self.guarded(), Watched::default());
        let (policy, shares) = (memory.policy(&pools), OnceCell::new());
        let classes: Vec<Arc<RuntimeClass>> = self.classes.values().map(|class| Arc::clone(class)).collect();
        let result = work(
            &Cluster {
                pools: &pools,
                classes: &classes,
                tally: &|pool| Tally::of(pool, shares.get_or_init(|| self.shares(&policy))),
                nodes: &|show| {
                    for (name, node) in self.nodes.iter().filter(|(_, node)| node.is_windows()) {
                        let watched = self.watched.get(name).unwrap_or(&none);
                        show(SeenNode { name, uid: &node.uid, node: &node.seen, watched });
                    }
                },
                is_blocked: &|name, assessment| self.is_refused(name, &assessment.plan),
                settled: self.broken == Break::BlindDeletion || self.is_settled(),
                control_plane: ControlPlaneInfo::default(),
            },
            &mut memory,
            Now { instant: self.now, time: TODAY },
        );
        self.memory = memory;
        result
    }

    /// The contributions of each node to the pools.
    fn shares(&self, policy: &Policy) -> Vec<(Arc<str>, NodeShare)> {
        let share = |(name, watched): (&&'static str, &Watched)| {
            let node = &self.nodes[name];
            let consent = self.consent(node, watched, policy);
            let assessment = assess(&node.seen, policy, consent);
            let refusal = self.refused.get(name).filter(|(plan, _)| *plan == assessment.plan);
            let refusal = refusal.map(|_| Arc::from("refused"));
            (Arc::from(*name), NodeShare::of(&node.seen, assessment, policy, consent, refusal, None))
        };
        self.watched.iter().map(share).collect()
    }

    fn is_refused(&self, node: &str, plan: &NodePlan) -> bool {
        self.refused.get(node).is_some_and(|(refused, until)| refused == plan && self.now < *until)
    }

    /// True if no node patch by a former policy is in flight.
    fn is_settled(&self) -> bool {
        self.patches.values().all(|patch| Some(&patch.by) == self.published.as_ref())
    }

    /// Advances all pools until they wait for an answer, and starts the check that is due.
    pub fn advance(&mut self) {
        self.wake = None;
        let gone = self.with_cluster(|cluster, memory, _| memory.drop_gone(cluster));
        self.follow(gone);
        let mut counted_by = self.see_all_nodes(Sighting::Changed);
        for name in self.pools.keys().copied().collect::<Vec<_>>() {
            while !self.requests.contains_key(name) {
                let step = self.with_cluster(|cluster, memory, now| next(cluster, memory, name, now));
                // Else the operator would not count its nodes again.
                assert!(step == Step::Judge || self.memory.policy(&self.guarded()) == counted_by, "{step:?}");
                match step {
                    Step::Judge => counted_by = self.see_all_nodes(Sighting::Changed),
                    Step::Wait(until) => {
                        self.wake = self.wake.into_iter().chain(until).min();
                        break;
                    }
                    step @ Step::Publish(_) => self.follow(Some(step)),
                    step => {
                        self.requests.insert(name, (step, self.pools[name].clone()));
                    }
                }
            }
        }
        if self.broken == Break::EvidenceAfterwards {
            self.published = Some(Arc::new(self.memory.policy(&self.guarded())));
        }
        if self.check.is_none() {
            self.check = self.with_cluster(|cluster, memory, now| memory.start_check(cluster, now)).map(Check::Started);
        }
        self.wake = self.wake.into_iter().chain(self.memory.check_due(self.now)).min();
        self.memory.take_notes();
    }

    fn follow(&mut self, step: Option<Step>) {
        let Some(Step::Publish(policy)) = step else { return };
        for entry in policy.entries().iter().filter(|_| self.broken == Break::PoolConsents) {
            if !entry.pool.approved.is_empty() {
                self.approved_once.insert(entry.pool.name.clone());
            }
        }
        self.published = Some(self.broken_policy(&policy).map_or(policy, Arc::new));
    }

    /// The policy if a safeguard is left out.
    fn broken_policy(&self, policy: &Policy) -> Option<Policy> {
        let change: &dyn Fn(&mut Pool) = match self.broken {
            Break::NoLag => &|pool| (pool.lagging, pool.discover) = (Vec::new(), false),
            Break::OldCheck => &|pool| {
                let before = self.published.as_ref().and_then(|before| before.pool(&pool.name));
                let check = Arc::make_mut(&mut pool.clean_check);
                for (taint, uids) in before.iter().flat_map(|before| &before.clean_check.nodes) {
                    Arc::make_mut(check.nodes.entry(taint.clone()).or_default()).extend(uids.iter().cloned());
                }
                check.valid = Some((self.now, self.now + PATIENCE));
            },
            _ => return None,
        };
        Some(changed(policy, change))
    }

    /// The node controller reconciles a node.
    pub fn plan_node(&mut self, name: &'static str) {
        let (Some(policy), Some(node)) = (self.published.clone(), self.nodes.get(name).cloned()) else { return };
        if !self.patches.contains_key(name) {
            self.patch_node(name, &node, policy);
        }
    }

    fn patch_node(&mut self, name: &'static str, node: &Node, by: Arc<Policy>) {
        let policy = self.with_claims(&by, node).map_or_else(|| Arc::clone(&by), Arc::new);
        let watched = self.watched.get(name).cloned().unwrap_or_default();
        let Assessment { plan, pool, .. } = assess(&node.seen, &policy, self.consent(node, &watched, &policy));
        if plan.is_empty() || self.is_refused(name, &plan) {
            return;
        }
        let patch = node_patch(&node.uid, &node.seen, &plan, &policy).0.into_iter();
        let patch =
            patch.filter(|op| self.broken != Break::NoGuard || !matches!(op, PatchOperation::Test(_))).collect();
        let owner = pool.and_then(|name| policy.pool(&name));
        let covers = |taint: &Taint| {
            let check = owner.map(|owner| &owner.clean_check);
            let nodes = check.filter(|check| check.valid.is_some_and(|(_, until)| self.now < until));
            nodes.and_then(|check| check.nodes.get(taint)).is_some_and(|uids| uids.contains(node.uid.as_str()))
        };
        let is_checked = plan.taints.iter().flat_map(|change| &change.added).any(covers);
        self.patches.insert(name, NodePatch { seen: node.clone(), plan, by, patch, is_checked });
    }

    /// Without evidence, every taint that a node claims may be removed.
    fn with_claims(&self, policy: &Policy, node: &Node) -> Option<Policy> {
        let claims =
            node.seen.applied.as_deref().and_then(Applied::parse).filter(|_| self.broken == Break::NoEvidence)?;
        Some(changed(policy, &|pool| {
            pool.ever_applied.extend(claims.taints.iter().filter_map(|text| text.parse().ok()));
        }))
    }

    /// A node patch ended. `fresh` is the present node, if a test of the patch failed.
    pub fn patched(&mut self, name: &'static str, fresh: Option<&Node>, is_refused: bool) {
        let Some(NodePatch { seen, plan, by, .. }) = self.patches.remove(name) else { return };
        if let Some(fresh) = fresh.filter(|fresh| fresh.uid == seen.uid) {
            self.patch_node(name, fresh, by);
        }
        if is_refused {
            self.refused.insert(name, (plan, self.now + self.memory.patience));
        }
    }

    pub fn answer(&mut self, pool: &'static str, answer: Answer) {
        let Some((step, _)) = self.requests.remove(pool) else { return };
        self.memory.answer(pool, &step, answer, self.now);
    }

    /// The check lists templates and pods, fails to, or reads some workloads by name.
    pub fn list(&mut self, works: &[Work], fails: bool) {
        let (broken, first) = (self.broken, self.first_check.take());
        self.check = self.check.take().map(|check| match check {
            Check::Started(CheckTask::Everything(_)) if fails => Check::Listed(Err("cannot list pods".to_owned())),
            Check::Started(CheckTask::Everything(check)) => {
                Check::Listed(Ok(first.unwrap_or_else(|| found(*check, works, broken))))
            }
            Check::Started(CheckTask::Named { pool, check, workloads }) => {
                let templates: Vec<_> = works.iter().filter_map(Work::template).collect();
                let is_settled = |name: &String| {
                    let mut found = templates.iter().filter(|(_, template)| template.name == *name);
                    found.all(|(kind, template)| check.is_settled(*kind, template))
                };
                Check::Asked(pool, workloads.iter().all(|(_, _, name)| is_settled(name)))
            }
            check => check,
        });
        if let (Break::FirstCheck, Some(Check::Listed(Ok(found)))) = (broken, &self.check) {
            self.first_check = Some(found.clone());
        }
    }

    pub fn end_check(&mut self) {
        match self.check.take() {
            Some(Check::Listed(result)) => {
                self.with_cluster(|cluster, memory, now| memory.checked(cluster, result, now.instant));
            }
            Some(Check::Asked(pool, are_settled)) => self.memory.asked(&pool, are_settled),
            check => self.check = check,
        }
    }
}

fn found(mut check: WorkloadCheck, works: &[Work], broken: Break) -> BTreeMap<String, CheckAnswer> {
    for (kind, template) in works.iter().filter_map(Work::template).filter(|_| broken != Break::NoTemplates) {
        check.workload(kind, &template);
    }
    let tainted = |name: &str| {
        let mut nodes = check.scope().nodes.iter();
        nodes.any(|node| &*node.name == name && !node.taints.is_empty())
    };
    let mut pods: Vec<_> = works.iter().filter_map(Work::pod).collect();
    pods.retain(|pod| match broken {
        Break::NoTerminating => !pod.is_terminating(),
        Break::StraysByImage => pod.progress != winpool_core::pod::PodProgress::ImageOfAnotherSystem,
        Break::OnlyBareNodes => !pod.spec.node.as_deref().is_some_and(tainted),
        _ => true,
    });
    for pod in &pods {
        check.pod(pod);
    }
    check.finish()
}

fn changed(policy: &Policy, change: &dyn Fn(&mut Pool)) -> Policy {
    let entries = policy.entries().iter().map(|entry| {
        let mut pool = Pool::clone(&entry.pool);
        change(&mut pool);
        PoolEntry { pool: Arc::new(pool), ready: entry.ready }
    });
    Policy::new(entries, [].into())
}
