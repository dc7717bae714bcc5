//! The pods that fail because of Windows, as lists of Pending pods and Events show them.
//!
//! An interpreter shows the table Events and pods, asks for the next step, executes it and passes on the answer. The
//! table has no clock and no client. A round lists Pending pods once, and then reads pods that Events have named: pods
//! that fail to start are Running, and refused ones Failed. All that is kept is bounded.

mod event;
mod judge;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::pod::{Cause, Certainty, KnownError, Pod, PodProgress};

use super::{nodes::NodeTable, now::Now};

use event::is_refusal;
use judge::{Fits, PodFailure};
use report::PodFailures;

pub use event::{PodEvent, REASONS};
pub use judge::ClusterFacts;
pub use report::{PodHealth, PoolFailures, WorkloadFailure};

/// The limit of pods that Events have named and that winpool reads.
const NAMED: usize = 100;
/// The limit of such pods of one workload.
const OF_WORKLOAD: usize = 10;
/// The limit of such pods that one round reads.
const READ: usize = 50;
/// The limit of workloads whose pods are refused.
const REFUSED: usize = 100;
/// The time for which a pod is read after its last Event, although it does not fail: its status follows the Event.
const STATUS_FOLLOWS: Duration = Duration::from_secs(30);
/// The time without a complete round after which the last one is too old.
const TOO_OLD: Duration = Duration::from_mins(2);
/// The pause after a round, as a multiple of its duration.
const PAUSE_TIMES: u32 = 20;

/// Pauses that may be shorter in tests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailingPauses {
    /// The shortest one between two rounds.
    pub rounds: Duration,
    /// The time after the last refusal of a workload's pods for which it counts.
    pub refusals: Duration,
    /// The time for which the network of a pod has to fail before it counts.
    pub network: Duration,
}

impl Default for FailingPauses {
    fn default() -> Self {
        Self { rounds: Duration::from_secs(15), refusals: Duration::from_mins(10), network: Duration::from_mins(5) }
    }
}

/// Namespace and name of a pod.
pub type PodName = (String, String);

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodStep {
    /// List one page of Pending pods, those with a node only, or all, and show each of them.
    List {
        only_with_node: bool,
    },
    Read(PodName),
    Wait(Instant),
}

/// The answer to a step.
#[derive(Clone, Debug)]
pub enum PodAnswer {
    Listed,
    /// `None`: the pod does not exist.
    Read(Option<Box<Pod>>),
    /// winpool lacks the permission; with the API server's message.
    Denied(String),
    Failed(String),
}

/// The table of pods that fail because of Windows.
#[derive(Clone, Debug, Default)]
pub struct FailingPods {
    pauses: FailingPauses,
    round: Option<Round>,
    not_before: Option<Instant>,
    /// The end of the last complete round.
    complete: Option<Instant>,
    /// The pods that Events have named.
    named: BTreeMap<PodName, Named>,
    refused: Vec<RefusedWorkload>,
    /// Unscheduled pods that another listing shows while it is in progress, and those of the last complete one.
    shared: (PodFailures, Fits),
    last_shared: Option<(Instant, PodFailures)>,
    denied: Option<String>,
    failed: Option<String>,
    report: Option<Arc<BTreeMap<String, PoolFailures>>>,
    /// True if the known failures have changed.
    changed: bool,
}

#[derive(Clone, Debug)]
struct Round {
    started: Instant,
    failures: PodFailures,
    fits: Fits,
    /// Named pods that the list has shown.
    seen: BTreeSet<PodName>,
    /// Named pods to read, the last one first; `None` until pods were listed.
    left: Option<Vec<PodName>>,
    reading: Option<PodName>,
}

/// A pod that an Event has named.
#[derive(Clone, Debug)]
struct Named {
    error: &'static KnownError,
    /// Its node, by the Event.
    node: String,
    began: Instant,
    last: Instant,
    read: Option<Instant>,
    failure: Option<PodFailure>,
}

