//! What the nodes add up to, by pool: kept as their events pass, so that the cost of one event does not grow with the
//! number of nodes.
//!
//! The index judges nodes by the pools *as they are to be published*: a pool's RuntimeClasses are made from what its nodes
//! show before the pool may touch them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use winpool_core::{
    plan::{
        Assessment, ChangeFingerprint, Consent, Contribution, NodePlan, NodeShare, Policy, Sighting, State, Tally,
        Watched, WriteConflict, assess,
    },
    windows::{Build, product},
};

use crate::cache::{node::CachedNode, shared::Shared};

/// A refusal by the API server: what was refused, why, and until when it is not sent again.
#[derive(Clone, Debug)]
pub struct NodeRefusal {
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
    pools: BTreeMap<String, Tally>,
    /// Most nodes add the same to their pool, and most writes change the same.
    contributions: Shared<Contribution>,
    fingerprints: Shared<ChangeFingerprint>,
}

/// What is kept of a node. There are thousands, so what few have stands elsewhere.
#[derive(Default)]
struct Entry {
    watched: Watched,
    contributions: Vec<Arc<Contribution>>,
    /// Pools that select the node and do not own it, each with the owner.
    overlaps: Vec<(String, String)>,
    refusal: Option<Box<NodeRefusal>>,
    /// What was written lately, and who undoes it as far as that is known.
    conflict: Option<Box<WriteConflict<Arc<ChangeFingerprint>>>>,
    other_writer: Option<Box<OtherWriter>>,
    /// When the node was first seen to need a write.
    pending_since: Option<Instant>,
}

/// Who undoes what winpool writes on a node, and until when winpool stands back.
struct OtherWriter {
    name: Arc<str>,
    until: Instant,
}

impl Entry {
    /// How long the change that `assessment` plans has to wait because another writer keeps reverting it.
    fn pause(&self, assessment: &Assessment, now: Instant) -> Option<Duration> {
        self.conflict.as_ref()?.pause(&assessment.fingerprint, now)
    }

    fn refuses(&self, plan: &NodePlan) -> Option<&NodeRefusal> {
        let refusal = self.refusal.as_deref()?;
        (refusal.plan == *plan && Instant::now() < refusal.until).then_some(refusal)
    }
}

impl Index {
    /// Counts nodes by this policy from now on; where it differs from the last one, all of `nodes` anew. They are read
    /// while the index is locked, so that none that was observed later is overwritten by what it was before.
    pub fn judge_by(&self, policy: Policy, nodes: impl FnOnce() -> Vec<Arc<CachedNode>>) {
        let mut inner = self.lock();
        if *inner.policy == policy {
            return;
        }
        inner.policy = Arc::new(policy);
        for node in nodes() {
            inner.observe(&node, Sighting::Changed);
        }
    }

    /// A node was seen. Tells whether what its pools add up to changed, or the number of nodes.
    pub fn observe(&self, node: &CachedNode) -> bool {
        let mut inner = self.lock();
        let is_new = !inner.nodes.contains_key(node.name());
        let sighting = if is_new && node.is_as_registered { Sighting::Registered } else { Sighting::Changed };
        inner.observe(node, sighting) || is_new
    }

    /// A node went. Tells whether there was one.
    pub fn remove(&self, name: &str) -> bool {
        let mut inner = self.lock();
        let Some(entry) = inner.nodes.remove(name) else { return false };
        inner.clear_overlaps(name, &entry.overlaps);
        let name = Arc::from(name);
        for contribution in &entry.contributions {
            inner.subtract(&name, contribution);
        }
        true
    }

