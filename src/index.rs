//! What the nodes add up to, by pool: kept as their events pass, so that the cost of one event does not grow with the
//! number of nodes.
//!
//! The index judges nodes by the pools *as they are written*, published or not: a pool's RuntimeClasses are made from
//! what its nodes show before the pool may touch them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use winpool_core::{
    api::{NodeCounts, Problem, Taint, names::reason},
    plan::{Contest, Gist, Node, NodePlan, Overlap, Policy, Seen, Standing, State, assess, assess_as, number},
    windows::{Build, KernelVersion},
};

use crate::node::CachedNode;

/// A refusal by the API server: what was refused, why, and until when it is not sent again.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The part of the plan that was refused.
    pub plan: NodePlan,
    /// The refuser's own words.
    pub message: Arc<str>,
    /// When to try again.
    pub until: Instant,
}

/// Nodes by pool, build and state, and what they show.
#[derive(Default)]
pub struct Index(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    policy: Arc<Policy>,
    nodes: HashMap<Arc<str>, Entry>,
    pools: BTreeMap<String, Totals>,
}

#[derive(Default)]
struct Entry {
    contributions: Vec<Contribution>,
    /// Pools that select the node and do not own it, each with the owner.
    overlaps: Vec<(String, String)>,
    refusal: Option<Refusal>,
    /// What was written lately, and who undoes it as far as that is known.
    contest: Option<Contest<Gist>>,
    rival: Option<Rival>,
    /// When the node was first seen to need a write.
    pending_since: Option<Instant>,
}

/// Who undoes what winpool writes on a node, and until when winpool stands back.
struct Rival {
    name: Arc<str>,
    until: Instant,
}

/// What one node adds to one pool.
#[derive(Clone, PartialEq)]
struct Contribution {
    pool: String,
    version: Option<KernelVersion>,
    state: State,
    unlabeled: bool,
    untainted: bool,
    tolerate: Vec<Taint>,
    problems: Vec<NodeProblem>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum NodeProblem {
    BuildUnknown,
    Denied(Arc<str>),
    Contested(Arc<str>),
    ValueDiffers(Taint),
    WouldChange,
}

/// What the nodes of one pool add up to.
#[derive(Clone, Default)]
pub struct Totals {
    states: BTreeMap<(Option<Build>, State), usize>,
    revisions: BTreeMap<Build, BTreeMap<Option<u32>, usize>>,
    tolerate: BTreeMap<Taint, usize>,
    problems: BTreeMap<NodeProblem, BTreeSet<Arc<str>>>,
    unlabeled: usize,
    untainted: usize,
    /// Nodes that an older pool owns, with that pool.
    overlaps: BTreeMap<Arc<str>, String>,
}

impl Index {
    /// Counts nodes by this policy from now on; where it differs from the last one, all of `nodes` anew. They are read
    /// while the index is locked, so that none that was observed later is overwritten by what it was before.
    pub fn judge_by(&self, policy: &Policy, nodes: impl FnOnce() -> Vec<Arc<CachedNode>>) {
        let mut inner = self.lock();
        if *inner.policy == *policy {
            return;
        }
        inner.policy = Arc::new(policy.clone());
        for node in nodes() {
            inner.observe(&node);
        }
    }

    /// A node was seen. Tells whether what its pools add up to changed.
    pub fn observe(&self, node: &CachedNode) -> bool {
        self.lock().observe(node)
    }

    /// A node went. Tells whether what its pools add up to changed.
    pub fn remove(&self, name: &str) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.nodes.remove(name) else { return false };
        let name = Arc::from(name);
        inner.clear_overlaps(&name, &entry.overlaps);
        for contribution in &entry.contributions {
            inner.subtract(&name, contribution);
        }
        !entry.contributions.is_empty()
    }

    /// Drops every node that is not among `names`: what a fresh list no longer has.
    pub fn retain(&self, names: &BTreeSet<String>) {
        let gone: Vec<_> = self.lock().nodes.keys().filter(|name| !names.contains(name.as_ref())).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
    }

