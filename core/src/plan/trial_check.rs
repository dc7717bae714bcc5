//! The trial check: finds the pods that are not scheduled only because of a taint on trial.
//!
//! A check fixes nodes and trials when it starts. Then it receives every pod that no node has, one by one, and keeps only
//! those that may object. It asks for the workloads of those that have waited since an earlier check.

mod barrier;
mod scope;
mod suspects;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::Taint,
    labels::Labels,
    pod::{Pod, PodProgress, PodSpec, Workload, WorkloadKind, tolerate},
};

use super::{
    node_choice::{ForWindows, NodeChoice},
    node_groups::{GroupedNode, NodeGroups},
    trial::{WorkloadName, workload_name},
};

use barrier::Barrier;
use suspects::{ASKED, PLACEMENT, Suspect};

pub use scope::{OnTrial, Paused, TrialCheckScope};
pub use suspects::Suspects;
pub(super) use suspects::digest;

/// The limit of pods that are kept from one check to the next. Others are found when these are gone.
const SUSPECTS: usize = 1000;
/// The limit of placements whose result is kept for further pods.
const PLACEMENTS: usize = 1000;
/// The limit of workloads that are known not to object.
const EXCUSED: usize = 10_000;
/// The limit of owners above a pod.
const OWNERS: usize = 5;
/// The limit of nodes that lose a taint before the others.
const FIRST: usize = 100;

/// A check in progress.
#[derive(Clone, Debug)]
pub struct TrialCheck {
    scope: TrialCheckScope,
    before: Suspects,
    suspects: Suspects,
    /// Made for the first pod that is for Windows.
    places: OnceLock<Places>,
    /// The result for each placement, by its digest.
    fits: HashMap<u64, Option<Fit>>,
    /// The workloads that were read; `None` if one does not exist or may not be read.
    workloads: BTreeMap<WorkloadName, Option<Workload>>,
    /// Workloads of paused taints that may not be read. It is unknown if they are gone.
    unreadable: BTreeSet<WorkloadName>,
}

/// The nodes of a check, grouped by what decides if a pod could be scheduled there.
#[derive(Clone, Debug)]
struct Places {
    groups: NodeGroups,
    /// The classes of the nodes.
    barriers: Vec<Barrier>,
}

impl Places {
    fn of(scope: &TrialCheckScope) -> Self {
        let mut classes: HashMap<Barrier, usize> = HashMap::new();
        let grouped = scope.nodes.iter().map(|object| {
            let next = classes.len();
            let class = *classes.entry(Barrier::of(&object.node, scope)).or_insert(next);
            GroupedNode { labels: object.node.labels.clone(), name: Arc::clone(&object.name), class }
        });
        let groups = NodeGroups::new(grouped.collect());
        let mut barriers: Vec<(Barrier, usize)> = classes.into_iter().collect();
        barriers.sort_by_key(|(_, class)| *class);
        Self { groups, barriers: barriers.into_iter().map(|(barrier, _)| barrier).collect() }
    }
}

#[derive(Clone, Debug)]
struct Fit {
    trials: BTreeSet<usize>,
    nodes: BTreeSet<Arc<str>>,
}

/// The answer to "may a pod of this workload object?".
enum MayObject {
    /// Kind and name of its top controller.
    As((String, String)),
    /// It is ignored, or younger than the trial.
    Never,
    /// A workload has to be read first.
    Unread(WorkloadName),
}

/// The findings of a check about the taints on trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialCheckResult {
    /// The pods to compare with in the next check.
    pub suspects: Suspects,
    pub objections: Vec<Objection>,
    /// The trials against which no pod may object.
    pub quiet: Vec<OnTrial>,
    /// The taints whose pause ends, because the workload is right or gone.
    pub settled: Vec<Paused>,
}

/// A pod that waits only because of a taint on trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Objection {
    pub against: OnTrial,
    /// Its workload, such as `Deployment shop/web`.
    pub workload: String,
    /// Nodes that it would fit.
    pub nodes: BTreeSet<Arc<str>>,
}

impl TrialCheck {
    /// Starts a check; `before` are the pods that the last one found.
    pub fn start(scope: TrialCheckScope, mut before: Suspects) -> Self {
        before.forget_old_excuses(scope.started);
        let suspects = Suspects { excused_since: before.excused_since, ..Suspects::default() };
        let (places, fits) = (OnceLock::new(), HashMap::new());
        let (workloads, unreadable) = (BTreeMap::new(), BTreeSet::new());
        Self { scope, before, suspects, places, fits, workloads, unreadable }
    }

    /// True if pods have to be listed.
    pub fn lists_pods(&self) -> bool {
        !self.scope.trials.is_empty()
    }