    /// These are all nodes that there are: what a fresh list has. What happened before it is not known.
    pub fn replace(&self, nodes: &[Arc<CachedNode>]) {
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name()).collect();
        let gone: Vec<_> = self.lock().nodes.keys().filter(|name| !names.contains(name.as_ref())).cloned().collect();
        for name in gone {
            self.remove(&name);
        }
        let mut inner = self.lock();
        for node in nodes {
            inner.observe(node, Sighting::Listed);
        }
    }

    /// Forgets what this process was refused, what it wrote and what it saw: another one may have led since. `nodes` are
    /// all nodes.
    pub fn begin_anew(&self, nodes: impl FnOnce() -> Vec<Arc<CachedNode>>) {
        let mut inner = self.lock();
        for entry in inner.nodes.values_mut() {
            (entry.refusal, entry.conflict, entry.other_writer) = (None, None, None);
        }
        for node in nodes() {
            inner.observe(&node, Sighting::Listed);
        }
    }

    /// What is known of a node's past.
    #[must_use]
    pub fn watched(&self, name: &str) -> Watched {
        self.lock().nodes.get(name).map(|entry| entry.watched.clone()).unwrap_or_default()
    }

    /// The API server refuses a part of a node's plan.
    pub fn refused(&self, node: &CachedNode, refusal: NodeRefusal) {
        let mut inner = self.lock();
        inner.observe(node, Sighting::Changed);
        if let Some(entry) = inner.nodes.get_mut(node.name()) {
            entry.refusal = Some(Box::new(refusal));
        }
        inner.observe(node, Sighting::Changed);
    }

    /// The refusal that still stands against this plan of a node.
    #[must_use]
    pub fn refusal(&self, name: &str, plan: &NodePlan) -> Option<NodeRefusal> {
        self.lock().nodes.get(name)?.refuses(plan).cloned()
    }

    /// The change that `assessment` planned was accepted.
    pub fn written(&self, name: &str, assessment: &Assessment) {
        let mut inner = self.lock();
        let fingerprint = inner.fingerprints.share(assessment.fingerprint.clone());
        if let Some(entry) = inner.nodes.get_mut(name) {
            entry.conflict.get_or_insert_default().written(fingerprint, Instant::now());
        }
    }

    /// How long this change of a node has to wait because another writer keeps reverting it.
    #[must_use]
    pub fn contested(&self, name: &str, assessment: &Assessment) -> Option<Duration> {
        self.lock().nodes.get(name)?.pause(assessment, Instant::now())
    }

    /// Whether the API server refuses this change of a node, or another writer keeps reverting it.
    #[must_use]
    pub fn is_blocked(&self, name: &str, assessment: &Assessment) -> bool {
        let (inner, now) = (self.lock(), Instant::now());
        let entry = inner.nodes.get(name);
        entry.is_some_and(|entry| entry.refuses(&assessment.plan).is_some() || entry.pause(assessment, now).is_some())
    }

    /// Whether the node's next try is set already, so that its events are no reason for one.
    #[must_use]
    pub fn stands_back(&self, name: &str, assessment: &Assessment) -> bool {
        let (inner, now) = (self.lock(), Instant::now());
        inner.nodes.get(name).is_some_and(|entry| {
            entry.other_writer.as_ref().is_some_and(|other_writer| now < other_writer.until)
                && entry.pause(assessment, now).is_some()
        })
    }

    /// Records who undoes what winpool writes on a node, in words for people, and how long winpool stands back. Tells
    /// whether the name is news.
    pub fn back_off(&self, node: &CachedNode, other_writer: &str, pause: Duration) -> bool {
        let mut inner = self.lock();
        let news = inner.nodes.get_mut(node.name()).is_some_and(|entry| {
            let news = entry.other_writer.as_ref().is_none_or(|known| known.name.as_ref() != other_writer);
            entry.other_writer =
                Some(Box::new(OtherWriter { name: other_writer.into(), until: Instant::now() + pause }));
            news
        });
        inner.observe(node, Sighting::Changed);
        news
    }

    /// The time has come at which the node stands otherwise, though nothing happened to it.
    pub fn look_again(&self, node: &CachedNode) -> bool {
        self.lock().observe(node, Sighting::Changed)
    }

    /// Since when the node needs a write; asked once, when it was accepted.
    pub fn take_pending_since(&self, name: &str) -> Option<Instant> {
        self.lock().nodes.get_mut(name)?.pending_since.take()
    }

    /// What the nodes of a pool add up to.
    #[must_use]
    pub fn tally(&self, pool: &str) -> Tally {
        self.lock().pools.get(pool).cloned().unwrap_or_default()
    }

    /// Numbers of nodes by pool, build and state.
    #[must_use]
    pub fn states(&self) -> Vec<Nodes> {
        let inner = self.lock();
        let of_pool = |(name, tally): (&String, &Tally)| -> Vec<_> {
            let pool = inner.policy.pool(name);
            let named = |build| match pool {
                Some(pool) => pool.version_of(build).is_some(),
                None => product::by_build(build).is_some(),
            };
            let states = tally.states().map(|(build, state, count)| Nodes {
                pool: name.clone(),
                build,
                named: build.is_some_and(named),
                state,
                count,
            });
            states.collect()
        };
        inner.pools.iter().flat_map(of_pool).collect()
    }

    /// How many nodes of a pool a write would make what the pool wants.
    #[must_use]
    pub fn unfinished(&self, pool: &str) -> usize {
        self.lock().pools.get(pool).map_or(0, Tally::unfinished)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn observe(&mut self, node: &CachedNode, sighting: Sighting) -> bool {
        let (policy, now) = (Arc::clone(&self.policy), Instant::now());
        let known = self.nodes.remove_entry(node.name());
        let is_known = known.is_some();
        let (name, mut entry) = known.unwrap_or_else(|| (Arc::from(node.name()), Entry::default()));
        let owner = policy.owner(&node.seen.labels).map(|owner| owner.pool.as_ref());
        entry.watched = Watched::next(is_known.then_some(&entry.watched), &node.seen, owner, sighting, now);
        let consent = Consent::Known { uid: node.uid(), watched: &entry.watched, now };
        let assessment = assess(&node.seen, &policy, consent);
        if entry.refusal.as_ref().is_some_and(|refusal| refusal.plan != assessment.plan) {
            entry.refusal = None;
        }
        entry.pending_since = match assessment.state() {
            State::Pending => entry.pending_since.or(Some(now)),
            _ => None,
        };
        let contested = !assessment.plan.is_empty() && entry.pause(&assessment, now).is_some();
        let other_writer =
            entry.other_writer.as_ref().filter(|_| contested).map(|other_writer| Arc::clone(&other_writer.name));
        let refusal = entry.refusal.as_ref().map(|refusal| Arc::clone(&refusal.message));
        let share = NodeShare::of(&node.seen, assessment, &policy, consent, refusal, other_writer);
        let contributions: Vec<_> =
            share.contributions.into_iter().map(|added| self.contributions.share(added)).collect();
        let changed = contributions != entry.contributions || share.overlaps != entry.overlaps;
        if changed {
            self.clear_overlaps(&name, &entry.overlaps);
            for (pool, owner) in &share.overlaps {
                self.pools.entry(pool.clone()).or_default().overlaps(&name, owner);
            }
            entry.overlaps = share.overlaps;
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
        let Some(tally) = self.pools.get_mut(&contribution.pool) else { return };
        tally.subtract(name, contribution);
        if tally.is_empty() {
            self.pools.remove(&contribution.pool);
        }
    }

    fn clear_overlaps(&mut self, name: &str, overlaps: &[(String, String)]) {
        for (pool, _) in overlaps {
            let Some(tally) = self.pools.get_mut(pool) else { continue };
            tally.overlaps_no_longer(name);
            if tally.is_empty() {
                self.pools.remove(pool);
            }
        }
    }
}
