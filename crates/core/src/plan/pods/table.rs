//! The table itself: the pods, and what is counted of them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::budget::{ENDED, GONE, keep_shares, namespace};
use crate::interner::Interner;
use crate::plan::Now;
use crate::plan::classes::runtime_class::{ClassUsers, owner};
use crate::plan::pods::fact::{PodFact, PodStage, PodTrouble, SandboxError};
use crate::plan::pods::failures::{ClassPods, Judge, PodEvent, PodFailures, PodSummary, moment};
use crate::plan::pods::history::PodHistory;
use crate::plan::pods::tolerations::{ClusterFacts, HelpQueue, TolerationAnswer, TolerationRequest, WindowsNodes};
use crate::plan::pools::objector::{DaemonSets, Objector, is_daemon_set};
use crate::pod::{Class, KnownError, Placement, Placements, Pod, PodProgress, System};

/// The shortest pause between two counts: names and numbers of workloads in status change no more often.
pub const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// Pauses that may be shorter in tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PodPauses {
    /// The time after the last refusal of a workload's pods for which it counts.
    pub refusals: Duration,
    /// The time for which the network of a pod has to fail before it counts.
    pub network: Duration,
    /// The time for which a pod that does not say its system has to wait for a node before it is named.
    pub unclear: Duration,
    /// The time for which a `DaemonSet` that is gone still holds a taint: many tools delete one and create it again.
    pub replaced: Duration,
}

impl Default for PodPauses {
    fn default() -> Self {
        let ten_minutes = Duration::from_mins(10);
        Self { refusals: ten_minutes, network: ten_minutes / 2, unclear: ten_minutes, replaced: ten_minutes }
    }
}

/// The reason why winpool does not know the pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownPods {
    /// A list is not complete, or the watch has just failed.
    NotListed,
    /// The list or the watch fails, for this reason.
    Unreadable(String),
    /// winpool lacks the permission; with the API server's message.
    Denied(String),
}

/// All unfinished pods, by `namespace/name`.
#[derive(Clone, Debug, Default)]
pub struct PodTable {
    pauses: PodPauses,
    pods: BTreeMap<Arc<str>, Seen>,
    /// The pods that may fail because of Windows.
    may_fail: BTreeSet<Arc<str>>,
    by_class: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Pods that the kubelet refused or that failed for good, by workload and error.
    ended: BTreeMap<(Arc<str>, &'static str), EndedPod>,
    /// Pods that were on a node and have finished or were deleted, the last one at the end.
    gone: BTreeMap<usize, (Arc<str>, PodFact)>,
    /// Pods that may be for Windows and were not looked at yet.
    unseen: BTreeSet<Arc<str>>,
    /// Pods that do not say their system and have started since the last look.
    started: BTreeSet<Arc<str>>,
    history: PodHistory,
    /// The cluster by which pods were last looked at.
    pub windows: WindowsNodes,
    /// True if the nodes are known.
    has_looked: bool,
    /// The pods that are to get tolerations.
    pub help: HelpQueue,
    pub daemon_sets: DaemonSets,
    /// `DaemonSets` that do not say their system, and whose pods have started on a Windows node.
    agents: BTreeSet<Arc<str>>,
    /// The `DaemonSets` for Windows; `None` before all lists are complete and were looked at.
    pub objectors: Option<Arc<Vec<Objector>>>,
    placements: Placements,
    texts: Interner<str>,
    /// The number of the last list.
    list: u32,
    /// True if the table has all pods: the last list was complete, and no other one has begun.
    pub is_complete: bool,
    /// The last count, and its time.
    counted: Option<(Instant, Arc<PodSummary>)>,
    /// True if a status may have changed.
    changed: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    fact: PodFact,
    /// The last list that showed the pod.
    list: u32,
}

#[derive(Clone, Debug)]
struct EndedPod {
    name: Arc<str>,
    fact: PodFact,
    /// The time of the last one like it.
    last: Instant,
}

impl PodTable {
    pub fn new(pauses: PodPauses) -> Self {
        Self { pauses, ..Self::default() }
    }

