//! The sums over the nodes of each pool. Each change of a node updates them, so that an event costs the same in any
//! cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use crate::{
    interner::Interner,
    plan::{
        assessment::assess,
        consent::Consent,
        contribution::{Contribution, NodeShare},
        node::NodeState,
        pools::Policy,
        tally::Tally,
        watched::{Sighting, Watched},
    },
    windows::{Build, Vendor, product},
};

use super::entry::Entry;

/// The number of nodes in one pool with the same build and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCount {
    pub pool: String,
    /// Their build, if they report one.
    pub build: Option<Build>,
    /// True if this release or the pool has a name for the build.
    pub named: bool,
    pub state: NodeState,
    pub count: usize,
}

#[derive(Clone, Default)]
pub(super) struct Sums {
    /// The policy by which nodes are counted *before* they are written by it: a pool's RuntimeClasses are made from the
    /// builds of its nodes, and must exist before the pool may change the nodes.
    policy: Arc<Policy>,
    pools: BTreeMap<String, Tally>,
    none: Tally,
    /// Shared, because most nodes contribute the same to their pool.
    contributions: Interner<Contribution>,
    /// True if a sum changed since this was last asked.
    pub(super) changed: bool,
}

impl Sums {
    /// Counts by this policy from now on. Returns true if it is another one than before.
    pub(super) fn count_by(&mut self, policy: Policy) -> bool {
        let is_new = *self.policy != policy;
        if is_new {
            self.policy = Arc::new(policy);
        }
        is_new
    }

    pub(super) fn tally(&self, pool: &str) -> &Tally {
        self.pools.get(pool).unwrap_or(&self.none)
    }

    pub(super) fn states(&self) -> Vec<NodeCount> {
        let of_pool = |(name, tally): (&String, &Tally)| -> Vec<_> {
            let pool = self.policy.pool(name);
            let named = |build| match pool {
                Some(pool) => pool.spec.version_of(build).is_some(),
                None => product::by_build(build).is_some(),
            };
            let states = tally.states().map(|(build, state, count)| NodeCount {
                pool: name.clone(),
                build,
                named: build.is_some_and(named),
                state,
                count,
            });
            states.collect()
        };
        self.pools.iter().flat_map(of_pool).collect()
    }

    /// The builds that nodes of pools run, each with the vendor that their labels show.
    pub(super) fn vendors(&self) -> BTreeSet<(Build, Vendor)> {
        self.pools.values().flat_map(|tally| tally.vendors.keys().copied()).collect()
    }

    /// Counts a node, for the first time or again.
    pub(super) fn count(
        &mut self,
        name: &Arc<str>,
        entry: &mut Entry,
        before: Option<&Watched>,
        sighting: Sighting,
        now: Instant,
    ) {
        let policy = Arc::clone(&self.policy);
        let object = Arc::clone(&entry.object);
        entry.watched = Watched::next(before, &object.node, sighting, now);
        let share = share(entry, &policy, now);
        let contributions: Box<[_]> =
            share.contributions.into_iter().map(|added| self.contributions.intern(added)).collect();
        if contributions != entry.contributions || share.overlaps != entry.overlaps {
            self.subtract(name, entry);
            for (pool, owner) in &share.overlaps {
                self.pools.entry(pool.clone()).or_default().overlaps(name, owner);
            }
            for contribution in &contributions {
                self.pools.entry(contribution.pool.clone()).or_default().add(name, contribution);
            }
            (entry.contributions, entry.overlaps, self.changed) = (contributions, share.overlaps, true);
        }
    }

    /// Takes a node out of all sums.
    pub(super) fn subtract(&mut self, name: &Arc<str>, entry: &Entry) {
        for (pool, _) in &entry.overlaps {
            self.change(pool, |tally| tally.overlaps_no_longer(name));
        }
        for contribution in &entry.contributions {
            self.change(&contribution.pool, |tally| tally.subtract(name, contribution));
        }
    }

    fn change(&mut self, pool: &str, change: impl FnOnce(&mut Tally)) {
        let Some(tally) = self.pools.get_mut(pool) else { return };
        change(tally);
        if tally.is_empty() {
            self.pools.remove(pool);
        }
    }
}

/// The contributions of a node to its pools, with its refusals and other writers.
fn share(entry: &mut Entry, policy: &Policy, now: Instant) -> NodeShare {
    let object = Arc::clone(&entry.object);
    let watched = entry.watched;
    let consent = Consent::Known { name: &object.name, watched: &watched, now };
    let assessment = assess(&object.node, policy, consent);
    entry.pending_since = match assessment.state() {
        NodeState::Pending => entry.pending_since.or(Some(now)),
        _ => None,
    };
    let is_reverted = !assessment.plan.is_empty() && entry.pause(policy, assessment.pool.as_deref(), now).is_some();
    let other_writer = entry.other_writer().filter(|_| is_reverted).map(|writer| Arc::clone(&writer.name));
    let refusal = entry.last_refusal(&assessment.plan).map(|refusal| Arc::clone(&refusal.message));
    NodeShare::of(&object.node, assessment, policy, consent, refusal, other_writer)
}
