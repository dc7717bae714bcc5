//! All nodes that a watch shows, and the attempts in progress.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use json_patch::Patch;

use crate::interner::Interner;
use crate::node::{MetadataChange, NodeObject, NodePlan, Watched};
use crate::plan::attempt::{Attempt, FAILED, RequestError, WriteConflict, refusal_pause, with_jitter};
use crate::plan::nodes::assessment::{Assessment, NodeProblem, NodeState, assess, assess_as};
use crate::plan::nodes::numbers::{Assessments, NodeCount, Overlaps, Tally, fold};
use crate::plan::patch::{REVERTED, STRIPPED, node_patch};
use crate::plan::pools::pool::Policy;
use crate::plan::taints::Consent;
use crate::windows::{Build, builds};

/// All nodes that a watch shows, and the requests in flight.
#[derive(Clone, Default)]
pub struct NodeTable {
    /// The pause after a refusal.
    pub(crate) patience: Duration,
    pub(crate) entries: BTreeMap<Arc<str>, Entry>,
    /// The attempts that wait for an answer.
    pub(crate) attempts: BTreeMap<Arc<str>, Running>,
    /// The policy that nodes are written by; `None` while this process does not lead.
    pub(crate) written_by: Option<Arc<Policy>>,
    /// The policy by which nodes are counted *before* they are written by it: a pool's RuntimeClasses are made from the
    /// builds of its nodes, and must exist before the pool may change the nodes.
    counted_by: Arc<Policy>,
    assessments: Interner<Assessment>,
    /// The sums of pools; empty after a node has changed.
    tallies: OnceLock<BTreeMap<String, Tally>>,
    /// The sums of a pool without nodes.
    none: Tally,
    /// True if a sum may have changed since this was last asked.
    changed: bool,
    /// The nodes whose pods are to get tolerations first.
    awaited: BTreeSet<Arc<str>>,
    pub(crate) notes: Vec<(Arc<NodeObject>, NodeNote)>,
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
                for name in self.entries.keys().filter(|name| !names.contains(*name)).cloned().collect::<Vec<_>>() {
                    self.remove(&name);
                }
                for object in objects {
                    self.see(object, now);
                }
                self.due(now)
            }
            NodeEvent::Seen(object) => {
                let name = Arc::clone(&object.name);
                self.see(object, now);
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
                    if let Some(entry) = self.entries.get_mut(name) {
                        entry.watched.awaits_pods = self.awaited.contains(name);
                    }
                    self.count(name, now);
                }
                changed.into_iter().filter(|name| self.is_due(name, now)).collect()
            }
            NodeEvent::TermBegan => {
                self.written_by = None;
                self.attempts.clear();
                // Another process may have changed it since.
                for entry in self.entries.values_mut() {
                    (entry.conflict, entry.wait_reasons, entry.is_behind) = (None, None, false);
                }
                self.count_all(now);
                Vec::new()
            }
        }
    }

    /// Counts nodes by this policy from now on.
    pub fn count_by(&mut self, policy: Policy, now: Instant) {
        if *self.counted_by != policy {
            self.counted_by = Arc::new(policy);
            self.count_all(now);
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
        self.tallies().get(pool).unwrap_or(&self.none)
    }

    fn tallies(&self) -> &BTreeMap<String, Tally> {
        let entries = || self.entries.iter().map(|(name, entry)| (name, &entry.assessments, &entry.overlaps));
        self.tallies.get_or_init(|| fold(entries()))
    }

    /// The numbers of nodes by pool, build and state.
    pub fn states(&self) -> Vec<NodeCount> {
        let of_pool = |(name, tally): (&String, &Tally)| -> Vec<_> {
            let pool = self.counted_by.pool(name);
            let named = |build| match pool {
                Some(pool) => pool.spec.version_of(build).is_some(),
                None => builds::by_build(build).is_some(),
            };
            let count = |((build, state), count): (&(Option<Build>, NodeState), &usize)| {
                let (pool, named) = (name.clone(), build.is_some_and(named));
                NodeCount { pool, build: *build, named, state: *state, count: *count }
            };
            tally.states.iter().map(count).collect()
        };
        self.tallies().iter().flat_map(of_pool).collect()
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
        let is_blocked = |entry: &Entry| {
            let is_refused = || release.attempts().all(|part| entry.is_refused(&part, now));
            is_refused() || entry.is_stale() || entry.pause(policy, None, now).is_some()
        };
        self.entries.get(name).is_some_and(is_blocked)
    }

    /// True if no patch by an older policy is in flight, also for nodes that are gone.
    pub fn is_settled(&self) -> bool {
        let is_present = |running: &Running| self.written_by.as_ref().is_some_and(|by| Arc::ptr_eq(by, &running.by));
        self.attempts.values().all(is_present)
    }

    /// True if a sum has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    fn has_changed(&mut self) {
        (self.tallies, self.changed) = (OnceLock::new(), true);
    }

    /// Returns the notes since the last call, each with its node.
    pub fn take_notes(&mut self) -> Vec<(Arc<NodeObject>, NodeNote)> {
        std::mem::take(&mut self.notes)
    }

    fn due(&self, now: Instant) -> Vec<Arc<str>> {
        self.entries.keys().filter(|name| self.is_due(name, now)).cloned().collect()
    }

    /// True if the node needs a request, now or later.
    fn is_due(&self, name: &str, now: Instant) -> bool {
        let entry = self.written_by.as_ref().zip(self.entries.get(name));
        let need = |(policy, entry): (&Arc<Policy>, &Entry)| entry.next(policy, now);
        !matches!(entry.map(need), None | Some(Need::Nothing(None)))
    }

    fn see(&mut self, object: Arc<NodeObject>, now: Instant) {
        let (name, leads) = (Arc::clone(&object.name), self.written_by.is_some());
        // Another node with this name starts afresh.
        if self.entries.get(&name).is_some_and(|entry| entry.object.uid != object.uid) {
            self.remove(&name);
        }
        let Some(entry) = self.entries.get_mut(&name) else {
            let mut watched = Watched { awaits_pods: self.awaited.contains(&name), ..Watched::default() };
            watched.see(&object.node, leads, now);
            self.entries.insert(Arc::clone(&name), Entry { object, watched, ..Entry::default() });
            self.has_changed();
            return self.count(&name, now);
        };
        if entry.object.resource_version != object.resource_version {
            entry.is_behind = false;
            entry.wait_reasons.iter_mut().for_each(|wait_reasons| wait_reasons.stale = Attempt::default());
        }
        entry.watched.see(&object.node, leads, now);
        entry.object = object;
        self.count(&name, now);
    }

    fn remove(&mut self, name: &str) {
        if self.entries.remove(name).is_some() {
            self.has_changed();
        }
    }

    /// Assesses the node again.
    fn count(&mut self, name: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.assess(&self.counted_by, &mut self.assessments, now) {
            self.has_changed();
        }
    }

    fn count_all(&mut self, now: Instant) {
        let mut is_changed = false;
        for entry in self.entries.values_mut() {
            is_changed |= entry.assess(&self.counted_by, &mut self.assessments, now);
        }
        if is_changed {
            self.has_changed();
        }
    }
}