    /// Reads a pod that no node has.
    pub fn pod(&mut self, pod: &Pod) {
        let is_gone = pod.is_terminating() || pod.progress == PodProgress::Finished || pod.spec.node.is_some();
        if is_gone || pod.is_ignored || !pod.spec.scheduling_gates.is_empty() {
            return;
        }
        let placement = format!("{:?} {:?} {:?}", pod.spec.node_selector, pod.spec.terms, pod.spec.tolerations);
        // The API server has added the selector of its class.
        let for_windows = ForWindows::of(&pod.spec);
        if for_windows == ForWindows::No || for_windows == ForWindows::IfNoOtherNode && placement.len() > PLACEMENT {
            return;
        }
        let only_if = (for_windows == ForWindows::IfNoOtherNode).then(|| NodeChoice::of(&pod.spec));
        let placement = digest(&placement);
        let Some(Fit { trials, nodes }) = self.fit(placement, &pod.spec) else { return };
        let owner = pod.controller.clone().unwrap_or_else(|| ("Pod".to_owned(), pod.name.clone()));
        let listed = workload_name(&pod.workload());
        let owner = listed.map_or(owner, |(kind, _, name)| (kind.as_str().to_owned(), name));
        let key = digest(&(&owner, &pod.namespace, self.since(&trials), placement));
        if self.before.excused.contains(&key) {
            self.suspects.excused.insert(key);
            return;
        }
        let seen = self.before.pods.get(&pod.uid).map_or(self.scope.started, |known| known.seen);
        if self.suspects.pods.len() < SUSPECTS {
            let (namespace, name) = (pod.namespace.clone(), pod.name.clone());
            let suspect = Suspect { seen, namespace, name, owner, key, trials, nodes, only_if };
            self.suspects.pods.insert(pod.uid.clone(), suspect);
        }
    }

    /// The start of the first of these trials.
    fn since(&self, trials: &BTreeSet<usize>) -> Timestamp {
        let starts = trials.iter().filter_map(|place| self.scope.trials.get(*place)).map(|trial| trial.since);
        starts.min().unwrap_or(Timestamp::MIN)
    }

    /// The nodes on which the pod could be scheduled without taints on trial, and those taints; `None` if there is no
    /// such node, or a node on which it could be scheduled as it is.
    fn fit(&mut self, placement: u64, spec: &PodSpec) -> Option<Fit> {
        if let Some(known) = self.fits.get(&placement) {
            return known.clone();
        }
        let found = self.find_fit(spec);
        if self.fits.len() < PLACEMENTS {
            self.fits.insert(placement, found.clone());
        }
        found
    }

    fn find_fit(&self, spec: &PodSpec) -> Option<Fit> {
        let Places { groups, barriers } = self.places.get_or_init(|| Places::of(&self.scope));
        let trials: Vec<_> = barriers.iter().map(|barrier| barrier.trials(&spec.tolerations)).collect();
        let mut best: Option<Fit> = None;
        for nodes in groups.fitting(spec) {
            let Some(trials) = nodes.first().and_then(|node| trials[groups.node(*node).class].as_ref()) else {
                continue;
            };
            if trials.is_empty() {
                return None;
            }
            if best.as_ref().is_none_or(|best| best.trials.len() > trials.len()) {
                best = Some(Fit { trials: trials.clone(), nodes: BTreeSet::new() });
            }
            if let Some(best) = best.as_mut().filter(|best| best.trials == *trials) {
                let room = FIRST.saturating_sub(best.nodes.len());
                best.nodes.extend(nodes.iter().take(room).map(|node| Arc::clone(&groups.node(*node).name)));
            }
        }
        best
    }

    /// The next workload that has to be read by name, unless enough were.
    pub fn unknown_workload(&self) -> Option<WorkloadName> {
        if self.workloads.len() + self.unreadable.len() >= ASKED {
            return None;
        }
        let of_suspect = |suspect: &Suspect| match self.may_object(suspect) {
            MayObject::Unread(name) => Some(name),
            MayObject::As(_) | MayObject::Never => None,
        };
        let paused = self.scope.paused.iter().map(|paused| &paused.workload);
        let mut unread = paused.filter(|name| !self.workloads.contains_key(*name) && !self.unreadable.contains(*name));
        self.ripe().find_map(of_suspect).or_else(|| unread.next().cloned())
    }

    /// Records the workload that was asked for; `None` if it does not exist.
    pub fn workload(&mut self, name: WorkloadName, found: Option<Workload>) {
        self.workloads.insert(name, found);
    }

    /// Records that the workload that was asked for may not be read. Its kind is then one that winpool does not read.
    pub fn unreadable_workload(&mut self, name: WorkloadName) {
        self.unreadable.insert(name);
    }

    /// True if it depends on the nodes of other systems which pods object. These have to be listed.
    pub fn needs_other_nodes(&self) -> bool {
        self.ripe().any(|suspect| suspect.only_if.is_some() && matches!(self.may_object(suspect), MayObject::As(_)))
    }

