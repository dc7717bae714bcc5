//! All nodes that a watch shows, and the requests in flight.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    plan::{
        node::NodePlan,
        pools::Policy,
        tally::Tally,
        watched::{Sighting, Watched},
    },
    windows::{Build, Vendor},
};

use super::{
    entry::{Entry, Need},
    event::{NodeEvent, NodeNote},
    object::NodeObject,
    request::{Purpose, Request},
    sums::{NodeCount, Sums},
};

/// All nodes that a watch shows, and the requests in flight.
#[derive(Clone, Default)]
pub struct NodeTable {
    /// The pause after a refusal.
    pub(super) patience: Duration,
    pub(super) entries: BTreeMap<Arc<str>, Entry>,
    pub(super) requests: BTreeMap<Arc<str>, Request>,
    /// The policy that nodes are written by; `None` while this process does not lead.
    pub(super) written_by: Option<Arc<Policy>>,
    pub(super) sums: Sums,
    /// The nodes whose pods are to get tolerations first.
    awaited: BTreeSet<Arc<str>>,
    pub(super) notes: Vec<(Arc<NodeObject>, NodeNote)>,
}

impl NodeTable {
    /// Returns an empty table. `patience` is the pause after a refusal.
    pub fn new(patience: Duration) -> Self {
        Self { patience, ..Self::default() }
    }

    /// Takes in an event. Returns the names of the nodes whose next step the caller has to ask for.
    pub fn observe(&mut self, event: NodeEvent, now: Instant) -> Vec<Arc<str>> {
        match event {
            NodeEvent::Listed(objects) => {
                let names: BTreeSet<Arc<str>> = objects.iter().map(|object| Arc::clone(&object.name)).collect();
                for name in self.names().filter(|name| !names.contains(name)).collect::<Vec<_>>() {
                    self.remove(&name);
                }
                for object in objects {
                    self.see(object, Sighting::Listed, now);
                }
                self.due(now)
            }
            NodeEvent::Seen(object) => {
                let name = Arc::clone(&object.name);
                self.see(object, Sighting::Changed, now);
                Vec::from_iter(self.is_due(&name, now).then_some(name))
            }
            NodeEvent::Deleted(name) => {
                self.remove(&name);
                Vec::new()
            }
            NodeEvent::PodsAwaited(nodes) => {
                let before = std::mem::replace(&mut self.awaited, nodes);
                let changed: Vec<_> = before.symmetric_difference(&self.awaited).cloned().collect();
                for name in &changed {
                    self.await_pods(name, now);
                }
                changed.into_iter().filter(|name| self.is_due(name, now)).collect()
            }
            NodeEvent::TermBegan => {
                self.written_by = None;
                self.requests.clear();
                self.entries.values_mut().for_each(Entry::begin_term);
                self.count_all(Sighting::Listed, now);
                Vec::new()
            }
        }
    }

    /// Counts nodes by this policy from now on.
    pub fn count_by(&mut self, policy: Policy, now: Instant) {
        if self.sums.count_by(policy) {
            self.count_all(Sighting::Changed, now);
        }
    }

    /// Writes nodes by this policy from now on; `None` if this process does not lead. Returns the names of the nodes
    /// whose next step the caller has to ask for.
    pub fn write_by(&mut self, policy: Option<Arc<Policy>>, now: Instant) -> Vec<Arc<str>> {
        self.written_by = policy;
        self.due(now)
    }

    /// The sums over the nodes of a pool.
    pub fn tally(&self, pool: &str) -> &Tally {
        self.sums.tally(pool)
    }

    /// The numbers of nodes by pool, build and state.
    pub fn states(&self) -> Vec<NodeCount> {
        self.sums.states()
    }

    /// The builds that nodes of pools run, each with the vendor that their labels show.
    pub fn vendors(&self) -> BTreeSet<(Build, Vendor)> {
        self.sums.vendors()
    }