    /// A list of all pods begins, because winpool may have missed some. Until it ends, the table has the pods of the list and
    /// those from before.
    pub fn begin_list(&mut self) {
        (self.list, self.is_complete) = (self.list.wrapping_add(1), false);
    }

    /// The list is complete: pods that it did not show are gone.
    pub fn end_list(&mut self) {
        let gone = self.pods.iter().filter(|(_, seen)| seen.list != self.list).map(|(name, _)| Arc::clone(name));
        for name in gone.collect::<Vec<_>>() {
            self.forget(name);
        }
        (self.is_complete, self.changed, self.daemon_sets.are_changed) = (true, true, true);
    }

    /// Takes in a pod, as a list or the watch shows it.
    pub fn see(&mut self, pod: &Pod, now: Now) {
        let name = format!("{}/{}", pod.namespace, pod.name);
        let before = self.remove(&name);
        if pod.progress == PodProgress::Finished {
            self.help.forget(&name);
            return self.end(&name, pod, before.is_some(), now);
        }
        let fact = PodFact::of(pod, before.as_ref(), &mut self.placements, &mut self.texts, now);
        let name: Arc<str> = name.into();
        if fact.may_fail() {
            self.may_fail.insert(Arc::clone(&name));
        }
        if let Some(class) = &fact.placement.class {
            self.by_class.entry(Arc::clone(class)).or_default().insert(Arc::clone(&name));
        }
        if fact.has_unsaid_start() {
            self.started.insert(Arc::clone(&name));
        }
        if fact.may_be_helped()
            && (fact.placement.may_show_windows() || self.history.says_windows(&fact.workload, &fact.placement))
        {
            self.unseen.insert(Arc::clone(&name));
        } else {
            self.help.forget(&name);
        }
        self.changed |= fact.matters();
        self.pods.insert(name, Seen { fact, list: self.list });
    }

    /// Looks at pods that may be for Windows: at all of them if nodes, pools or RuntimeClasses have changed, which are given
    /// then, and otherwise at new ones.
    pub fn look(&mut self, changed: Option<WindowsNodes>, now: Instant) {
        let is_all = changed.is_some();
        if let Some(windows) = changed {
            self.changed |= !self.windows.has_pools_of(&windows);
            (self.windows, self.has_looked) = (windows, true);
        }
        let started = std::mem::take(&mut self.started);
        let seen = started.iter().filter_map(|name| self.pods.get_key_value(name));
        let is_on_windows = |fact: &PodFact| fact.node.as_ref().is_some_and(|node| self.windows.has(node));
        for (_, Seen { fact, .. }) in seen.clone().filter(|(_, seen)| is_on_windows(&seen.fact)) {
            self.history.started(fact, now);
            if is_daemon_set(&fact.workload) {
                self.daemon_sets.are_changed |= self.agents.insert(Arc::clone(&fact.workload));
            }
        }
        // Nodes change their system, and the workloads that are known so far may run elsewhere too.
        let all = (is_all || self.history.is_changed).then_some(&self.pods).into_iter().flatten();
        let all = all.filter(|(_, seen)| seen.fact.has_unsaid_start());
        for (name, Seen { fact, .. }) in seen.chain(all) {
            self.history.elsewhere(name, fact, || self.windows.is_elsewhere(fact));
        }
        let is_news = std::mem::take(&mut self.history.is_changed);
        if is_news {
            let by_workload = |(_, Seen { fact, .. }): &(&Arc<str>, &Seen)| {
                fact.may_be_helped() && self.history.says_windows(&fact.workload, &fact.placement)
            };
            self.unseen.extend(self.pods.iter().filter(by_workload).map(|(name, _)| Arc::clone(name)));
        }
        let mut look_at = |name: &Arc<str>, fact: &PodFact| {
            let lacks = self.windows.lacked_by(fact, &self.history);
            self.help.set(name, lacks, fact, now);
        };
        let unseen = std::mem::take(&mut self.unseen);
        let new = || unseen.iter().filter_map(|name| self.pods.get_key_value(name));
        if is_all {
            let all = self.pods.iter().filter(|(_, seen)| seen.fact.may_be_helped());
            all.for_each(|(name, seen)| look_at(name, &seen.fact));
        } else {
            new().for_each(|(name, seen)| look_at(name, &seen.fact));
        }
        for (_, Seen { fact, .. }) in new() {
            let time = fact.helped.as_deref().into_iter();
            time.for_each(|time| self.help.was_helped(self.windows.added_to(fact), &fact.workload, *time));
        }
        self.daemon_sets.forget(self.pauses.replaced, now);
        if std::mem::take(&mut self.daemon_sets.are_changed) || is_all || is_news {
            self.look_at_daemon_sets(now);
        }
    }