/// Shows only what decides, in an order that does not depend on the past, and not the policies: the caller knows them.
impl fmt::Debug for NodeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = f.debug_struct("NodeTable");
        table.field("entries", &self.entries).field("attempts", &self.attempts);
        table.field("is_settled", &self.is_settled()).finish_non_exhaustive()
    }
}

// The record of one node: everything that this process knows about it.

/// The record of one node. Fields that few nodes have are stored elsewhere, because there are thousands of nodes.
#[derive(Clone, Default)]
pub(crate) struct Entry {
    /// The node as the watch last showed it.
    pub(crate) object: Arc<NodeObject>,
    pub(crate) watched: Watched,
    assessments: Assessments,
    overlaps: Overlaps,
    /// The time at which the node first needed a write.
    pub(crate) pending_since: Option<Instant>,
    /// Recent writes, to notice another writer that reverts them.
    pub(crate) conflict: Option<Box<WriteConflict<u64>>>,
    pub(crate) wait_reasons: Option<Box<WaitReasons>>,
    /// True while the watch does not show a patch that was accepted.
    pub(crate) is_behind: bool,
}

/// The reasons for which a node waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct WaitReasons {
    /// The plans, and parts of plans, that were refused last, each with the message of the API server or of the policy, without the name
    /// of the node. One is kept while the node seems to need another plan: the watch may be behind, and show the node as it was before
    /// the other part was accepted.
    refusals: VecDeque<(NodePlan, Attempt<Arc<str>>)>,
    /// The name of the writer that reverts changes of the node.
    contested: Attempt<Arc<str>>,
    failure: Attempt,
    /// Patches whose tests failed although the watch shows no change of the node.
    stale: Attempt,
}

