//! What the nodes add up to, by pool: kept as their events pass, so that the cost of one event does not grow with the
//! number of nodes.
//!
//! The index judges nodes by the pools *as they are written*, published or not: a pool's RuntimeClasses are made from
//! what its nodes show before the pool may touch them.

mod totals;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use winpool_core::{
    plan::{Contest, Gist, Node, NodePlan, Policy, State, assess, assess_as},
    windows::{Build, product},
};

pub use totals::Totals;
use totals::{Contribution, contribution, preview};

use crate::{node::CachedNode, shared::Shared};

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

/// Nodes of one pool, build and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Name of the pool.
    pub pool: String,
    /// What they run, if they say it.
    pub build: Option<Build>,
    /// Whether this release or the pool has a name for the build.
    pub named: bool,
    /// How they stand.
    pub state: State,
    /// How many there are.
    pub count: usize,
}

/// Nodes by pool, build and state, and what they show.
#[derive(Default)]
pub struct Index(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    policy: Arc<Policy>,
    nodes: HashMap<Arc<str>, Entry>,
    pools: BTreeMap<String, Totals>,
    /// Most nodes add the same to their pool, and most writes change the same.
    contributions: Shared<Contribution>,
    gists: Shared<Gist>,
}

/// What is kept of a node. There are thousands, so what few have stands elsewhere.
#[derive(Default)]
struct Entry {
    contributions: Vec<Arc<Contribution>>,
    /// Pools that select the node and do not own it, each with the owner.
    overlaps: Vec<(String, String)>,
    refusal: Option<Box<Refusal>>,
    /// What was written lately, and who undoes it as far as that is known.
    contest: Option<Box<Contest<Arc<Gist>>>>,
    rival: Option<Box<Rival>>,
    /// When the node was first seen to need a write.
    pending_since: Option<Instant>,
}

/// Who undoes what winpool writes on a node, and until when winpool stands back.
struct Rival {
    name: Arc<str>,
    until: Instant,
}

impl Entry {
    /// How long `plan` has to wait because somebody keeps undoing it.
    fn pause(&self, plan: &NodePlan, now: Instant) -> Option<Duration> {
        self.contest.as_ref()?.pause(&plan.gist(), now)
    }
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

    /// These are all nodes that there are: what a fresh list has.
    pub fn replace(&self, nodes: &[Arc<CachedNode>]) {
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name()).collect();
        let gone: Vec<_> = self.lock().nodes.keys().filter(|name| !names.contains(name.as_ref())).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
        let mut inner = self.lock();
        for node in nodes {
            inner.observe(node);
        }
    }

    /// Forgets what this process was refused and what it wrote: another one may have led since. `nodes` are all nodes.
    pub fn begin_anew(&self, nodes: impl FnOnce() -> Vec<Arc<CachedNode>>) {
        let mut inner = self.lock();
        for entry in inner.nodes.values_mut() {
            (entry.refusal, entry.contest, entry.rival) = (None, None, None);
        }
        for node in nodes() {
            inner.observe(&node);
        }
    }

    /// The API server refuses a part of a node's plan.
    pub fn refused(&self, node: &CachedNode, refusal: Refusal) {
        let mut inner = self.lock();
        inner.observe(node);
        if let Some(entry) = inner.nodes.get_mut(node.name()) {
            entry.refusal = Some(Box::new(refusal));
        }
        inner.observe(node);
    }

    /// The refusal that still stands against this plan of a node.
    #[must_use]
    pub fn refusal(&self, name: &str, plan: &NodePlan) -> Option<Refusal> {
        let inner = self.lock();
        let refusal = inner.nodes.get(name)?.refusal.as_ref()?;
        (refusal.plan == *plan && Instant::now() < refusal.until).then(|| Refusal::clone(refusal))
    }

    /// This plan of a node was accepted.
    pub fn written(&self, name: &str, plan: &NodePlan) {
        let mut inner = self.lock();
        let gist = inner.gists.share(plan.gist());
        if let Some(entry) = inner.nodes.get_mut(name) {
            entry.contest.get_or_insert_default().written(gist, Instant::now());
        }
    }

    /// How long this plan of a node has to wait because somebody keeps undoing it.
    #[must_use]
    pub fn contested(&self, name: &str, plan: &NodePlan) -> Option<Duration> {
        self.lock().nodes.get(name)?.pause(plan, Instant::now())
    }

    /// Whether the node's next try is set already, so that its events are no reason for one.
    #[must_use]
    pub fn stands_back(&self, name: &str, plan: &NodePlan) -> bool {
        let (inner, now) = (self.lock(), Instant::now());
        inner.nodes.get(name).is_some_and(|entry| {
            entry.rival.as_ref().is_some_and(|rival| now < rival.until) && entry.pause(plan, now).is_some()
        })
    }

    /// Records who undoes what winpool writes on a node, in words for people, and how long winpool stands back. Tells
    /// whether the name is news.
    pub fn stand_back(&self, node: &CachedNode, rival: &str, pause: Duration) -> bool {
        let mut inner = self.lock();
        let news = inner.nodes.get_mut(node.name()).is_some_and(|entry| {
            let news = entry.rival.as_ref().is_none_or(|known| known.name.as_ref() != rival);
            entry.rival = Some(Box::new(Rival { name: rival.into(), until: Instant::now() + pause }));
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
    pub fn states(&self) -> Vec<Nodes> {
        let inner = self.lock();
        let of_pool = |(name, totals): (&String, &Totals)| -> Vec<_> {
            let pool = inner.policy.pool(name);
            let named = |build| match pool {
                Some(pool) => pool.version_of(build).is_some(),
                None => product::by_build(build).is_some(),
            };
            let states = totals.states.iter().map(|((build, state), count)| Nodes {
                pool: name.clone(),
                build: *build,
                named: build.is_some_and(named),
                state: *state,
                count: *count,
            });
            states.collect()
        };
        inner.pools.iter().flat_map(of_pool).collect()
    }

    /// How many nodes of a pool a write would make what the pool wants.
    #[must_use]
    pub fn unfinished(&self, pool: &str) -> usize {
        self.lock().pools.get(pool).map_or(0, |totals| totals.unfinished)
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
        let contested = entry.pause(&owned.plan, Instant::now()).is_some();
        let rival = entry.rival.as_ref().filter(|_| contested && !owned.plan.is_empty());
        let rival = rival.map(|rival| Arc::clone(&rival.name));
        let contributions = contribution(owned, entry.refusal.as_deref(), rival).into_iter().chain(previews);
        let contributions: Vec<_> = contributions.map(|added| self.contributions.share(added)).collect();
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
        self.pools.entry(contribution.pool.clone()).or_default().add(name, contribution);
    }

    fn subtract(&mut self, name: &Arc<str>, contribution: &Contribution) {
        let Some(totals) = self.pools.get_mut(&contribution.pool) else { return };
        totals.subtract(name, contribution);
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
