//! The workload check: finds the workloads that would become unschedulable if nodes got a taint.
//!
//! A check fixes nodes, classes and questions when it starts. Then it receives every template, and after that every
//! pod, one by one, and keeps only what matters.

mod answer;
mod assigned;
mod placement;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{
    api::Taint,
    labels::Labels,
    pod::{Class, Pod, PodProgress, Workload, WorkloadKind},
};

use super::{admission::Admission, node_groups::NodeGroups};

pub use assigned::ClassSource;
pub(super) use placement::ForWindows;
pub use placement::NodeChoice;

/// The limit of questions in one check. Further ones go to the next check.
pub(super) const QUESTIONS: usize = 64;

/// A Windows node in its planned state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownNode {
    pub name: Arc<str>,
    pub uid: Arc<str>,
    /// Its planned labels.
    pub labels: Labels,
    /// Its taints and those that it is about to get, without the ones that the check is about.
    pub taints: Vec<Taint>,
    /// True if pods can start there: it is ready and not cordoned.
    pub serves: bool,
}

/// The question: would a workload become unschedulable if these nodes got this taint?
#[derive(Clone, Debug, PartialEq)]
pub struct TaintQuestion {
    /// The pool that asks.
    pub pool: String,
    pub taint: Taint,
    /// The nodes that lack it and would get it, as indexes into the list of nodes.
    pub candidates: BTreeSet<usize>,
    /// Before the taint is approved: approved taints are added to new nodes at once.
    pub to_approve: Option<PoolMembers>,
    /// True if the pool enforces. Other questions then assume that the nodes get the taint.
    pub enforces: bool,
}

/// The nodes that a pool has, and those that it may get.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolMembers {
    /// Its present nodes, as indexes into the list of nodes.
    pub present: BTreeSet<usize>,
    /// The labels of all its nodes, also future ones.
    pub labels: BTreeMap<String, String>,
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
    pub questions: Vec<TaintQuestion>,
    /// The RuntimeClasses by name.
    pub classes: BTreeMap<String, Class>,
    /// In a dry run, the RuntimeClasses that would be written.
    pub planned_classes: BTreeMap<String, Class>,
    /// The admission policies.
    pub admission: Admission,
    /// The fields of each pool that the admission policy `assign-class` reads, if it acts for the pool.
    pub class_sources: BTreeMap<String, ClassSource>,
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
    /// Those for which a workload that fits the node counts: the node is a candidate, or a node of a pool for which the
    /// taint is to be approved.
    concerned: Vec<Mask>,
    /// Those of pools that enforce: the node gets these taints if no workload counts against them.
    coming: Vec<Mask>,
    /// The nodes in groups for which all of this is equal. Made for the first pod that needs them.
    groups: OnceLock<NodeGroups>,
    /// Every pod of another controller may be one. This map needs less memory than a hash map while it grows.
    workloads: BTreeMap<String, SeenWorkload>,
    /// The newest `ReplicaSets` of each rollout controller.
    newest_sets: HashMap<String, NewestSets>,
    unlisted: BTreeMap<String, String>,
    server_ahead: SignedDuration,
    /// The requirements of pods and templates on nodes that nodes of another operating system may meet too. True if one
    /// does, and `None` until that is known.
    choices: Vec<(NodeChoice, Option<bool>)>,
    by_choice: HashMap<String, usize>,
    /// Their size in memory, roughly.
    size_of_choices: usize,
}

/// The results for one workload.
#[derive(Clone, Debug, Default)]
struct SeenWorkload {
    is_ignored: bool,
    /// Boxed, because most pods of other controllers have none, and there may be many.
    template: Option<Box<SeenTemplate>>,
    /// The taints that at least one of its pods does not tolerate; `None` without a pod.
    of_pods: Option<Mask>,
    /// True if one of its pods has started on Windows.
    started: bool,
    /// Pods on candidates, and the number of pods that count.
    bound: Confirmed,
    count: u32,
    others: Option<Box<SeenOthers>>,
}

/// The results for pods that most workloads do not have.
#[derive(Clone, Debug, Default)]
struct SeenOthers {
    /// Pods without a node, or that could not come back to their node.
    moving: Confirmed,
    /// Pods on candidates that count if one of the workload's pods has started on Windows.
    strays: Mask,
    stray_count: u32,
}

