//! The cached nodes, and sums over those of each pool. Events of nodes update them, so the cost of an event does not grow
//! with the number of nodes.
//!
//! The index assesses nodes by the policy *before* it is published: a pool's RuntimeClasses are made from the builds
//! of its nodes, and must exist before the pool may change the nodes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use winpool_core::{
    plan::{
        Assessment, ChangeFingerprint, Consent, Contribution, NodePlan, NodeShare, Policy, Sighting, State, Tally,
        Watched, WriteConflict, assess,
    },
    windows::{Build, product},
};

use crate::cache::{node::CachedNode, shared::Shared};

#[cfg(test)]
mod tests;

/// A part of a node's plan that the API server refused.
#[derive(Clone, Debug)]
pub struct NodeRefusal {
    pub plan: NodePlan,
    /// The message of the API server or of the policy that refused.
    pub message: Arc<str>,
    /// The time of the next attempt.
    pub until: Instant,
}

/// The number of nodes in one pool with the same build and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    pub pool: String,
    /// Their build, if they report one.
    pub build: Option<Build>,
    /// True if this release or the pool has a name for the build.
    pub named: bool,
    pub state: State,
    pub count: usize,
}

#[derive(Default)]
pub struct Index(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    policy: Arc<Policy>,
    nodes: HashMap<Arc<str>, Entry>,
    pools: BTreeMap<String, Tally>,
    /// Shared, because most nodes contribute the same to their pool, and most writes change the same.
    contributions: Shared<Contribution>,
    fingerprints: Shared<ChangeFingerprint>,
}

/// The record of one node. Fields that few nodes have are stored elsewhere, because there are thousands of nodes.
#[derive(Default)]
struct Entry {
    /// The node as the watch last showed it.
    node: Arc<CachedNode>,
    watched: Watched,
    /// A slice, because a `Vec` that is collected from larger items keeps their memory.
    contributions: Box<[Arc<Contribution>]>,
    /// Pools that select the node and do not own it, each with the pool that does.
    overlaps: Vec<(String, String)>,
    refusal: Option<Box<NodeRefusal>>,
    /// Recent writes, and the other writer that reverts them, if it is known.
    conflict: Option<Box<WriteConflict<Arc<ChangeFingerprint>>>>,
    other_writer: Option<Box<OtherWriter>>,
    /// The time at which the node first needed a write.
    pending_since: Option<Instant>,
}

/// The writer that reverts a change of a node, and the end of the back-off.
struct OtherWriter {
    name: Arc<str>,
    plan: NodePlan,
    until: Instant,
}

impl Entry {
    /// The time for which the change that `assessment` plans has to wait because another writer keeps reverting it.
    fn pause(&self, assessment: &Assessment, now: Instant) -> Option<Duration> {
        self.conflict.as_ref()?.pause(&assessment.fingerprint, now)
    }

    fn refuses(&self, plan: &NodePlan) -> Option<&NodeRefusal> {
        let refusal = self.refusal.as_deref()?;
        (refusal.plan == *plan && Instant::now() < refusal.until).then_some(refusal)
    }

    /// The plan that was refused or is reverted, and the end of the pause, if `assessment` differs only because the
    /// workload check of its taints has expired since.
    fn waiting(&self, assessment: &Assessment, now: Instant) -> Option<(&NodePlan, Instant)> {
        let refused = self.refusal.iter().map(|refusal| (&refusal.plan, refusal.until));
        let reverted = self.other_writer.iter().map(|writer| (&writer.plan, writer.until));
        refused.chain(reverted).find(|(plan, until)| now < *until && assessment.is_still(plan))
    }
}

impl Index {
    /// Counts nodes by this policy from now on. If it differs from the last one, all nodes are counted again.
    pub fn judge_by(&self, policy: Policy) {
        let mut inner = self.0.lock();
        if *inner.policy != policy {
            inner.policy = Arc::new(policy);
            inner.observe_all(Sighting::Changed);
        }
    }

    /// Records a node that the watch shows. Returns true if the sums of its pools or the number of nodes changed.
    pub fn observe(&self, node: &Arc<CachedNode>) -> bool {
        let mut inner = self.0.lock();
        let is_new = !inner.nodes.contains_key(node.name());
        let sighting = if is_new && node.is_as_registered { Sighting::Registered } else { Sighting::Changed };
        inner.observe(node, sighting) || is_new
    }