    /// The API server refuses a part of a node's plan.
    pub fn refused(&self, node: &CachedNode, refusal: Refusal) {
        let mut inner = self.lock();
        inner.observe(node);
        if let Some(entry) = inner.nodes.get_mut(node.name()) {
            entry.refusal = Some(refusal);
        }
        inner.observe(node);
    }

    /// The refusal that still stands against this plan of a node.
    #[must_use]
    pub fn refusal(&self, name: &str, plan: &NodePlan) -> Option<Refusal> {
        let inner = self.lock();
        let refusal = inner.nodes.get(name)?.refusal.as_ref()?;
        (refusal.plan == *plan && Instant::now() < refusal.until).then(|| refusal.clone())
    }

    /// This plan of a node was accepted.
    pub fn written(&self, name: &str, plan: &NodePlan) {
        if let Some(entry) = self.lock().nodes.get_mut(name) {
            let (gist, now) = (plan.gist(), Instant::now());
            match &mut entry.contest {
                Some(contest) => contest.written(gist, now),
                None => entry.contest = Some(Contest::new(gist, now)),
            }
        }
    }

    /// How long this plan of a node has to wait because somebody keeps undoing it.
    #[must_use]
    pub fn contested(&self, name: &str, plan: &NodePlan) -> Option<Duration> {
        self.lock().nodes.get(name)?.contest.as_ref()?.pause(&plan.gist(), Instant::now())
    }

    /// Whether the node's next try is set already, so that its events are no reason for one.
    #[must_use]
    pub fn stands_back(&self, name: &str, plan: &NodePlan) -> bool {
        let contested = self.contested(name, plan).is_some();
        let inner = self.lock();
        let rival = inner.nodes.get(name).and_then(|entry| entry.rival.as_ref());
        contested && rival.is_some_and(|rival| Instant::now() < rival.until)
    }

    /// Records who undoes what winpool writes on a node, in words for people, and how long winpool stands back. Tells
    /// whether the name is news.
    pub fn stand_back(&self, node: &CachedNode, rival: &str, pause: Duration) -> bool {
        let mut inner = self.lock();
        let news = inner.nodes.get_mut(node.name()).is_some_and(|entry| {
            let news = entry.rival.as_ref().is_none_or(|known| known.name.as_ref() != rival);
            entry.rival = Some(Rival { name: rival.into(), until: Instant::now() + pause });
            news
        });
        inner.observe(node);
        news
    }

    /// Since when the node needs a write; asked once, when it was accepted.
    pub fn take_pending_since(&self, name: &str) -> Option<Instant> {
        self.lock().nodes.get_mut(name)?.pending_since.take()
    }

    /// What the nodes of a pool add up to.
    #[must_use]
    pub fn totals(&self, pool: &str) -> Totals {
        self.lock().pools.get(pool).cloned().unwrap_or_default()
    }