    /// Finds the `DaemonSets` for Windows.
    fn look_at_daemon_sets(&mut self, now: Instant) {
        if !self.is_complete || !self.daemon_sets.is_complete || !self.has_looked {
            return;
        }
        for pool in self.windows.policy.pools().filter(|_| self.objectors.is_none()) {
            pool.consent.held_by.iter().for_each(|set| self.daemon_sets.recall(set, &pool.spec.node_selector, now));
        }
        let is_for_windows = |Objector { name, placement, .. }: &Objector| {
            placement.system != Some(System::Linux)
                && (self.windows.says_windows(placement) || self.agents.contains(name))
        };
        let mut objectors: Vec<Objector> = self.daemon_sets.iter().filter(is_for_windows).collect();
        let came_later = objectors.iter_mut().filter(|set| self.windows.had_taints_before(set));
        let mut came_later: BTreeMap<Arc<str>, &mut Objector> =
            came_later.map(|set| (Arc::clone(&set.name), set)).collect();
        if !came_later.is_empty() {
            for Seen { fact, .. } in self.pods.values().filter(|seen| seen.fact.stage == PodStage::Started) {
                if let Some((set, node)) = came_later.get_mut(&fact.workload).zip(fact.node.as_ref()) {
                    set.runs_on.insert(Arc::clone(node));
                }
            }
        }
        if self.objectors.as_deref() != Some(&objectors) {
            (self.objectors, self.changed) = (Some(Arc::new(objectors)), true);
        }
    }

    /// True if there are pods that [`Self::look`] has not looked at.
    pub fn has_unseen(&self) -> bool {
        !self.unseen.is_empty() || !self.started.is_empty() || self.history.is_changed || self.daemon_sets.are_changed
    }

    /// The next pod that gets tolerations, if one is due. The answer belongs to [`Self::helped`].
    pub fn next_help(&mut self, now: Instant) -> Option<TolerationRequest> {
        let pods = &self.pods;
        self.help.next(|name| pods.get(name).map(|seen| &seen.fact), now)
    }

    /// The time at which [`Self::look`] finds something else although nothing changes.
    pub fn look_due(&self) -> Option<Instant> {
        self.daemon_sets.due(self.pauses.replaced)
    }

    /// Takes in the answer to a request.
    pub fn helped(&mut self, name: &str, answer: TolerationAnswer, now: Now) {
        let workload = self.pods.get(name).map(|seen| Arc::clone(&seen.fact.workload));
        self.help.answer(name, workload, answer, now.instant);
    }

    /// The pod was deleted.
    pub fn deleted(&mut self, namespace: &str, name: &str) {
        self.forget(format!("{namespace}/{name}").into());
    }

    fn forget(&mut self, name: Arc<str>) {
        self.help.forget(&name);
        if let Some(fact) = self.remove(&name) {
            self.remember(name, fact);
        }
    }

    fn remember(&mut self, name: Arc<str>, fact: PodFact) {
        if fact.node.is_some() {
            let placement = Arc::new(fact.placement.without_text());
            let next = self.gone.last_key_value().map_or(0, |(last, _)| last + 1);
            self.gone.insert(next, (name, PodFact { placement, ..fact }));
            keep_shares(&mut self.gone, GONE, |age, (_, fact)| (namespace(&fact.workload), *age));
        }
    }