/// A workload whose pods the kubelet refuses, or a pod without a controller.
#[derive(Clone, Debug)]
struct RefusedWorkload {
    /// Namespace and the start of the names of the workload's pods, if it has a controller.
    pods: Option<PodName>,
    error: &'static KnownError,
    failure: PodFailure,
    last: Instant,
}

impl FailingPods {
    pub fn new(pauses: FailingPauses) -> Self {
        Self { pauses, ..Self::default() }
    }

    /// Takes in an Event.
    pub fn observe(&mut self, event: &PodEvent, nodes: &NodeTable, now: Now) {
        let Some(error) = event.error() else { return };
        let is_on_windows = nodes.object(&event.node).is_some();
        // A Windows pod may be refused by a Linux node.
        if !is_on_windows && error.counted.is_none_or(|(cause, _)| cause != Cause::OsName) {
            return;
        }
        let (began, last) = (event.began(now), event.seen(now));
        if is_refusal(error) && now.instant.duration_since(last) >= self.pauses.refusals {
            return;
        }
        let name = (event.namespace.clone(), event.pod.clone());
        let pods = start_of(&name);
        let is_known = |known: &&mut RefusedWorkload| known.pods.as_ref() == Some(&pods) && known.error == error;
        if let Some(known) = self.refused.iter_mut().find(is_known) {
            known.last = known.last.max(last);
            return;
        }
        if let Some(named) = self.named.get_mut(&name) {
            if named.error.counted != error.counted {
                named.began = began;
            }
            (named.error, named.last) = (error, named.last.max(last));
            return;
        }
        let of_workload = self.named.keys().filter(|name| start_of(name) == pods).count();
        if self.named.len() < NAMED && of_workload < OF_WORKLOAD {
            let named = Named { error, node: event.node.clone(), began, last, read: None, failure: None };
            self.named.insert(name, named);
        }
    }

    /// Returns the next step. Unless it is a wait, its answer belongs to [`Self::answer`].
    pub fn next(&mut self, now: Instant) -> PodStep {
        let Some(round) = &mut self.round else {
            if let Some(not_before) = self.not_before.filter(|not_before| now < *not_before) {
                return PodStep::Wait(not_before);
            }
            let is_new = |(at, _): &(Instant, PodFailures)| now.duration_since(*at) < self.pauses.rounds;
            let shared = self.last_shared.take().filter(is_new);
            let only_with_node = shared.is_some();
            let failures = shared.map(|(_, failures)| failures).unwrap_or_default();
            self.round = Some(Round::new(now, failures));
            return PodStep::List { only_with_node };
        };
        match round.left.as_mut().and_then(Vec::pop) {
            Some(name) => {
                round.reading = Some(name.clone());
                PodStep::Read(name)
            }
            None => PodStep::Wait(self.finish(now)),
        }
    }

    /// Takes in a pod of the list that was asked for.
    pub fn see(&mut self, pod: &Pod, facts: &ClusterFacts<'_>, now: Now) {
        let Some(round) = &mut self.round else { return };
        let name = (pod.namespace.clone(), pod.name.clone());
        let named = self.named.get_mut(&name);
        let by_event = named.as_ref().and_then(|named| named.in_sandbox(pod, facts, self.pauses.network, now.instant));
        if let Some(failure) = by_event.or_else(|| facts.judge(pod, &mut round.fits)) {
            round.failures.add(failure);
        }
        let Some(named) = named else { return };
        if named.is_about_sandbox() {
            (named.read, named.failure) = (Some(now.instant), None);
            round.seen.insert(name);
        } else {
            // The next list shows it too.
            self.named.remove(&name);
        }
    }

    /// Takes in a pod without a node of another listing, so that this one can leave such pods out.
    pub fn see_unscheduled(&mut self, pod: &Pod, facts: &ClusterFacts<'_>) {
        let (failures, fits) = &mut self.shared;
        if let Some(failure) = facts.judge(pod, fits) {
            failures.add(failure);
        }
    }

