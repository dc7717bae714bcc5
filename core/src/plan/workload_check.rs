//! The workload check: finds the workloads that would become unschedulable if nodes got a taint.
//!
//! A check fixes nodes, classes and questions when it starts. Then it receives every template, and after that every
//! pod, one by one, and keeps only what matters.

mod assigned;
mod placement;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::Taint,
    labels::Labels,
    pod::{Class, Pod, PodProgress, Workload, WorkloadKind},
};

use placement::Says;

pub use assigned::AssignClass;
pub(super) use assigned::classes_by_build;

/// The limit of questions in one check. Further ones go to the next check.
pub(super) const QUESTIONS: usize = 64;

/// A Windows node in its planned state, without the taints that the check is about.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownNode {
    pub name: Arc<str>,
    pub uid: Arc<str>,
    /// Its planned labels.
    pub labels: Labels,
    /// Its taints, without those that come and go with the node's condition.
    pub taints: Vec<Taint>,
}

/// The question: would a workload become unschedulable if these nodes got this taint?
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The pool that asks.
    pub pool: String,
    pub taint: Taint,
    /// The nodes that lack it and would get it, as indexes into the list of nodes.
    pub candidates: BTreeSet<usize>,
    /// True if the pool enforces. Other questions then assume that the nodes get the taint.
    pub enforces: bool,
}

/// A set of questions.
type Mask = u64;

fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    (0..QUESTIONS).filter(move |bit| mask & (1 << bit) != 0)
}

/// The input of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckScope {
    pub nodes: Vec<KnownNode>,
    pub questions: Vec<Question>,
    /// The RuntimeClasses by name, as they are or, for a dry run, as they would be.
    pub classes: BTreeMap<String, Class>,
    /// The namespaces that the admission policy `tolerate-windows` excludes; `None` if it is not installed.
    pub intolerant_namespaces: Option<BTreeSet<String>>,
    /// The input of the admission policy `assign-class`, if it is installed.
    pub assign_class: Option<AssignClass>,
    /// The present time, to tell how long a pod has waited.
    pub now: Timestamp,
}

/// A check in progress.
#[derive(Clone, Debug)]
pub struct WorkloadCheck {
    scope: CheckScope,
    by_name: HashMap<Arc<str>, usize>,
    /// The questions about each node.
    candidates: Vec<Mask>,
    /// Those of pools that enforce: the node gets these taints if no workload counts against them.
    coming: Vec<Mask>,
    workloads: HashMap<String, SeenWorkload>,
    /// Jobs of `CronJobs`, whose pods count as those of the `CronJob`.
    jobs: HashMap<String, String>,
    /// The newest `ReplicaSet` of each rollout controller, and its result if it has no replicas.
    newest_sets: HashMap<String, (Option<Timestamp>, String, Found)>,
    unlisted: BTreeMap<String, String>,
    /// Node selectors that may also select nodes of another operating system.
    undecided: BTreeMap<BTreeMap<String, String>, Option<bool>>,
}

/// The results for one workload.
#[derive(Clone, Debug, Default)]
struct SeenWorkload {
    is_ignored: bool,
    /// For a DaemonSet, the questions about its nodes whose taint its template does not tolerate.
    daemon_set: Option<Mask>,
    /// True if each of its pods counts by itself.
    has_two_revisions: bool,
    /// The result for the template.
    template: Found,
    /// The creation time of its newest pod, and the taints that this pod does not tolerate.
    newest: Option<(Option<Timestamp>, Mask)>,
    /// True if one of its pods has started on Windows.
    started: bool,
    /// Pods that count, by question, and the number of them.
    pods: Found,
    count: usize,
    /// Pods that count if one of the workload's pods has started on Windows.
    strays: Found,
    stray_count: usize,
}

/// The kind without which a check has no result.
pub const PODS: &str = "pods";

/// Questions that are answered with yes. Some only count if a node selector selects no node of another system.
#[derive(Clone, Debug, Default)]
struct Found {
    sure: Mask,
    unsure: Vec<(BTreeMap<String, String>, Mask)>,
}

impl Found {
    fn add(&mut self, mask: Mask, only_if: Option<BTreeMap<String, String>>) {
        match only_if {
            _ if mask == 0 => {}
            None => self.sure |= mask,
            Some(selector) if self.unsure.iter().any(|(known, found)| *known == selector && found & mask == mask) => {}
            Some(selector) => self.unsure.push((selector, mask)),
        }
    }

    fn is_empty(&self) -> bool {
        self.sure == 0 && self.unsure.is_empty()
    }
}