    /// Numbers of nodes by pool, build and state.
    #[must_use]
    pub fn states(&self) -> Vec<(String, Option<Build>, State, usize)> {
        let inner = self.lock();
        let of_pool = |(pool, totals): (&String, &Totals)| -> Vec<_> {
            totals.states.iter().map(|((build, state), count)| (pool.clone(), *build, *state, *count)).collect()
        };
        inner.pools.iter().flat_map(of_pool).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn observe(&mut self, node: &CachedNode) -> bool {
        let policy = Arc::clone(&self.policy);
        let mut owned = assess(&node.seen, &policy);
        // A pool that is being deleted counts the nodes that still carry its marks.
        let deleting = |name: &String| policy.pool(name).is_some_and(|pool| pool.deleting);
        owned.pool = owned.pool.or(owned.releasing.take().filter(deleting));
        let known = self.nodes.remove_entry(node.name());
        let (name, mut entry) = known.unwrap_or_else(|| (Arc::from(node.name()), Entry::default()));
        if entry.refusal.as_ref().is_some_and(|refusal| refusal.plan != owned.plan) {
            entry.refusal = None;
        }
        entry.pending_since = match owned.state() {
            State::Pending => entry.pending_since.or_else(|| Some(Instant::now())),
            _ => None,
        };
        let previews = policy.previews(&node.seen.labels);
        let previews = previews.filter_map(|pool| preview(assess_as(&node.seen, Some(pool), &policy)));
        let gist = owned.plan.gist();
        let contested = entry.contest.as_ref().is_some_and(|contest| contest.pause(&gist, Instant::now()).is_some());
        let rival = entry.rival.as_ref().filter(|_| contested && !owned.plan.is_empty());
        let rival = rival.map(|rival| Arc::clone(&rival.name));
        let contributions: Vec<_> =
            contribution(owned, entry.refusal.as_ref(), rival).into_iter().chain(previews).collect();
        let overlaps = overlaps(&node.seen, &policy);
        let changed = contributions != entry.contributions || overlaps != entry.overlaps;
        if changed {
            self.clear_overlaps(&name, &entry.overlaps);
            for (pool, owner) in &overlaps {
                let totals = self.pools.entry(pool.clone()).or_default();
                totals.overlaps.insert(Arc::clone(&name), owner.clone());
            }
            entry.overlaps = overlaps;
            for contribution in &entry.contributions {
                self.subtract(&name, contribution);
            }
            for contribution in &contributions {
                self.add(&name, contribution);
            }
            entry.contributions = contributions;
        }
        self.nodes.insert(name, entry);
        changed
    }

    fn add(&mut self, name: &Arc<str>, contribution: &Contribution) {
        let totals = self.pools.entry(contribution.pool.clone()).or_default();
        let build = contribution.version.map(|version| version.build);
        *totals.states.entry((build, contribution.state)).or_default() += 1;
        if let Some(version) = contribution.version {
            *totals.revisions.entry(version.build).or_default().entry(version.revision).or_default() += 1;
        }
        totals.unlabeled += usize::from(contribution.unlabeled);
        totals.untainted += usize::from(contribution.untainted);
        for taint in &contribution.tolerate {
            *totals.tolerate.entry(taint.clone()).or_default() += 1;
        }
        for problem in &contribution.problems {
            totals.problems.entry(problem.clone()).or_default().insert(Arc::clone(name));
        }
    }

    fn subtract(&mut self, name: &Arc<str>, contribution: &Contribution) {
        let Some(totals) = self.pools.get_mut(&contribution.pool) else { return };
        let build = contribution.version.map(|version| version.build);
        decrement(&mut totals.states, &(build, contribution.state));
        if let Some(version) = contribution.version
            && let Some(revisions) = totals.revisions.get_mut(&version.build)
        {
            decrement(revisions, &version.revision);
            if revisions.is_empty() {
                totals.revisions.remove(&version.build);
            }
        }
        totals.unlabeled -= usize::from(contribution.unlabeled);
        totals.untainted -= usize::from(contribution.untainted);
        contribution.tolerate.iter().for_each(|taint| decrement(&mut totals.tolerate, taint));
        for problem in &contribution.problems {
            let emptied = totals.problems.get_mut(problem).is_some_and(|nodes| {
                nodes.remove(name);
                nodes.is_empty()
            });
            if emptied {
                totals.problems.remove(problem);
            }
        }
        if totals.is_empty() {
            self.pools.remove(&contribution.pool);
        }
    }

    fn clear_overlaps(&mut self, name: &Arc<str>, overlaps: &[(String, String)]) {
        for (pool, _) in overlaps {
            let Some(totals) = self.pools.get_mut(pool) else { continue };
            totals.overlaps.remove(name);
            if totals.is_empty() {
                self.pools.remove(pool);
            }
        }
    }
}

/// The pools that select a node after its owner.
fn overlaps(node: &Node, policy: &Policy) -> Vec<(String, String)> {
    let mut selecting = policy.selecting(&node.labels);
    let Some(owner) = selecting.next() else { return Vec::new() };
    selecting.map(|pool| (pool.name.clone(), owner.name.clone())).collect()
}

fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn contribution(standing: Standing, refusal: Option<&Refusal>, rival: Option<Arc<str>>) -> Option<Contribution> {
    let state = match (refusal, &rival) {
        (Some(_), _) => State::Blocked,
        (None, Some(_)) => State::Contested,
        (None, None) => standing.state(),
    };
    let Standing { pool, version, ignored, tolerate, differing, plan, held, releasing: _ } = standing;
    let unknown = version.is_none() && !ignored;
    let problems = unknown
        .then_some(NodeProblem::BuildUnknown)
        .into_iter()
        .chain(refusal.map(|refusal| NodeProblem::Denied(Arc::clone(&refusal.message))))
        .chain(rival.map(NodeProblem::Contested))
        .chain(differing.into_iter().map(NodeProblem::ValueDiffers))
        .collect();
    Some(Contribution {
        pool: pool?,
        version,
        state,
        unlabeled: unknown || plan.windows_build.is_some(),
        untainted: plan.taints.is_some() || held,
        tolerate,
        problems,
    })
}

fn preview(standing: Standing) -> Option<Contribution> {
    let changes = !standing.plan.is_empty();
    let mut contribution = contribution(standing, None, None)?;
    if changes {
        contribution.problems.push(NodeProblem::WouldChange);
    }
    Some(contribution)
}

impl Totals {
    fn is_empty(&self) -> bool {
        self.states.is_empty() && self.overlaps.is_empty()
    }