    /// Ends that listing, which has shown all pods without a node, or has failed.
    pub fn saw_unscheduled(&mut self, is_complete: bool, now: Instant) {
        let (failures, _) = std::mem::take(&mut self.shared);
        if is_complete {
            self.last_shared = Some((now, failures));
        }
    }

    /// Takes in the answer to the last step.
    pub fn answer(&mut self, answer: PodAnswer, facts: &ClusterFacts<'_>, now: Now) {
        match answer {
            PodAnswer::Listed => self.plan_reads(),
            PodAnswer::Read(pod) => self.was_read(pod.as_deref(), facts, now),
            PodAnswer::Denied(message) => {
                self.changed |= self.denied.as_ref() != Some(&message);
                self.denied = Some(message);
                self.end_round(now.instant, 1);
            }
            PodAnswer::Failed(message) => self.request_failed(message, now.instant),
        }
    }

    /// True if what is known has changed since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Returns what is known of failing pods. Events cannot be watched for the reason `events`, if given.
    pub fn health(&self, events: Option<String>, now: Instant) -> PodHealth {
        let is_old = || self.complete.is_none_or(|complete| now.duration_since(complete) >= TOO_OLD);
        let pods = self.denied.as_ref().map(|message| format!("it may not list pods: {message}"));
        let failed = self.failed.as_ref().filter(|_| is_old()).map(|message| format!("it cannot list pods: {message}"));
        let unseen = pods.or(failed).or(events.map(|message| format!("it cannot watch Events: {message}")));
        match &self.report {
            None if unseen.is_none() => PodHealth::NotYet,
            report => PodHealth::Seen { pools: report.clone().unwrap_or_default(), unseen },
        }
    }

    /// Ends the round: without a result if pods could not be listed, and else without the pods that were not read.
    fn request_failed(&mut self, message: String, now: Instant) {
        if let Some((name, round)) = self.round.as_mut().and_then(|round| Some((round.reading.take()?, round))) {
            // It is the last one to be read in the next round.
            self.named.get_mut(&name).into_iter().for_each(|named| named.read = Some(now));
            round.left = Some(Vec::new());
        } else {
            self.failed = Some(message);
            self.end_round(now, 1);
        }
    }

    /// Plans to read named pods that the list did not show, those that were not read for the longest time first.
    fn plan_reads(&mut self) {
        let Some(round) = &mut self.round else { return };
        let unread = self.named.iter().filter(|(name, _)| !round.seen.contains(*name));
        let mut unread: Vec<_> = unread.map(|(name, named)| (named.read, name.clone())).collect();
        unread.sort();
        unread.truncate(READ);
        round.left = Some(unread.into_iter().rev().map(|(_, name)| name).collect());
    }

    fn was_read(&mut self, pod: Option<&Pod>, facts: &ClusterFacts<'_>, now: Now) {
        let Some(round) = &mut self.round else { return };
        let Some((name, named)) = round.reading.take().and_then(|name| self.named.remove_entry(&name)) else { return };
        let Some(pod) = pod else {
            let refused = is_refusal(named.error).then(|| facts.gone(&name, &named.node, named.error)).flatten();
            return self.refuse(None, named.error, refused, named.last);
        };
        if pod.progress == PodProgress::Finished || pod.is_terminating() || pod.is_ignored {
            let by_event = || facts.known(pod, named.error).filter(|_| is_refusal(named.error));
            let by_status = || facts.failure(pod).filter(|_| !pod.is_terminating());
            let pods = pod.controller.is_some().then(|| start_of(&name));
            let failure = by_event().or_else(by_status).filter(|_| !pod.is_ignored);
            return self.refuse(pods, named.error, failure, named.last);
        }
        let by_event = named.in_sandbox(pod, facts, self.pauses.network, now.instant);
        let failure = by_event.or_else(|| facts.judge(pod, &mut round.fits));
        let is_of_interest =
            failure.is_some() || now.instant.duration_since(named.last) < STATUS_FOLLOWS || named.waits_in_sandbox(pod);
        if is_of_interest {
            self.named.insert(name, Named { read: Some(now.instant), failure, ..named });
        }
    }