/// The number of refusals that are kept of one node: of a plan and of both of its parts.
const REFUSALS: usize = 3;

/// The number of patches in a row after which a node that refuses them is blocked: a value that is too large to be cached is not
/// in their tests, so that these fail for ever.
const STALE: u32 = 5;
const TESTS_FAIL: &str = "the patch's tests fail although the node is as it was seen";

/// What a node needs next.
pub(crate) enum Need {
    /// Nothing before this moment, unless the node changes.
    Nothing(Option<Instant>),
    /// These changes, for this pool. They may be a part of those that it needs.
    Patch { pool: Option<String>, plan: Box<NodePlan>, is_whole: bool },
    /// Another writer keeps reverting the changes; winpool backs off until this moment.
    BackOff(Instant),
}

impl Entry {
    /// The facts from which it is decided if the node may get a taint.
    pub(crate) fn consent(&self, now: Instant) -> Consent<'_> {
        Consent::Known { name: &self.object.name, watched: &self.watched, now }
    }

    /// Assesses the node: by the pool that it belongs to, and by those in dry run that would select it. A pool that is being
    /// deleted counts the nodes that winpool still has to clean up. Returns true if something has changed.
    fn assess(&mut self, policy: &Policy, shared: &mut Interner<Assessment>, now: Instant) -> bool {
        let mut assessment = assess(&self.object.node, policy, self.consent(now));
        self.pending_since = match assessment.state() {
            NodeState::Pending => self.pending_since.or(Some(now)),
            _ => None,
        };
        let (node, name) = (&self.object.node, &*self.object.name);
        let (mut assessments, mut overlaps) = (Vec::new(), Vec::new());
        // A node with another operating system belongs to no pool. The deletion of its pool finds it by a list from the API server.
        if !node.was_reimaged() {
            if !assessment.plan.is_empty() {
                let reverted = || self.pause(policy, assessment.pool.as_deref(), now).and(self.other_writer());
                let contested = || Some(NodeProblem::Contested(Arc::clone(&reverted()?.0)));
                let refused = self.refusal_message(&assessment.plan).map(NodeProblem::Denied);
                assessment.hindrance = refused.or_else(contested);
            }
            let is_deleted = |name: &String| policy.pool(name).is_some_and(|pool| pool.spec.deleting);
            assessment.pool = assessment.pool.or(assessment.releasing.take().filter(is_deleted));
            assessments.extend(Some(assessment).filter(|assessment| assessment.pool.is_some()));
            // Nothing is known of the node's past as a node of a pool in dry run, which adds no taint.
            let consent = Consent::Known { name, watched: &Watched::default(), now };
            assessments.extend(policy.previews(&node.labels).map(|pool| {
                let mut preview = assess_as(node, Some(pool), policy, consent);
                preview.hindrance = (!preview.plan.is_empty()).then_some(NodeProblem::WouldChange);
                preview.taints.owned.clear();
                preview
            }));
            let mut selecting = policy.selecting(&node.labels).map(|entry| entry.pool.spec.name.clone());
            let owner = selecting.next();
            overlaps.extend(selecting.filter_map(|pool| Some((pool, owner.clone()?))));
        }
        let shared = assessments.into_iter().map(|mut assessment| {
            // The whole list differs from node to node, and nobody counts it.
            assessment.plan.taints.iter_mut().for_each(|change| change.to.clear());
            shared.intern(assessment)
        });
        let counted = (shared.collect(), overlaps);
        let is_changed = (&self.assessments, &self.overlaps) != (&counted.0, &counted.1);
        (self.assessments, self.overlaps) = counted;
        is_changed
    }

    /// Returns what the node needs by this policy, as the watch shows it. After a failed attempt, and until the watch shows the
    /// last accepted patch, it waits.
    pub(crate) fn next(&self, policy: &Policy, now: Instant) -> Need {
        let reasons = self.wait_reasons.as_ref();
        let failed = reasons.into_iter().flat_map(|reasons| [&reasons.failure, &reasons.stale]);
        if let Some(((), until)) = failed.filter_map(|attempt| attempt.pause(now)).max() {
            return Need::Nothing(Some(*until));
        }
        let assessment = assess(&self.object.node, policy, self.consent(now));
        if self.is_behind && !assessment.plan.is_empty() {
            return Need::Nothing(None);
        }
        if assessment.plan.is_empty() {
            return Need::Nothing(assessment.label_settles);
        }
        let Assessment { pool, plan, .. } = assessment;
        let Some(part) = plan.attempts().find(|part| !self.is_refused(part, now)) else {
            return Need::Nothing(plan.attempts().filter_map(|part| Some(self.refusal(&part)?.last.as_ref()?.1)).min());
        };
        match (self.pause(policy, pool.as_deref(), now), self.other_writer()) {
            (None, _) => Need::Patch { pool, is_whole: part == plan, plan: part.into() },
            (Some(_), Some((_, until))) if now < *until => Need::Nothing(Some(*until)),
            (Some(pause), _) => Need::BackOff(now + pause),
        }
    }

    /// The last refusal of these changes.
    fn refusal(&self, plan: &NodePlan) -> Option<&Attempt<Arc<str>>> {
        self.wait_reasons.as_ref()?.refusals.iter().rfind(|(refused, _)| refused == plan).map(|(_, attempt)| attempt)
    }

    /// True if these changes are not sent now, because they were refused.
    fn is_refused(&self, plan: &NodePlan, now: Instant) -> bool {
        self.refusal(plan).is_some_and(|refusal| refusal.pause(now).is_some())
    }

    /// True if the tests of its patches fail again and again.
    fn is_stale(&self) -> bool {
        self.wait_reasons.as_ref().is_some_and(|wait_reasons| wait_reasons.stale.failures >= STALE)
    }

    /// The message if the API server refuses this plan, and each part of it.
    pub(crate) fn refusal_message(&self, plan: &NodePlan) -> Option<Arc<str>> {
        let refusals: Option<Vec<_>> = plan.attempts().map(|part| self.refusal(&part)).collect();
        let message = refusals.and_then(|all| Some(Arc::clone(&all.last()?.last.as_ref()?.0)));
        message.or_else(|| self.is_stale().then(|| TESTS_FAIL.into()))
    }

    /// The writer that reverts changes of the node, and the end of the last pause because of it.
    pub(crate) fn other_writer(&self) -> Option<&(Arc<str>, Instant)> {
        self.wait_reasons.as_ref()?.contested.last.as_ref()
    }

    /// The time for which the node is not changed for its pool because another writer keeps reverting that.
    pub(crate) fn pause(&self, policy: &Policy, pool: Option<&str>, now: Instant) -> Option<Duration> {
        self.conflict.as_ref()?.pause(&policy.demands(pool), now)
    }

    /// Records a failed attempt, or a patch whose tests failed. Returns how many there were, and the pause before the next one.
    fn fail(&mut self, is_stale: bool, now: Instant) -> (u32, Duration) {
        let reasons = self.wait_reasons.get_or_insert_default();
        let attempt = if is_stale { &mut reasons.stale } else { &mut reasons.failure };
        let name = &self.object.name;
        let pause = attempt.failed((), |failures| with_jitter(FAILED.after(failures), name, failures), now);
        (attempt.failures, pause)
    }

    /// Forgets earlier failures, because the API server answers; and earlier refusals, if it accepted all that the node needs.
    fn was_answered(&mut self, is_whole: bool) {
        if let Some(wait_reasons) = &mut self.wait_reasons {
            wait_reasons.failure = Attempt::default();
            if is_whole {
                wait_reasons.refusals.clear();
            }
        }
    }
}