impl SeenWorkload {
    fn others(&mut self) -> &mut SeenOthers {
        self.others.get_or_insert_default()
    }
}

/// The newest `ReplicaSets` of one controller.
#[derive(Clone, Debug, Default)]
struct NewestSets {
    created: Option<Timestamp>,
    /// Those without replicas.
    empty: Vec<(String, SeenTemplate)>,
}

/// The results for a template.
#[derive(Clone, Debug, Default)]
struct SeenTemplate {
    /// The taints that its pods do not tolerate.
    untolerated: Mask,
    /// True if the next pod may be made from another template, so that each pod counts by itself.
    is_rolling_out: bool,
    /// True if the workload's pods show what an admission webhook adds to the template.
    is_shown_by_pods: bool,
    is_daemon_set: bool,
    /// The questions that it counts against.
    found: Confirmed,
}

/// The kind without which a check has no result.
pub const PODS: &str = "pods";

/// Questions that are answered with yes. Some only count if a choice of nodes matches no node of another system.
#[derive(Clone, Debug, Default)]
struct Confirmed {
    sure: Mask,
    /// The index of the choice, and the questions.
    unsure: Vec<(usize, Mask)>,
}

impl Confirmed {
    fn add(&mut self, mask: Mask, only_if: Option<usize>) {
        match only_if {
            _ if mask == 0 => {}
            None => self.sure |= mask,
            Some(choice) if self.unsure.iter().any(|(known, found)| *known == choice && found & mask == mask) => {}
            Some(choice) => self.unsure.push((choice, mask)),
        }
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
    /// The lead of the API server's clock, which dates workloads.
    pub server_ahead: SignedDuration,
}

impl WorkloadCheck {
    /// Starts a check; `None` if there is no question.
    pub fn start(mut scope: CheckScope) -> Option<Self> {
        scope.questions.truncate(QUESTIONS);
        if scope.questions.is_empty() {
            return None;
        }
        let empty = || vec![0; scope.nodes.len()];
        let (mut candidates, mut concerned, mut coming) = (empty(), empty(), empty());
        for (bit, question) in scope.questions.iter().enumerate() {
            for node in &question.candidates {
                candidates[*node] |= 1 << bit;
                coming[*node] |= Mask::from(question.enforces) << bit;
            }
            let of_pool = question.to_approve.iter().flat_map(|pool| &pool.present);
            for node in question.candidates.iter().chain(of_pool) {
                concerned[*node] |= 1 << bit;
            }
        }
        Some(Self {
            by_name: scope.nodes.iter().enumerate().map(|(index, node)| (Arc::clone(&node.name), index)).collect(),
            candidates,
            concerned,
            coming,
            groups: OnceLock::new(),
            scope,
            workloads: BTreeMap::new(),
            newest_sets: HashMap::new(),
            unlisted: BTreeMap::new(),
            server_ahead: SignedDuration::ZERO,
            choices: Vec::new(),
            by_choice: HashMap::new(),
            size_of_choices: 0,
        })
    }

    /// Replaces what a cache or an earlier answer showed by what the API server has at the start of the listing. `now` is
    /// its time, in whole seconds. In case of doubt its clock is ahead, so that a workload is older.
    pub fn begin(&mut self, classes: impl IntoIterator<Item = (String, Class)>, admission: Admission, now: Timestamp) {
        self.server_ahead = now.duration_since(self.scope.now) + SignedDuration::from_secs(1);
        self.scope.classes = classes.into_iter().collect();
        (self.scope.admission, self.scope.now) = (admission, now);
    }

    /// The input, fixed at the start.
    pub fn scope(&self) -> &CheckScope {
        &self.scope
    }

    /// Records that the API server does not allow to list this kind, named in the plural.
    pub fn unlisted(&mut self, plural: &str, message: String) {
        self.unlisted.insert(plural.to_owned(), message);
    }

    /// Reads a workload. All workloads have to come before the first pod.
    pub fn workload(&mut self, kind: WorkloadKind, workload: &Workload) {
        let Workload { namespace, name, controller, .. } = workload;
        let key = format!("{} {namespace}/{name}", kind.as_str());
        if workload.is_ignored {
            self.workloads.entry(key).or_default().is_ignored = true;
            return;
        }
        if workload.is_over {
            return;
        }
        let template = self.template(kind, workload);
        if let (WorkloadKind::ReplicaSet, Some((owner, name))) = (kind, controller) {
            let newest = self.newest_sets.entry(format!("{owner} {namespace}/{name}")).or_default();
            if newest.created < workload.created {
                *newest = NewestSets { created: workload.created, empty: Vec::new() };
            }
            if workload.replicas == 0 {
                if newest.created == workload.created {
                    newest.empty.push((key, template));
                }
                return;
            }
        }
        self.workloads.entry(key).or_default().template = Some(Box::new(template));
    }