    /// Removes a node. Returns true if it was known.
    pub fn remove(&self, name: &str) -> bool {
        self.0.lock().remove(name)
    }

    /// Replaces all nodes, after a new list. Events that were missed before it are unknown.
    pub fn replace(&self, nodes: &[Arc<CachedNode>]) {
        let mut inner = self.0.lock();
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name()).collect();
        let gone: Vec<_> = inner.nodes.keys().filter(|name| !names.contains(name.as_ref())).cloned().collect();
        for name in gone {
            inner.remove(&name);
        }
        for node in nodes {
            inner.observe(node, Sighting::Listed);
        }
    }

    /// Forgets refusals, writes and back-offs, because another process may have led since.
    pub fn begin_anew(&self) {
        let mut inner = self.0.lock();
        for entry in inner.nodes.values_mut() {
            (entry.refusal, entry.conflict, entry.other_writer) = (None, None, None);
        }
        inner.observe_all(Sighting::Listed);
    }

    pub fn nodes(&self) -> Vec<Arc<CachedNode>> {
        self.0.lock().nodes()
    }

    pub fn node(&self, name: &str) -> Option<Arc<CachedNode>> {
        Some(Arc::clone(&self.0.lock().nodes.get(name)?.node))
    }

    /// The record of a node's past.
    pub fn watched(&self, name: &str) -> Watched {
        self.0.lock().nodes.get(name).map(|entry| entry.watched.clone()).unwrap_or_default()
    }

    /// Records that the API server refused a part of a node's plan. `node` may be newer than the watch.
    pub fn refused(&self, node: &CachedNode, refusal: NodeRefusal) {
        let mut inner = self.0.lock();
        if let Some(entry) = inner.nodes.get_mut(node.name()) {
            entry.refusal = Some(Box::new(refusal));
        }
        inner.look_again(node);
    }

    /// The refusal that still applies to this plan of a node.
    pub fn refusal(&self, name: &str, plan: &NodePlan) -> Option<NodeRefusal> {
        self.0.lock().nodes.get(name)?.refuses(plan).cloned()
    }

    /// The time for which a node waits after a refusal or a conflict, if `assessment` plans less than what was refused
    /// or reverted only because the workload check of its taints has expired since.
    pub fn still_waits(&self, name: &str, assessment: &Assessment) -> Option<Duration> {
        let (inner, now) = (self.0.lock(), Instant::now());
        let (_, until) = inner.nodes.get(name)?.waiting(assessment, now)?;
        Some(until.saturating_duration_since(now))
    }

    /// Records that the change planned by `assessment` was accepted.
    pub fn written(&self, name: &str, assessment: &Assessment) {
        let mut inner = self.0.lock();
        let fingerprint = inner.fingerprints.share(assessment.fingerprint.clone());
        if let Some(entry) = inner.nodes.get_mut(name) {
            entry.conflict.get_or_insert_default().written(fingerprint, Instant::now());
        }
    }

    /// The time for which this change of a node has to wait because another writer keeps reverting it.
    pub fn contested(&self, name: &str, assessment: &Assessment) -> Option<Duration> {
        self.0.lock().nodes.get(name)?.pause(assessment, Instant::now())
    }

    /// True if the API server refuses this change of a node, or another writer keeps reverting it.
    pub fn is_blocked(&self, name: &str, assessment: &Assessment) -> bool {
        let (inner, now) = (self.0.lock(), Instant::now());
        let entry = inner.nodes.get(name);
        entry.is_some_and(|entry| entry.refuses(&assessment.plan).is_some() || entry.pause(assessment, now).is_some())
    }

    /// True if the next attempt for the node is scheduled already, so that its events start none.
    pub fn stands_back(&self, name: &str, assessment: &Assessment) -> bool {
        let (inner, now) = (self.0.lock(), Instant::now());
        inner.nodes.get(name).is_some_and(|entry| {
            entry.other_writer.as_ref().is_some_and(|other_writer| now < other_writer.until)
                && entry.pause(assessment, now).is_some()
        })
    }

    /// Records the other writer that reverts changes of a node, as a text, and the duration of the back-off. Returns
    /// true if the text is new.
    pub fn back_off(&self, node: &CachedNode, plan: NodePlan, other_writer: &str, pause: Duration) -> bool {
        let mut inner = self.0.lock();
        let news = inner.nodes.get_mut(node.name()).is_some_and(|entry| {
            let news = entry.other_writer.as_ref().is_none_or(|known| known.name.as_ref() != other_writer);
            entry.other_writer =
                Some(Box::new(OtherWriter { name: other_writer.into(), plan, until: Instant::now() + pause }));
            news
        });
        inner.look_again(node);
        news
    }

    /// Assesses an unchanged node again when the time has come at which its assessment changes.
    pub fn look_again(&self, node: &CachedNode) -> bool {
        self.0.lock().look_again(node)
    }

    /// Takes the time since which the node has needed a write; called once, when the write was accepted.
    pub fn take_pending_since(&self, name: &str) -> Option<Instant> {
        self.0.lock().nodes.get_mut(name)?.pending_since.take()
    }

    /// The sums over the nodes of a pool.
    pub fn tally(&self, pool: &str) -> Tally {
        self.0.lock().pools.get(pool).cloned().unwrap_or_default()
    }

    /// The numbers of nodes by pool, build and state.
    pub fn states(&self) -> Vec<Nodes> {
        let inner = self.0.lock();
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

    /// The number of nodes of a pool that still need a write.
    pub fn unfinished(&self, pool: &str) -> usize {
        self.0.lock().pools.get(pool).map_or(0, Tally::unfinished)
    }
}