    /// Nodes that the pool selects and an older one owns.
    #[must_use]
    pub fn overlap(&self) -> Option<Overlap> {
        let (example, owner) = self.overlaps.first_key_value()?;
        Some(Overlap { nodes: self.overlaps.len(), example: example.to_string(), owner: owner.clone() })
    }

    /// Nodes by state.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        let mut counts = NodeCounts::default();
        for ((_, state), count) in &self.states {
            let count = number(*count);
            counts.selected += count;
            match state {
                State::Converged => counts.converged += count,
                State::Pending => counts.pending += count,
                State::Held => counts.held += count,
                State::Contested => counts.contested += count,
                State::Blocked => counts.blocked += count,
                State::Ignored => counts.ignored += count,
            }
        }
        counts
    }

    /// Nodes by build and revision.
    #[must_use]
    pub fn revisions(&self) -> &BTreeMap<Build, BTreeMap<Option<u32>, usize>> {
        &self.revisions
    }

    /// Nodes without the right label.
    #[must_use]
    pub fn unlabeled(&self) -> usize {
        self.unlabeled
    }

    /// Nodes without the right taints.
    #[must_use]
    pub fn untainted(&self) -> usize {
        self.untainted
    }

    /// What the pool's RuntimeClasses are made from.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen {
            builds: self.revisions.iter().map(|(build, revisions)| (*build, revisions.values().sum())).collect(),
            tolerate: self.tolerate.keys().cloned().collect(),
        }
    }

    /// One problem for each kind, with the number of nodes and one example.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.problems
            .iter()
            .filter_map(|(problem, nodes)| Some(problem.describe(nodes.first()?, nodes.len())))
            .collect()
    }
}

impl NodeProblem {
    fn describe(&self, example: &str, nodes: usize) -> Problem {
        let (reason, message) = match self {
            Self::BuildUnknown => (
                reason::BUILD_UNKNOWN,
                format!(
                    "{nodes} node(s) report no Windows build in status.nodeInfo.kernelVersion and carry no well-formed \
                     label node.kubernetes.io/windows-build; check their kubelets"
                ),
            ),
            Self::Denied(message) => (
                reason::ADMISSION_DENIED,
                format!("{nodes} node(s): the API server refuses the change, next try within 10 minutes: {message}"),
            ),
            Self::Contested(rival) => (reason::CONTESTED, format!("{nodes} node(s): {rival}")),
            Self::ValueDiffers(taint) => (
                reason::TAINT_VALUE_DIFFERS,
                format!(
                    "{nodes} node(s) carry {taint}, whose key and effect are those of a wanted taint; it is left alone \
                     and RuntimeClasses tolerate it. To replace it, add it to spec.retiredTaints"
                ),
            ),
            Self::WouldChange => (reason::WOULD_CHANGE, format!("{nodes} node(s) would be changed")),
        };
        Problem { reason: reason.to_owned(), object: format!("Node/{example}"), message }
    }
}