    pub fn pod(&mut self, pod: &Pod) {
        if pod.progress == PodProgress::Finished || pod.is_mirror || pod.is_ignored {
            return;
        }
        let key = pod.workload();
        let known = self.workloads.get(&key);
        if known.is_some_and(|seen| seen.is_ignored) {
            return;
        }
        let template = known.and_then(|seen| seen.template.as_deref());
        let is_judged_by_template = template.is_some_and(|template| !template.is_rolling_out);
        if pod.is_terminating() && (is_judged_by_template || !self.counts_while_terminating(pod)) {
            return;
        }
        let (is_known, is_daemon_set) = (known.is_some(), template.is_some_and(|template| template.is_daemon_set));
        let own = self.untolerated(&pod.spec.tolerations);
        let on = pod.spec.node.as_deref().map(|name| self.by_name.get(name).copied());
        // A pod on a node of another system only shows what its workload tolerates.
        if on == Some(None) {
            if let Some(seen) = self.workloads.get_mut(&key) {
                seen.of_pods = Some(seen.of_pods.unwrap_or_default() | own);
            }
            return;
        }
        let on_windows = on.flatten();
        // The pod that replaces a bound one gets the tolerations of the class as it is now.
        let class = pod.spec.runtime_class.as_ref().filter(|_| on.is_some()).and_then(|name| self.class(name));
        let untolerated = own & class.map_or(Mask::MAX, |class| self.untolerated(&class.tolerations));
        let on_candidate = on_windows.map_or(0, |index| self.candidates[index]);
        let bound = if is_judged_by_template { on_candidate } else { on_candidate & untolerated };
        let for_windows = ForWindows::of(&pod.spec);
        let may_move = !is_daemon_set && (on.is_none() || !is_judged_by_template);
        let moving = if may_move {
            untolerated & !on_candidate & self.without_refuge(untolerated, &pod.spec, for_windows)
        } else {
            0
        };
        let started = on_windows.is_some() && pod.progress == PodProgress::Started;
        let matters = bound | moving != 0;
        let is_remembered = matters || is_known || started && pod.controller.is_some();
        if !is_remembered {
            return;
        }
        let is_stray = on_windows.is_some() && !started && self.is_stray(pod, for_windows);
        let only_if = if matters && for_windows == ForWindows::IfNoOtherNode { self.choice(&pod.spec) } else { None };
        let seen = self.workloads.entry(key).or_default();
        seen.started |= started;
        seen.of_pods = Some(seen.of_pods.unwrap_or_default() | own);
        if !matters {
        } else if is_stray {
            // A pod whose choice of nodes matches only Windows nodes is no stray.
            if only_if.is_some() {
                seen.count += 1;
                seen.bound.add(bound, only_if);
            } else {
                seen.others().stray_count += 1;
            }
            seen.others().strays |= bound;
        } else {
            seen.count += 1;
            seen.bound.add(bound, None);
            if moving != 0 {
                seen.others().moving.add(moving, only_if);
            }
        }
    }

    /// True if the template of this workload, which counted before, now tolerates everything, or creates no pods any
    /// more.
    pub fn is_settled(&self, kind: WorkloadKind, workload: &Workload) -> bool {
        let is_rolling_out = kind.rolls_out() && workload.is_rolling_out;
        workload.is_over || workload.is_ignored || !is_rolling_out && self.of_template(kind, workload) == 0
    }

    /// The choices of nodes for which it is still unknown if a node of another system matches them.
    pub fn undecided(&self) -> Vec<NodeChoice> {
        let open = self.choices.iter().filter(|(_, answer)| answer.is_none());
        open.map(|(choice, _)| choice.clone()).collect()
    }

    /// Records if a node of another system matches this choice.
    pub fn decide(&mut self, choice: &NodeChoice, on_another_system: bool) {
        if let Some(index) = self.by_choice.get(&choice.key()) {
            self.choices[*index].1 = Some(on_another_system);
        }
    }
}