/// The results of a check for one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckAnswer {
    /// The nodes that may get each taint, by uid: no workload becomes unschedulable.
    pub clean: BTreeMap<Taint, Arc<BTreeSet<Arc<str>>>>,
    /// The taints that would make a workload unschedulable.
    pub held: BTreeSet<Taint>,
    /// Workloads that would become unschedulable, each with the number of its pods that count.
    pub unschedulable: BTreeMap<String, usize>,
    /// Kinds that were left out, with the API server's message.
    pub unlisted: BTreeMap<String, String>,
}

impl WorkloadCheck {
    /// Starts a check; `None` if there is no question.
    pub fn start(mut scope: CheckScope) -> Option<Self> {
        scope.questions.truncate(QUESTIONS);
        if scope.questions.is_empty() {
            return None;
        }
        let (mut candidates, mut coming) = (vec![0; scope.nodes.len()], vec![0; scope.nodes.len()]);
        for (bit, question) in scope.questions.iter().enumerate() {
            for node in &question.candidates {
                candidates[*node] |= 1 << bit;
                coming[*node] |= Mask::from(question.enforces) << bit;
            }
        }
        Some(Self {
            by_name: scope.nodes.iter().enumerate().map(|(index, node)| (Arc::clone(&node.name), index)).collect(),
            candidates,
            coming,
            scope,
            workloads: HashMap::new(),
            jobs: HashMap::new(),
            newest_sets: HashMap::new(),
            unlisted: BTreeMap::new(),
            undecided: BTreeMap::new(),
        })
    }

    /// The input, fixed at the start.
    pub fn scope(&self) -> &CheckScope {
        &self.scope
    }

    /// Records that the API server does not allow to list this kind, named in the plural.
    pub fn unlisted(&mut self, plural: &str, words: String) {
        self.unlisted.insert(plural.to_owned(), words);
    }

    /// Reads a workload. All workloads have to come before the first pod.
    pub fn workload(&mut self, kind: WorkloadKind, workload: &Workload) {
        let Workload { namespace, name, controller, .. } = workload;
        let key = format!("{} {namespace}/{name}", kind.as_str());
        if let (WorkloadKind::Job, Some((owner, name))) = (kind, controller)
            && owner == "CronJob"
        {
            self.jobs.insert(key, format!("CronJob {namespace}/{name}"));
            return;
        }
        let is_daemon_set = kind == WorkloadKind::DaemonSet;
        let counts = !workload.is_over && !workload.is_ignored && workload.template.node.is_none();
        let (template, fits) = if counts { self.of_template(kind, workload) } else { (Found::default(), 0) };
        if let (WorkloadKind::ReplicaSet, Some((owner, name))) = (kind, controller) {
            let is_scaled_to_zero = workload.replicas == 0;
            let newest = self.newest_sets.entry(format!("{owner} {namespace}/{name}")).or_default();
            if newest.0 <= workload.created {
                let found = if is_scaled_to_zero { template.clone() } else { Found::default() };
                *newest = (workload.created, key.clone(), found);
            }
            if is_scaled_to_zero {
                return;
            }
        }
        if workload.is_ignored || is_daemon_set || workload.has_two_revisions || !template.is_empty() {
            let seen = self.workloads.entry(key).or_default();
            seen.is_ignored = workload.is_ignored;
            seen.daemon_set = is_daemon_set.then_some(fits);
            seen.has_two_revisions = workload.has_two_revisions;
            seen.template = template;
        }
    }

    pub fn pod(&mut self, pod: &Pod) {
        if pod.progress == PodProgress::Finished || pod.is_mirror || pod.is_ignored {
            return;
        }
        let on = pod.spec.node.as_deref().map(|name| self.by_name.get(name).copied());
        let mut key = pod.workload();
        if let Some(owner) = self.jobs.get(&key) {
            key.clone_from(owner);
        }
        let known = self.workloads.get(&key);
        if known.is_some_and(|seen| seen.is_ignored)
            || (pod.is_terminating() && !self.counts_while_terminating(pod, known))
        {
            return;
        }
        // A pod on a node of another system matters only as the newest of its workload.
        if on == Some(None) && known.is_none_or(|seen| seen.template.is_empty()) {
            return;
        }
        let is_daemon_set = known.is_some_and(|seen| seen.daemon_set.is_some());
        let (untolerated, says) = (self.untolerated(&pod.spec.tolerations), Self::says(&pod.spec, None));
        let on_windows = on.flatten();
        let on_candidate = on_windows.map_or(0, |index| self.candidates[index]);
        // A DaemonSet counts by its template. Its pods only tell if they run on Windows at all.
        let bound = if is_daemon_set { on_candidate } else { on_candidate & untolerated };
        let may_move = !is_daemon_set && on != Some(None) && !matches!(says, Says::NotWindows);
        let elsewhere =
            if may_move { self.without_node(untolerated & !on_candidate, untolerated, &pod.spec) } else { 0 };
        let started = on_windows.is_some() && pod.progress == PodProgress::Started;
        let is_stray = on_windows.is_some() && !started && self.is_stray(pod, &says);
        let matters = bound | elsewhere != 0;
        // The newest pod decides for its workload, so it is kept even if it does not matter by itself.
        let may_be_newest = pod.controller.is_some() && (on_windows.is_some() || may_move);
        if !matters && known.is_none() && !may_be_newest {
            return;
        }
        let only_if = match says {
            Says::WindowsIf(selector) if matters => Some(selector),
            _ => None,
        };
        if let Some(selector) = &only_if {
            self.undecided.entry(selector.clone()).or_default();
        }
        let seen = self.workloads.entry(key).or_default();
        seen.started |= started;
        if seen.newest.as_ref().is_none_or(|(created, _)| *created <= pod.created) {
            seen.newest = Some((pod.created, untolerated));
        }
        if !matters {
        } else if is_stray {
            // A pod whose selector selects only Windows nodes is no stray.
            if only_if.is_some() {
                seen.count += 1;
                seen.pods.add(bound, only_if);
            } else {
                seen.stray_count += 1;
            }
            seen.strays.add(bound, None);
        } else {
            seen.count += 1;
            seen.pods.add(bound, None);
            seen.pods.add(elsewhere, only_if);
        }
    }