    /// Records that a pod was refused, or has failed for good.
    fn refuse(
        &mut self,
        pods: Option<PodName>,
        error: &'static KnownError,
        failure: Option<PodFailure>,
        last: Instant,
    ) {
        let Some(failure) = failure else { return };
        let is_same = |known: &&mut RefusedWorkload| {
            (&known.failure.pool, known.failure.cause, &known.failure.workload)
                == (&failure.pool, failure.cause, &failure.workload)
        };
        let is_full = self.refused.len() >= REFUSED;
        match self.refused.iter_mut().find(is_same) {
            Some(known) => known.last = known.last.max(last),
            None if !is_full => self.refused.push(RefusedWorkload { pods, error, failure, last }),
            None => {}
        }
    }

    /// Ends a complete round. Returns the start of the next one.
    fn finish(&mut self, now: Instant) -> Instant {
        let mut failures = self.round.as_mut().map(|round| std::mem::take(&mut round.failures)).unwrap_or_default();
        self.refused.retain(|refused| now.duration_since(refused.last) < self.pauses.refusals);
        let is_refused = |name: &PodName, error| {
            self.refused.iter().any(|known| known.pods.as_ref() == Some(&start_of(name)) && known.error == error)
        };
        let known: Vec<PodName> = self
            .named
            .iter()
            .filter(|(name, named)| is_refused(name, named.error))
            .map(|(name, _)| name.clone())
            .collect();
        self.named.retain(|name, _| !known.contains(name));
        let named = self.named.values().filter_map(|named| named.failure.as_ref());
        named
            .chain(self.refused.iter().map(|refused| &refused.failure))
            .for_each(|failure| failures.add(failure.clone()));
        let report = failures.report();
        self.changed |= self.report.as_deref() != Some(&report) || self.denied.is_some() || self.failed.is_some();
        self.report = Some(Arc::new(report));
        (self.complete, self.denied, self.failed) = (Some(now), None, None);
        self.end_round(now, PAUSE_TIMES)
    }

    fn end_round(&mut self, now: Instant, times: u32) -> Instant {
        let lasted = self.round.take().map(|round| now.duration_since(round.started)).unwrap_or_default();
        let not_before = now + self.pauses.rounds.max(lasted * times);
        self.not_before = Some(not_before);
        not_before
    }
}

impl Round {
    fn new(started: Instant, failures: PodFailures) -> Self {
        Self { started, failures, fits: Fits::default(), seen: BTreeSet::new(), left: None, reading: None }
    }
}

impl Named {
    /// The failure of a pod without a sandbox, which only an Event shows.
    fn in_sandbox(&self, pod: &Pod, facts: &ClusterFacts<'_>, lasts: Duration, now: Instant) -> Option<PodFailure> {
        let (_, certainty) = self.error.counted?;
        let is_certain = certainty != Certainty::IfItLasts || now.duration_since(self.began) >= lasts;
        (is_certain && self.waits_in_sandbox(pod)).then(|| facts.known(pod, self.error)).flatten()
    }

    fn is_about_sandbox(&self) -> bool {
        matches!(self.error.counted, Some((Cause::PauseImage | Cause::Network, _)))
    }

    fn waits_in_sandbox(&self, pod: &Pod) -> bool {
        let waits = pod.progress == PodProgress::Waiting
            && !pod.start_status.has_sandbox
            && pod.start_status.failures.is_empty();
        self.is_about_sandbox() && waits && !pod.is_terminating() && !pod.is_ignored
    }
}

/// Namespace and the start of the name that pods of one controller share.
fn start_of((namespace, name): &PodName) -> PodName {
    (namespace.clone(), name.rsplit_once('-').map_or(name.as_str(), |(start, _)| start).to_owned())
}