/// Shows only what decides. `resourceVersion` stands for the fields of the node.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counted = DefaultHasher::new();
        (&self.assessments, &self.overlaps).hash(&mut counted);
        f.debug_struct("Entry")
            .field("object", &(&self.object.uid, &self.object.resource_version))
            .field("watched", &self.watched)
            .field("counted", &counted.finish())
            .field("conflict", &self.conflict)
            .field("wait_reasons", &self.wait_reasons)
            .field("is_behind", &self.is_behind)
            .finish_non_exhaustive()
    }
}

/// News about nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeEvent {
    /// A list of all nodes. Earlier changes are unknown.
    Listed(Vec<Arc<NodeObject>>),
    /// A watch event that shows a node.
    Seen(Arc<NodeObject>),
    /// The node with this name was deleted.
    Deleted(Arc<str>),
    /// On these nodes, and on no others, pods run that are to get tolerations before the nodes get taints.
    PodsAwaited(BTreeSet<Arc<str>>),
    /// A term of leadership began. Another process may have led since.
    TermBegan,
}

/// A note for logs, Events and metrics.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeNote {
    /// A patch was accepted.
    Written {
        pool: Option<String>,
        plan: Box<NodePlan>,
        /// The time since the node first needed its plan, if it has the whole of it now.
        waited: Option<Duration>,
    },
    /// The API server refuses to change the node.
    Refused { message: String, pause: Duration },
    /// Another writer, described here, keeps reverting changes to the node.
    Contested { writer: String, pause: Duration },
    /// An attempt failed.
    Failed { pause: Duration },
}