    /// All nodes by name, each with the part of its past that this process knows.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeObject, &Watched)> {
        self.entries.values().map(|entry| (entry.object.as_ref(), &entry.watched))
    }

    /// All nodes by name.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<NodeObject>> {
        self.entries.values().map(|entry| &entry.object)
    }

    /// The node as the watch showed it last.
    pub fn object(&self, name: &str) -> Option<&Arc<NodeObject>> {
        self.entries.get(name).map(|entry| &entry.object)
    }

    /// True if the API server refuses the release of a node, or another writer keeps reverting it.
    pub fn is_blocked(&self, name: &str, release: &NodePlan, policy: &Policy, now: Instant) -> bool {
        let is_blocked =
            |entry: &Entry| entry.refusal(release, now).is_some() || entry.pause(policy, None, now).is_some();
        self.entries.get(name).is_some_and(is_blocked)
    }

    /// True if no patch by an older policy is in flight, also for nodes that are gone.
    pub fn is_settled(&self) -> bool {
        self.requests.values().all(|request| match &request.purpose {
            Purpose::Attempt(running) => self.written_by.as_ref().is_some_and(|by| Arc::ptr_eq(by, &running.by)),
            Purpose::FindOtherWriter(..) => true,
        })
    }

    /// True if a sum has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.sums.changed)
    }

    /// Returns the notes since the last call, each with its node.
    pub fn take_notes(&mut self) -> Vec<(Arc<NodeObject>, NodeNote)> {
        std::mem::take(&mut self.notes)
    }

    fn names(&self) -> impl Iterator<Item = Arc<str>> {
        self.entries.keys().cloned()
    }

    fn due(&self, now: Instant) -> Vec<Arc<str>> {
        self.names().filter(|name| self.is_due(name, now)).collect()
    }

    /// True if the node needs a request, now or later.
    fn is_due(&self, name: &str, now: Instant) -> bool {
        let entry = self.written_by.as_ref().zip(self.entries.get(name));
        let need = |(policy, entry): (&Arc<Policy>, &Entry)| entry.next(policy, now);
        !matches!(entry.map(need), None | Some(Need::Nothing(None)))
    }

    /// Notes if the node waits for its pods.
    fn await_pods(&mut self, name: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.watched.awaits_pods = self.awaited.contains(name);
        self.count(name, Sighting::Changed, now);
    }

    fn see(&mut self, object: Arc<NodeObject>, sighting: Sighting, now: Instant) {
        let name = Arc::clone(&object.name);
        // Another node with this name starts afresh.
        if self.entries.get(&name).is_some_and(|entry| entry.object.uid != object.uid) {
            self.remove(&name);
        }
        let Some(entry) = self.entries.get_mut(&name) else {
            let is_registered = sighting == Sighting::Changed && object.is_as_registered;
            let sighting = if is_registered { Sighting::Registered } else { sighting };
            let entry = self.entries.entry(Arc::clone(&name)).or_insert(Entry { object, ..Entry::default() });
            self.sums.count(&name, entry, None, sighting, now);
            self.sums.changed = true;
            if self.awaited.contains(&name) {
                self.await_pods(&name, now);
            }
            return;
        };
        entry.is_behind &= entry.object.resource_version == object.resource_version;
        entry.object = object;
        self.count(&name, sighting, now);
    }

    fn remove(&mut self, name: &str) {
        let Some((name, entry)) = self.entries.remove_entry(name) else { return };
        self.sums.subtract(&name, &entry);
        self.sums.changed = true;
    }

    pub(super) fn count(&mut self, name: &str, sighting: Sighting, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let (name, before) = (Arc::clone(&entry.object.name), std::mem::take(&mut entry.watched));
        self.sums.count(&name, entry, Some(&before), sighting, now);
    }

    fn count_all(&mut self, sighting: Sighting, now: Instant) {
        for (name, entry) in &mut self.entries {
            let before = std::mem::take(&mut entry.watched);
            self.sums.count(name, entry, Some(&before), sighting, now);
        }
    }
}

/// Shows only what decides, in an order that does not depend on the past, and not the policies: the caller knows them.
impl fmt::Debug for NodeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = f.debug_struct("NodeTable");
        table.field("entries", &self.entries).field("requests", &self.requests);
        table.field("is_settled", &self.is_settled()).finish_non_exhaustive()
    }
}