    fn remove(&mut self, name: &str) -> Option<PodFact> {
        let (name, Seen { fact, .. }) = self.pods.remove_entry(name)?;
        self.history.elsewhere(&name, &fact, || false);
        self.may_fail.remove(&name);
        self.unseen.remove(&name);
        self.started.remove(&name);
        if let Some(class) = &fact.placement.class
            && let Some(of_class) = self.by_class.get_mut(class)
        {
            of_class.remove(&name);
            if of_class.is_empty() {
                self.by_class.remove(class);
            }
        }
        self.changed |= fact.matters();
        Some(fact)
    }

    /// Remembers a pod that the kubelet refused, or whose containers could not be started. `is_news` if it was unfinished just
    /// now; a list also shows those that ended long ago.
    fn end(&mut self, name: &str, pod: &Pod, is_news: bool, now: Now) {
        let fact = PodFact::of(pod, None, &mut self.placements, &mut self.texts, now);
        let counts = pod.start_status.refusal.is_some() || !pod.is_terminating;
        let last = if is_news { now.instant } else { moment(pod.created, now) };
        match fact.trouble().failures.first().copied().filter(|_| counts) {
            Some(error) => self.ended(name.into(), error, fact, last, now.instant),
            None => self.remember(name.into(), fact),
        }
    }

    /// Remembers the error by which a pod ended, if that was not long ago.
    fn ended(&mut self, name: Arc<str>, error: &'static KnownError, fact: PodFact, last: Instant, now: Instant) {
        if fact.is_ignored || now.duration_since(last) >= self.pauses.refusals {
            return;
        }
        self.changed = true;
        let key = (Arc::clone(&fact.workload), error.error);
        if let Some(known) = self.ended.get_mut(&key) {
            known.last = known.last.max(last);
            return;
        }
        self.ended.insert(key, EndedPod { name, fact, last });
        keep_shares(&mut self.ended, ENDED, |(workload, _), ended| (namespace(workload), ended.last));
    }

    /// Takes in an Event. It counts only for a pod that the table has, or had until recently, from the kubelet of its node: every
    /// user of a namespace can write Events.
    pub fn observe(&mut self, event: &PodEvent, now: Now) {
        let Some(error) = event.error() else { return };
        let name = format!("{}/{}", event.namespace, event.pod);
        if event.is_end() {
            let of_gone = || self.gone.values().rfind(|(gone, _)| **gone == *name).map(|(_, fact)| fact);
            let fact = self.pods.get(&*name).map(|seen| &seen.fact).or_else(of_gone);
            let on_node = fact.filter(|fact| fact.node.as_deref() == Some(&*event.node));
            if let Some(fact) = on_node.cloned() {
                let trouble = Some(Box::new(PodTrouble { failures: vec![error], ..PodTrouble::default() }));
                let fact = PodFact { trouble, ..fact };
                self.ended(name.into(), error, fact, moment(event.last.or(event.first), now), now.instant);
            }
            return;
        }
        let Some((name, _)) = self.pods.get_key_value(&*name) else { return };
        let name = Arc::clone(name);
        let Some(Seen { fact, .. }) = self.pods.get_mut(&name) else { return };
        if fact.stage != PodStage::WithoutSandbox || fact.node.as_deref() != Some(&*event.node) {
            return;
        }
        let is_known = fact.trouble().sandbox.as_ref().is_some_and(|known| known.error.counted == error.counted);
        if !is_known {
            fact.trouble.get_or_insert_default().sandbox =
                Some(SandboxError { error, began: moment(event.first, now) });
            self.may_fail.insert(name);
            self.changed = true;
        }
    }

    /// True if something that a status may say has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.help.has_news) | std::mem::take(&mut self.changed)
    }

    /// The unfinished pods of a RuntimeClass.
    pub fn users(&self, class: &str) -> ClassUsers {
        self.by_class.get(class).map(ClassUsers::of).unwrap_or_default()
    }

    /// The placements of all pods, each with one of them.
    pub fn placements(&self) -> impl Iterator<Item = (&Placement, &str)> {
        self.pods.iter().map(|(name, seen)| (&*seen.fact.placement, &**name))
    }