    /// Reads a node of another system.
    pub fn other_node(&mut self, name: &str, labels: &Labels) {
        let is_elsewhere =
            |suspect: &Suspect| suspect.only_if.as_ref().is_some_and(|choice| choice.matches(labels, name));
        let Suspects { pods, excused, .. } = &mut self.suspects;
        excused.extend(pods.extract_if(.., |_, suspect| is_elsewhere(suspect)).map(|(_, suspect)| suspect.key));
    }

    /// Records that all nodes of other systems were read.
    pub fn has_other_nodes(&mut self) {
        self.suspects.pods.values_mut().for_each(|suspect| suspect.only_if = None);
    }

    /// Ends the check.
    pub fn finish(mut self) -> TrialCheckResult {
        let (mut objections, mut excused) = (BTreeMap::<usize, Objection>::new(), BTreeSet::new());
        for suspect in self.ripe() {
            let owner = match self.may_object(suspect) {
                MayObject::As(owner) if suspect.only_if.is_none() => owner,
                MayObject::Never => {
                    excused.insert(suspect.key);
                    continue;
                }
                MayObject::As(_) | MayObject::Unread(_) => continue,
            };
            for (place, against) in self.scope.trials.iter().enumerate() {
                if suspect.trials.contains(&place) {
                    let workload = self.culprit(suspect, &owner, &against.taint);
                    let (against, nodes) = (against.clone(), BTreeSet::new());
                    let objection = objections.entry(place).or_insert(Objection { against, workload, nodes });
                    objection.nodes.extend(suspect.nodes.iter().cloned());
                }
            }
        }
        let mut suspects = std::mem::take(&mut self.suspects);
        let is_full = suspects.pods.len() >= SUSPECTS;
        suspects.pods.retain(|_, suspect| !excused.contains(&suspect.key));
        suspects.excused.extend(excused);
        suspects.excused = suspects.excused.into_iter().take(EXCUSED).collect();
        let excused_since = suspects.excused_since.unwrap_or(self.scope.started);
        suspects.excused_since = (!suspects.excused.is_empty()).then_some(excused_since);
        let is_quiet =
            |place: usize| !is_full && !suspects.pods.values().any(|suspect| suspect.trials.contains(&place));
        let trials = self.scope.trials.iter().enumerate();
        let quiet = trials.filter(|(place, _)| is_quiet(*place)).map(|(_, trial)| trial.clone()).collect();
        let settled = self.scope.paused.iter().filter(|paused| self.is_settled(&paused.taint, &paused.workload));
        let settled = settled.cloned().collect();
        TrialCheckResult { suspects, objections: objections.into_values().collect(), quiet, settled }
    }

    /// The pods that an earlier check found too.
    fn ripe(&self) -> impl Iterator<Item = &Suspect> {
        self.suspects.pods.values().filter(|suspect| suspect.seen <= self.scope.ripe)
    }

    /// Follows the owners of a pod. Workloads of kinds that winpool does not read object at any age, because
    /// their objects may be recreated for each run.
    fn may_object(&self, suspect: &Suspect) -> MayObject {
        let since = self.since(&suspect.trials);
        let is_younger = |workload: &Workload| workload.created.is_some_and(|created| created > since);
        let mut owner = suspect.owner.clone();
        for _ in 0..OWNERS {
            let Some(kind) = WorkloadKind::by_name(&owner.0) else { break };
            let name = (kind, suspect.namespace.clone(), owner.1.clone());
            match self.workloads.get(&name) {
                None if self.unreadable.contains(&name) => break,
                None => return MayObject::Unread(name),
                Some(None) => break,
                Some(Some(workload)) if workload.is_ignored => return MayObject::Never,
                Some(Some(workload)) => match &workload.controller {
                    Some(controller) => owner.clone_from(controller),
                    None if is_younger(workload) => return MayObject::Never,
                    None => break,
                },
            }
        }
        MayObject::As(owner)
    }

    /// The name of what has to change: the workload or, if there is nothing to change in that, its pod.
    fn culprit(&self, suspect: &Suspect, (kind, name): &(String, String), taint: &Taint) -> String {
        let Suspect { namespace, name: pod, .. } = suspect;
        let listed = WorkloadKind::by_name(kind).map(|kind| (kind, namespace.clone(), name.clone()));
        if listed.is_some_and(|workload| self.is_settled(taint, &workload)) {
            return format!("Pod {namespace}/{pod}");
        }
        format!("{kind} {namespace}/{name}")
    }

    /// True if the workload is gone or ignored, creates no more pods, or tolerates the taint.
    fn is_settled(&self, taint: &Taint, workload: &WorkloadName) -> bool {
        match self.workloads.get(workload) {
            None => false,
            Some(None) => true,
            Some(Some(found)) => {
                let class = found.template.runtime_class.as_ref().and_then(|name| self.scope.classes.get(name));
                let class = class.filter(|_| workload.0 != WorkloadKind::DaemonSet);
                let by_class = class.is_some_and(|class| tolerate(&class.tolerations, taint));
                found.is_over || found.is_ignored || by_class || found.template.tolerates(taint)
            }
        }
    }
}