impl Inner {
    fn nodes(&self) -> Vec<Arc<CachedNode>> {
        self.nodes.values().map(|entry| Arc::clone(&entry.node)).collect()
    }

    fn observe_all(&mut self, sighting: Sighting) {
        for node in self.nodes() {
            self.observe(&node, sighting);
        }
    }

    fn observe(&mut self, node: &Arc<CachedNode>, sighting: Sighting) -> bool {
        let known = self.nodes.remove(node.name());
        let is_known = known.is_some();
        let entry = Entry { node: Arc::clone(node), ..known.unwrap_or_default() };
        self.count(node, entry, is_known, sighting)
    }

    /// Assesses a node again, unless it is gone.
    fn look_again(&mut self, node: &CachedNode) -> bool {
        let known = self.nodes.remove(node.name());
        known.is_some_and(|entry| self.count(node, entry, true, Sighting::Changed))
    }

    fn remove(&mut self, name: &str) -> bool {
        let Some((name, entry)) = self.nodes.remove_entry(name) else { return false };
        self.clear_overlaps(&name, &entry.overlaps);
        for contribution in &entry.contributions {
            self.subtract(&name, contribution);
        }
        true
    }

    fn count(&mut self, node: &CachedNode, mut entry: Entry, is_known: bool, sighting: Sighting) -> bool {
        let (policy, now, name) = (Arc::clone(&self.policy), Instant::now(), Arc::clone(&entry.node.name));
        let owner = policy.owner(&node.seen.labels).map(|owner| owner.pool.as_ref());
        entry.watched = Watched::next(is_known.then_some(&entry.watched), &node.seen, owner, sighting, now);
        let consent = Consent::Known { uid: node.uid(), watched: &entry.watched, now };
        let mut assessment = assess(&node.seen, &policy, consent);
        let waiting = entry.waiting(&assessment, now).map(|(plan, _)| plan.clone());
        let waits = waiting.is_some();
        if let Some(plan) = waiting {
            (assessment.plan, assessment.held) = (plan, Vec::new());
        }
        if entry.refusal.as_ref().is_some_and(|refusal| refusal.plan != assessment.plan) {
            entry.refusal = None;
        }
        entry.pending_since = match assessment.state() {
            State::Pending => entry.pending_since.or(Some(now)),
            _ => None,
        };
        let contested = waits || (!assessment.plan.is_empty() && entry.pause(&assessment, now).is_some());
        let other_writer =
            entry.other_writer.as_ref().filter(|_| contested).map(|other_writer| Arc::clone(&other_writer.name));
        let refusal = entry.refusal.as_ref().map(|refusal| Arc::clone(&refusal.message));
        let share = NodeShare::of(&node.seen, assessment, &policy, consent, refusal, other_writer);
        let contributions: Box<[_]> =
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
                self.pools.entry(contribution.pool.clone()).or_default().add(&name, contribution);
            }
            entry.contributions = contributions;
        }
        self.nodes.insert(name, entry);
        changed
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
