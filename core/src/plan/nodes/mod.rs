//! The table of nodes: what this process knows about them, the sums over the nodes of each pool, and the next request
//! for each node.
//!
//! An interpreter shows the table what the watch shows, asks for the next step of a node, executes it, and passes on
//! the answer. The operator, `winpool plan` and the model in the tests are such interpreters, and decide nothing. The
//! table has no clock and no lock.

mod entry;
mod event;
mod labels;
mod object;
mod step;
mod sums;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    assessment::Assessment,
    capability_labels::has_capability_labels,
    label_users::Departures,
    node::{ChangeFingerprint, NodePlan},
    pools::Policy,
    tally::Tally,
    watched::{Sighting, Watched},
};
use crate::{
    interner::Interner,
    windows::{Build, Vendor},
};
use entry::{Entry, Need, OtherWriter, Refusal};
use sums::Sums;

pub use event::{NodeEvent, NodeNote};
pub use object::NodeObject;
pub use step::{Attempt, NodeAnswer, NodeStep, Turn};
pub use sums::NodeCount;

/// All nodes that a watch shows, and the requests in flight.
#[derive(Clone, Default)]
pub struct NodeTable {
    /// The pause after a refusal.
    patience: Duration,
    entries: BTreeMap<Arc<str>, Entry>,
    requests: BTreeMap<Arc<str>, Request>,
    /// Decides when pods are searched for that need a capability label.
    departures: Departures,
    /// The policy that nodes are written by; `None` while this process does not lead.
    written_by: Option<Arc<Policy>>,
    sums: Sums,
    /// Shared, because most writes change the same.
    fingerprints: Interner<ChangeFingerprint>,
    notes: Vec<(Arc<NodeObject>, NodeNote)>,
}

/// A request in flight for a node, and why it was sent.
#[derive(Clone, Debug)]
struct Request {
    uid: Box<str>,
    purpose: Purpose,
}

#[derive(Clone, Debug)]
enum Purpose {
    Attempt(Box<Running>),
    /// The plan that another writer reverts, and the end of the back-off.
    FindOtherWriter(Box<NodePlan>, Instant),
    /// The capability labels that pods may need.
    FindPods(BTreeSet<String>),
}

/// An attempt in progress.
#[derive(Clone)]
struct Running {
    attempt: Attempt,
    /// The policy that its plan was made by.
    by: Arc<Policy>,
    pool: Option<String>,
    fingerprint: ChangeFingerprint,
    /// True if a patch of it was accepted.
    has_written: bool,
    /// The version that the watch showed when it began.
    seen: Box<str>,
}

impl NodeTable {
    /// Returns an empty table. `patience` is the pause after a refusal.
    pub fn new(patience: Duration) -> Self {
        Self { patience, ..Self::default() }
    }