    /// True if the template of this workload, which counted before, now tolerates everything, or creates no pods any
    /// more.
    pub fn is_settled(&self, kind: WorkloadKind, workload: &Workload) -> bool {
        let class = self.class_of(workload).ok().flatten();
        let class = class.filter(|_| kind != WorkloadKind::DaemonSet);
        let tolerations = workload.template.tolerations.iter().chain(class.iter().flat_map(|class| &class.tolerations));
        let tolerations: Vec<_> = tolerations.cloned().collect();
        workload.is_over || workload.is_ignored || self.untolerated(&tolerations) == 0
    }

    /// The node selectors for which it is still unknown if a node of another system matches them.
    pub fn undecided(&self) -> impl Iterator<Item = &BTreeMap<String, String>> {
        self.undecided.iter().filter(|(_, answer)| answer.is_none()).map(|(selector, _)| selector)
    }

    /// Records if a node of another system matches this selector.
    pub fn decide(&mut self, selector: &BTreeMap<String, String>, on_another_system: bool) {
        self.undecided.insert(selector.clone(), Some(on_another_system));
    }

    /// Ends the check and returns its results by pool.
    pub fn finish(mut self) -> BTreeMap<String, CheckAnswer> {
        for (_, (_, key, found)) in std::mem::take(&mut self.newest_sets) {
            if !found.is_empty() {
                self.workloads.entry(key).or_default().template = found;
            }
        }
        let mut found: BTreeMap<usize, BTreeMap<String, usize>> = BTreeMap::new();
        for (name, seen) in &self.workloads {
            for bit in bits(self.counts_against(seen)) {
                let count = seen.count + if seen.started { seen.stray_count } else { 0 };
                found.entry(bit).or_default().insert(name.clone(), count);
            }
        }
        let mut answers: BTreeMap<String, CheckAnswer> = BTreeMap::new();
        for (bit, question) in self.scope.questions.iter().enumerate() {
            let answer = answers.entry(question.pool.clone()).or_default();
            answer.unlisted.clone_from(&self.unlisted);
            if let Some(found) = found.get(&bit) {
                answer.held.insert(question.taint.clone());
                answer.unschedulable.extend(found.clone());
            } else if self.unlisted.contains_key(PODS) {
                answer.held.insert(question.taint.clone());
            } else {
                let uids = question.candidates.iter().map(|index| Arc::clone(&self.scope.nodes[*index].uid));
                answer.clean.insert(question.taint.clone(), Arc::new(uids.collect()));
            }
        }
        answers
    }

    /// The questions that this workload counts against.
    fn counts_against(&self, seen: &SeenWorkload) -> Mask {
        if seen.is_ignored {
            return 0;
        }
        let by_pods = self.resolve(&seen.pods) | if seen.started { self.resolve(&seen.strays) } else { 0 };
        let by_template = self.resolve(&seen.template);
        if let Some(fits) = seen.daemon_set {
            // A workload that does not say Windows counts by its pods on Windows.
            return by_template | fits & by_pods;
        }
        match seen.newest {
            Some((_, untolerated)) if !seen.has_two_revisions => (by_pods | by_template) & untolerated,
            _ => by_pods | by_template,
        }
    }

    fn resolve(&self, found: &Found) -> Mask {
        let sure = |selector| self.undecided.get(selector) == Some(&Some(false));
        found.unsure.iter().filter(|(selector, _)| sure(selector)).fold(found.sure, |all, (_, mask)| all | mask)
    }
}