    /// The time of the next count; `None` if it would find the same as the last one, or if the table does not have all pods.
    /// `has_news` if something has changed since then. Time alone changes what is said of pods that fail.
    pub fn next_count(&self, has_news: bool, now: Instant) -> Option<Instant> {
        if !self.is_complete {
            return None;
        }
        let Some((last, _)) = &self.counted else { return Some(now) };
        let may_change = has_news || !self.may_fail.is_empty() || !self.ended.is_empty();
        may_change.then(|| *last + COUNT_INTERVAL)
    }

    /// The last count.
    pub fn summary(&self) -> Option<&Arc<PodSummary>> {
        self.counted.as_ref().map(|(_, summary)| summary)
    }

    /// Counts the pods of each class, and those that fail because of Windows. Returns true, once, if the pods have to be listed
    /// again, because there is room for those that could not be stored.
    pub fn count(&mut self, facts: &ClusterFacts<'_>, now: Now) -> bool {
        let classes = self.classes(facts);
        self.ended.retain(|_, ended| now.instant.duration_since(ended.last) < self.pauses.refusals);
        let (mut failures, mut fits) = (PodFailures::default(), BTreeMap::new());
        let judge = Judge { facts, classes: &classes, network: self.pauses.network, now: now.instant };
        let pods = &self.pods;
        let failing = self.may_fail.iter().filter_map(|name| judge.failure(name, &pods.get(name)?.fact, &mut fits));
        let ended = self.ended.values().filter_map(|ended| judge.ended(&ended.name, &ended.fact));
        failing.chain(ended).for_each(|failure| failures.add(failure));
        let mut help = self.help.report(|name| pods.get(name).map(|seen| &seen.fact));
        let suspects = || self.may_fail.iter().filter_map(|name| pods.get(name)).map(|seen| &seen.fact);
        let unknown = suspects().filter(|fact| fact.is_unknown()).map(|fact| namespace(&fact.workload).to_owned());
        let unknown: BTreeSet<String> = unknown.collect();
        for pool in self.windows.pools().filter(|_| !unknown.is_empty()) {
            help.entry(pool.name.clone()).or_default().unknown.clone_from(&unknown);
        }
        let others = self.windows.others.clone();
        for fact in suspects() {
            let since = fact.trouble().unschedulable_since.filter(|_| fact.may_be_helped());
            let odd = Cell::new(None);
            let is_mixed = || {
                fact.placement.names_only(|key, value| {
                    let node = others.first_of(key, value);
                    odd.set(odd.get().or(node));
                    node.is_some()
                })
            };
            let is_due = |since| is_mixed() || now.instant.duration_since(since) >= self.pauses.unclear;
            if since.is_some_and(is_due) {
                for pool in self.windows.pools_closed_to(fact) {
                    help.entry(pool).or_default().unclear.insert(Arc::clone(&fact.workload), odd.get().cloned());
                }
            }
        }
        let summary = PodSummary { pools: failures.report(), classes, help };
        self.placements.sweep();
        let before = self.counted.take().map(|(_, summary)| summary).filter(|before| **before == summary);
        self.counted = Some((now.instant, before.unwrap_or_else(|| Arc::new(summary))));
        self.placements.has_room_again()
    }

    /// The pods of each class of a pool that has some.
    fn classes(&self, facts: &ClusterFacts<'_>) -> BTreeMap<String, ClassPods> {
        let of_class = |class: &Arc<RuntimeClass>| {
            owner(class)?;
            let (name, class) = (class.name_any(), Class::from(class.as_ref()));
            let pods = self.by_class.get(&*name)?.iter().filter_map(|name| self.pods.get(name)).map(|seen| &seen.fact);
            let mut created_too_early = BTreeMap::new();
            for pod in pods.filter(|pod| pod.node.is_none() && !pod.is_terminating && pod.placement.lacks(&class)) {
                *created_too_early.entry(Arc::clone(&pod.workload)).or_default() += 1;
            }
            let mut nodes = facts.nodes.nodes();
            let is_unserved = !nodes.any(|(object, _)| object.node.labels.matches(&class.selector));
            Some((name.clone(), ClassPods { users: self.users(&name), created_too_early, is_unserved }))
        };
        facts.classes.iter().filter_map(of_class).collect()
    }
}