    /// The same with another pause between the end of a label's last RuntimeClass and the search for its pods.
    #[must_use]
    pub fn searching_after(self, pause: Duration) -> Self {
        Self { departures: self.departures.after(pause), ..self }
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
            NodeEvent::TermBegan => {
                self.written_by = None;
                self.departures.follow(None, now);
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
    /// whose next step the caller has to ask for, those for which a pod waits first.
    pub fn write_by(&mut self, policy: Option<Arc<Policy>>, now: Instant) -> Vec<Arc<str>> {
        self.written_by = policy;
        self.departures.follow(self.written_by.as_deref(), now);
        let mut due = self.due(now);
        if let Some(policy) = &self.written_by {
            due.sort_by_key(|name| !policy.is_awaited(name));
        }
        due
    }

    /// Returns the next step for a node. Unless it is a wait, its answer belongs to [`Self::answer`].
    pub fn next(&mut self, name: &str, now: Instant) -> NodeStep {
        let policy = self.written_by.clone().filter(|_| !self.requests.contains_key(name));
        let Some((policy, entry)) = policy.zip(self.entries.get(name)) else { return NodeStep::Wait(None) };
        let need = entry.next(&policy, &self.departures, self.patience, now);
        let (object, is_behind) = (Arc::clone(&entry.object), entry.is_behind);
        match need {
            Need::Nothing(until) => {
                // A taint may no longer be added, although the node has not changed.
                self.count(name, Sighting::Changed, now);
                NodeStep::Wait(until)
            }
            Need::Patch(assessment) => {
                let (seen, plan) = (object.resource_version.clone(), assessment.plan.clone());
                let (attempt, step) =
                    if is_behind { Attempt::begin_behind(object, plan) } else { Attempt::begin(object, plan, &policy) };
                self.send(Running::new(attempt, policy, &assessment, seen), step)
            }
            Need::FindOtherWriter(plan, until) => self.find_other_writer(&object, plan, until),
            Need::FindPods(labels) => self.find_pods(&object, labels),
        }
    }

    /// Takes in the answer to the last step of a node. Returns the step after it.
    pub fn answer(&mut self, name: &str, answer: NodeAnswer, now: Instant) -> NodeStep {
        let Some(Request { uid, purpose }) = self.requests.remove(name) else { return NodeStep::Wait(None) };
        if self.entries.get(name).is_none_or(|entry| entry.object.uid != uid) {
            return self.next(name, now);
        }
        match (purpose, answer) {
            (Purpose::FindOtherWriter(plan, until), NodeAnswer::OtherWriter(writer)) => {
                self.back_off(name, *plan, until, writer, now)
            }
            (Purpose::FindOtherWriter(..), _) => NodeStep::Wait(None),
            (Purpose::FindPods(labels), answer) => self.found_pods(name, labels, &answer, now),
            (Purpose::Attempt(mut running), answer) => {
                if answer == NodeAnswer::Written {
                    self.record_write(name, &mut running, now);
                }
                let turn = running.attempt.answer(answer, &running.by);
                self.take_turn(name, *running, turn, now)
            }
        }
    }

    fn take_turn(&mut self, name: &str, mut running: Running, turn: Turn, now: Instant) -> NodeStep {
        if let (Turn::Written | Turn::Denied(_) | Turn::Refused(..) | Turn::PlanAgain(_), Some(entry)) =
            (&turn, self.entries.get_mut(name))
        {
            entry.forget_failures();
        }
        match turn {
            Turn::Next(step) => self.send(running, step),
            Turn::Gone => NodeStep::Wait(None),
            Turn::Written => {
                self.entries.get_mut(name).into_iter().for_each(Entry::forget_refusal);
                NodeStep::Wait(None)
            }
            Turn::Failed(reason) => self.fail(name, reason, now),
            Turn::Refused(plan, message) => self.refuse(name, *plan, message, now),
            Turn::Denied(message) => match running.attempt.split(&running.by) {
                Some(step) => self.send(running, step),
                None => self.refuse(name, running.attempt.plan().clone(), message, now),
            },
            Turn::PlanAgain(object) => self.plan_again(name, running, object, now),
        }
    }

    /// Continues an attempt with a node that was read, by the policy that holds now.
    fn plan_again(&mut self, name: &str, mut running: Running, object: Arc<NodeObject>, now: Instant) -> NodeStep {
        let Some((policy, entry)) = self.written_by.clone().zip(self.entries.get(name)) else {
            return NodeStep::Wait(None);
        };
        match entry.need(&object, &policy, now) {
            Need::Nothing(until) => NodeStep::Wait(until),
            Need::FindOtherWriter(plan, until) => self.find_other_writer(&object, plan, until),
            Need::FindPods(labels) => self.find_pods(&object, labels),
            Need::Patch(assessment) => {
                let step = running.attempt.patch(object, assessment.plan.clone(), &policy);
                self.send(Running::new(running.attempt, policy, &assessment, running.seen), step)
            }
        }
    }

    fn send(&mut self, running: Running, step: NodeStep) -> NodeStep {
        let object = running.attempt.object();
        let (name, uid) = (Arc::clone(&object.name), object.uid.clone());
        self.requests.insert(name, Request { uid, purpose: Purpose::Attempt(Box::new(running)) });
        step
    }

    fn find_other_writer(&mut self, object: &NodeObject, plan: Box<NodePlan>, until: Instant) -> NodeStep {
        let purpose = Purpose::FindOtherWriter(plan, until);
        self.requests.insert(Arc::clone(&object.name), Request { uid: object.uid.clone(), purpose });
        NodeStep::FindOtherWriter
    }

    /// Records that a patch was accepted: the whole plan, or a part of it.
    fn record_write(&mut self, name: &str, running: &mut Running, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let (object, is_whole) = (running.attempt.object(), !running.attempt.is_split());
        entry.is_behind = entry.object.resource_version == running.seen;
        // Once for all parts, and even if the next one fails.
        if !std::mem::replace(&mut running.has_written, true) {
            let fingerprint = self.fingerprints.intern(running.fingerprint.clone());
            entry.conflict.get_or_insert_default().written(fingerprint, now);
        }
        let since = entry.pending_since.take_if(|_| is_whole);
        let waited = since.map(|since| now.saturating_duration_since(since));
        let (pool, plan) = (running.pool.clone(), running.attempt.plan().clone().into());
        self.notes.push((Arc::clone(object), NodeNote::Written { pool, plan, waited }));
    }

    /// Waits after a refusal of this plan.
    fn refuse(&mut self, name: &str, plan: NodePlan, message: String, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        // The API server names the node. Nodes that are refused for the same reason are one problem.
        let shared = message.replace(&format!(" \"{name}\""), "").into();
        let until = now + self.patience;
        entry.trouble.get_or_insert_default().refusal = Some(Refusal { plan, message: shared, until });
        let note = NodeNote::Refused { message, pause: self.patience };
        self.notes.push((Arc::clone(&entry.object), note));
        self.count(name, Sighting::Changed, now);
        NodeStep::Wait(Some(until))
    }

    /// Waits, longer each time, instead of fighting over the node.
    fn back_off(&mut self, name: &str, plan: NodePlan, until: Instant, writer: String, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        if entry.other_writer().is_none_or(|known| *known.name != *writer) {
            let pause = until.saturating_duration_since(now);
            self.notes.push((Arc::clone(&entry.object), NodeNote::Contested { writer: writer.clone(), pause }));
        }
        entry.trouble.get_or_insert_default().other_writer = Some(OtherWriter { name: writer.into(), plan, until });
        self.count(name, Sighting::Changed, now);
        NodeStep::Wait(Some(until))
    }

    fn fail(&mut self, name: &str, reason: &'static str, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        let pause = entry.fail(now);
        self.notes.push((Arc::clone(&entry.object), NodeNote::Failed { reason, pause }));
        NodeStep::Wait(Some(now + pause))
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

    /// The node with this name.
    pub fn object(&self, name: &str) -> Option<&Arc<NodeObject>> {
        self.entries.get(name).map(|entry| &entry.object)
    }

    /// True if the API server refuses this change of a node, or another writer keeps reverting it.
    pub fn is_blocked(&self, name: &str, assessment: &Assessment, now: Instant) -> bool {
        let entry = self.entries.get(name);
        entry.is_some_and(|entry| entry.is_blocked(assessment, now))
    }

    /// True if no patch by an older policy is in flight, also for nodes that are gone.
    pub fn is_settled(&self) -> bool {
        self.requests.values().all(|request| match &request.purpose {
            Purpose::Attempt(running) => self.written_by.as_ref().is_some_and(|by| Arc::ptr_eq(by, &running.by)),
            Purpose::FindOtherWriter(..) | Purpose::FindPods(_) => true,
        })
    }

    /// Returns true if a sum has changed since the last call.
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
        let need = |(policy, entry): (&Arc<Policy>, &Entry)| entry.next(policy, &self.departures, self.patience, now);
        !matches!(entry.map(need), None | Some(Need::Nothing(None)))
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

    fn count(&mut self, name: &str, sighting: Sighting, now: Instant) {
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

impl Running {
    fn new(attempt: Attempt, by: Arc<Policy>, assessment: &Assessment, seen: Box<str>) -> Self {
        let Assessment { pool, fingerprint, .. } = assessment;
        Self { attempt, by, pool: pool.clone(), fingerprint: fingerprint.clone(), has_written: false, seen }
    }
}

/// Shows only what decides, in an order that does not depend on the past, and not the policies: the caller knows them.
impl fmt::Debug for NodeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = f.debug_struct("NodeTable");
        table.field("entries", &self.entries).field("requests", &self.requests);
        if self.entries.values().any(|entry| has_capability_labels(&entry.object.node)) {
            table.field("departures", &self.departures);
        }
        table.field("is_settled", &self.is_settled()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {} {}", self.attempt, self.fingerprint, self.has_written, self.seen)
    }
}