/// A patch in flight.
#[derive(Clone)]
pub(crate) struct Running {
    /// The node that the patch was computed from.
    pub(crate) object: Arc<NodeObject>,
    plan: Box<NodePlan>,
    /// True if the plan is all that the node needed.
    is_whole: bool,
    /// The policy that the plan was made by.
    pub(crate) by: Arc<Policy>,
    pool: Option<String>,
}

/// `resourceVersion` and the plan stand for the fields of the node.
impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, plan, is_whole, by, pool } = self;
        let demands = by.demands(pool.as_deref());
        write!(f, "{:?} {plan:?} {is_whole} {demands:x}", (&object.uid, &object.resource_version))
    }
}

impl Running {
    /// The answer as it counts: a patch that is accepted and changes nothing is refused.
    fn in_effect(&self, answer: NodeAnswer) -> NodeAnswer {
        let (version, message) = match &answer {
            NodeAnswer::Written(Some(version)) => (version, REVERTED),
            NodeAnswer::Stripped(version) => (version, STRIPPED),
            NodeAnswer::Written(None) | NodeAnswer::Refused(_) => return answer,
        };
        let is_unchanged = *version == self.object.resource_version;
        if is_unchanged { NodeAnswer::Refused(RequestError::Denied(message.to_owned())) } else { answer }
    }
}

// The exchange with the API server about a node: the next request, and what follows from its answer.

impl NodeTable {
    /// Returns the next step for a node. Unless it is a wait, its answer belongs to [`Self::answer`].
    pub fn next(&mut self, name: &str, now: Instant) -> NodeStep {
        let policy = self.written_by.clone().filter(|_| !self.attempts.contains_key(name));
        let Some((policy, entry)) = policy.zip(self.entries.get(name)) else { return NodeStep::Wait(None) };
        let (need, object) = (entry.next(&policy, now), Arc::clone(&entry.object));
        match need {
            Need::Nothing(until) => {
                // A taint may no longer be added, although the node has not changed.
                self.count(name, now);
                NodeStep::Wait(until)
            }
            Need::Patch { pool, plan, is_whole } => {
                let patch = node_patch(&object.uid, &object.node, &plan, &policy);
                let step = NodeStep::Patch { patch, plan: plan.clone() };
                self.attempts.insert(name.into(), Running { object, plan, is_whole, by: policy, pool });
                step
            }
            Need::BackOff(until) => self.back_off(name, until, now),
        }
    }

    /// Takes in the answer to the last step of a node. Returns the step after it.
    pub fn answer(&mut self, name: &str, answer: NodeAnswer, now: Instant) -> NodeStep {
        let Some(running) = self.attempts.remove(name) else { return NodeStep::Wait(None) };
        let Some(entry) = self.entries.get_mut(name).filter(|entry| entry.object.uid == running.object.uid) else {
            return self.next(name, now);
        };
        let answer = running.in_effect(answer);
        let is_done = running.is_whole && matches!(answer, NodeAnswer::Written(_));
        if !matches!(answer, NodeAnswer::Refused(RequestError::Gone | RequestError::Failed { .. })) {
            entry.was_answered(is_done);
        }
        if let NodeAnswer::Written(_) | NodeAnswer::Stripped(_) = answer {
            self.record_write(name, &running, now);
        }
        if self.written_by.is_none() {
            return NodeStep::Wait(None);
        }
        match answer {
            NodeAnswer::Written(_) | NodeAnswer::Refused(RequestError::Gone) => NodeStep::Wait(None),
            NodeAnswer::Stripped(_) => self.refuse(name, *running.plan, STRIPPED.to_owned(), now),
            NodeAnswer::Refused(RequestError::Denied(message)) => self.refuse(name, *running.plan, message, now),
            NodeAnswer::Refused(RequestError::Stale | RequestError::Conflict) => {
                self.plan_again(name, &running.object, now)
            }
            NodeAnswer::Refused(RequestError::Failed { .. }) => self.fail(name, now),
        }
    }

    /// Plans again after the node has changed: at once if the watch shows the change, or else when it does, or after a pause.
    fn plan_again(&mut self, name: &str, planned: &NodeObject, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        if entry.object.resource_version != planned.resource_version {
            return self.next(name, now);
        }
        let (count, pause) = entry.fail(true, now);
        if count == STALE {
            self.notes.push((Arc::clone(&entry.object), NodeNote::Refused { message: TESTS_FAIL.to_owned(), pause }));
            self.count(name, now);
        }
        NodeStep::Wait(Some(now + pause))
    }

    /// Records that a patch was accepted.
    fn record_write(&mut self, name: &str, Running { object, plan, is_whole, by, pool }: &Running, now: Instant) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        entry.is_behind = entry.object.resource_version == object.resource_version;
        entry.conflict.get_or_insert_default().written(by.demands(pool.as_deref()), now);
        if let Some(MetadataChange { to: record, .. }) = &plan.applied {
            entry.watched.applied = record.as_deref().map(Into::into);
        }
        let since = entry.pending_since.take_if(|_| *is_whole);
        let waited = since.map(|since| now.saturating_duration_since(since));
        let note = NodeNote::Written { pool: pool.clone(), plan: plan.clone(), waited };
        self.notes.push((Arc::clone(object), note));
    }

    /// Waits after a refusal of this plan, unless a part of it was not refused yet.
    fn refuse(&mut self, name: &str, plan: NodePlan, message: String, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        // The API server names the node. Nodes that are refused for the same reason are one problem.
        let shared = message.replace(&format!(" \"{name}\""), "").into();
        let pause = refusal_pause(&message, self.patience);
        let has_parts = plan.attempts().nth(1).is_some();
        let refusals = &mut entry.wait_reasons.get_or_insert_default().refusals;
        refusals.push_back((plan, Attempt { failures: 1, last: Some((shared, now + pause)) }));
        refusals.drain(..refusals.len().saturating_sub(REFUSALS));
        if !has_parts {
            self.notes.push((Arc::clone(&entry.object), NodeNote::Refused { message, pause }));
        }
        self.count(name, now);
        self.next(name, now)
    }

    /// Waits, longer each time, because another writer keeps reverting winpool's changes.
    fn back_off(&mut self, name: &str, until: Instant, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        let writer = entry.object.describe_other_writer();
        if entry.other_writer().is_none_or(|(known, _)| **known != *writer) {
            let pause = until.saturating_duration_since(now);
            self.notes.push((Arc::clone(&entry.object), NodeNote::Contested { writer: writer.clone(), pause }));
        }
        entry.wait_reasons.get_or_insert_default().contested.last = Some((writer.into(), until));
        self.count(name, now);
        NodeStep::Wait(Some(until))
    }

    fn fail(&mut self, name: &str, now: Instant) -> NodeStep {
        let Some(entry) = self.entries.get_mut(name) else { return NodeStep::Wait(None) };
        let (_, pause) = entry.fail(false, now);
        self.notes.push((Arc::clone(&entry.object), NodeNote::Failed { pause }));
        NodeStep::Wait(Some(now + pause))
    }
}

/// The next step for a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeStep {
    /// Send this patch.
    Patch {
        patch: Patch,
        /// The changes that the patch makes.
        plan: Box<NodePlan>,
    },
    /// Do nothing until the node changes, or until this moment.
    Wait(Option<Instant>),
}

/// The answer to a patch of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeAnswer {
    /// The patch was accepted. The node has this version now, if the answer shows it.
    Written(Option<Box<str>>),
    /// The patch was accepted, but the node, which has this version now, does not have the record that it was to get.
    Stripped(Box<str>),
    Refused(RequestError),
}
