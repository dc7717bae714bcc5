//! Computes the status of a pool, with its conditions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::api::names::{condition, reason};
use crate::api::{
    BuildStatus, ClassState, HelpedWorkload, Mode, NodeCounts, ObjectReference, Problem, RuntimeClassStatus, Summary,
    Taint, TaintStatus, WindowsPoolStatus, number,
};
use crate::budget::{NAMED, NAMED_OF_NAMESPACE, namespace};
use crate::plan::nodes::numbers::{Overlap, Tally};
use crate::plan::pods::failures::{PodHealth, PoolFailures};
use crate::plan::pools::pool::Pool;
use crate::windows::{Build, builds};
use crate::words::{count as count_of, joined, plain, yaml};

/// 32 declared ones, and those of 32 named builds and of the builds that a release knows.
const CLASSES: usize = 80;
const BUILDS: usize = 32;
const TAINTS: usize = 32;
/// The time for which the name of a helped workload is kept: a `CronJob` may run once a month.
const HELPED: SignedDuration = SignedDuration::from_hours(35 * 24);
/// The age at which winpool says again that it runs.
const SEEN: SignedDuration = SignedDuration::from_mins(10);
const MESSAGE: usize = 1024;
/// The longest text in a printer column, in bytes.
const COLUMN: usize = 200;

/// The status of a valid pool. `previous` is its present status: transition times of unchanged conditions are kept.
pub fn status(
    pool: &Pool,
    observation: &Observation,
    previous: Option<&WindowsPoolStatus>,
    now: Timestamp,
) -> WindowsPoolStatus {
    let tally = &observation.tally;
    let mut conditions = Conditions { previous, now, generation: observation.generation, done: Vec::new() };
    for (name, verdict) in [
        (condition::READY, ready(pool, observation)),
        (condition::NODES_LABELED, nodes_verdict(pool, observation, tally.unlabeled, "labelled")),
        (condition::TAINTS_APPLIED, taints_verdict(pool, observation)),
    ] {
        conditions.push(name, unreadable_verdict(&observation.unreadable).unwrap_or(verdict));
    }
    conditions.push(condition::RUNTIME_CLASSES_APPLIED, classes_verdict(pool, observation));
    match &observation.health {
        PodHealth::Off => {}
        PodHealth::NotYet => conditions.keep(condition::WORKLOADS_HEALTHY),
        PodHealth::Seen { summary, unseen } => {
            let failures = summary.pools.get(&pool.spec.name).cloned().unwrap_or_default();
            conditions.push(condition::WORKLOADS_HEALTHY, health_verdict(&failures, unseen.as_deref()));
        }
    }
    if let Some(overlap) = &tally.overlap {
        conditions.push(condition::OVERLAPPING, overlap_verdict(overlap));
    }
    WindowsPoolStatus {
        observed_generation: observation.generation,
        last_seen: last_seen(previous, now),
        nodes: tally.counts(),
        taints: taints(pool, observation, previous, now),
        summary: Summary {
            runtime_classes: plain(&joined(observation.classes.iter().map(|class| &class.name)), COLUMN),
            builds: plain(&joined(tally.builds.keys()), COLUMN),
        },
        helped_workloads: helped(pool, &observation.health, previous, now),
        builds: builds(pool, observation),
        runtime_classes: observation.classes.iter().take(CLASSES).cloned().collect(),
        problems: problems(&observation.problems),
        conditions: conditions.done,
    }
}

/// The status of a suspended pool: it keeps everything that was reported before.
pub fn suspended_status(
    pool: &str,
    reason: &'static str,
    message: &str,
    generation: Option<i64>,
    previous: Option<&WindowsPoolStatus>,
    now: Timestamp,
) -> WindowsPoolStatus {
    let mut conditions = Conditions { previous, now, generation, done: Vec::new() };
    for name in condition::always() {
        let status = if name == condition::READY { "False" } else { "Unknown" };
        conditions.push(name, Verdict { status, reason, message: message.to_owned() });
    }
    WindowsPoolStatus {
        observed_generation: generation,
        last_seen: last_seen(previous, now),
        problems: problems(&[Problem::new(reason, ObjectReference::windows_pool(pool), message)]),
        conditions: conditions.done,
        ..previous.cloned().unwrap_or_default()
    }
}

/// The taints of `status.taints`: those that the pool may add from now on, winpool's taints that its nodes carry,
/// and as many as fit of all that it ever added.
pub fn ever_applied(pool: &Pool, carried: &[Taint]) -> Vec<Taint> {
    let mut taints = if pool.spec.enforces() { pool.applicable_taints() } else { Vec::new() };
    for taint in carried.iter().chain(&pool.managed_taints) {
        if taints.len() < TAINTS && !taints.contains(taint) {
            taints.push(taint.clone());
        }
    }
    taints.sort();
    taints
}

/// `status.taints`. A taint that no node has had so far is on one since now.
fn taints(
    pool: &Pool,
    observation: &Observation,
    previous: Option<&WindowsPoolStatus>,
    now: Timestamp,
) -> Vec<TaintStatus> {
    let status = |taint: Taint| {
        let (text, seen) = (taint.to_string(), observation.taints.get(&taint).cloned().unwrap_or_default());
        let known = previous.and_then(|status| status.taints.iter().find(|known| known.taint == text)?.since.clone());
        // Another writer may have set a time that is still to come.
        let known = known.filter(|since| since.0 <= now);
        let since = known.or(seen.since.clone()).or_else(|| (seen.nodes > 0).then_some(Time(now)));
        TaintStatus { taint: text, since, ..seen }
    };
    ever_applied(pool, &[]).into_iter().map(status).collect()
}

/// `status.lastSeen`: the time of the previous status while it is young, so that a pool at rest costs few writes. Another writer
/// may have set one that is still to come.
fn last_seen(previous: Option<&WindowsPoolStatus>, now: Timestamp) -> Option<Time> {
    let known = previous.and_then(|status| status.last_seen.clone());
    let young = known.filter(|seen| (SignedDuration::ZERO..SEEN).contains(&now.duration_since(seen.0)));
    young.or(Some(Time(now)))
}

/// `status.helpedWorkloads`: the last ones, of this term of leadership and of earlier ones.
fn helped(
    pool: &Pool,
    health: &PodHealth,
    previous: Option<&WindowsPoolStatus>,
    now: Timestamp,
) -> Vec<HelpedWorkload> {
    let before = previous.into_iter().flat_map(|status| &status.helped_workloads);
    let mut helped: BTreeMap<&str, Timestamp> = before.map(|known| (known.name.as_str(), known.last.0)).collect();
    if let PodHealth::Seen { summary, .. } = health
        && let Some(help) = summary.help.get(&pool.spec.name)
    {
        helped.extend(help.helped.iter().map(|(name, last)| (&**name, *last)));
    }
    helped.retain(|_, last| now.duration_since(*last) < HELPED);
    let mut helped: Vec<_> = helped.into_iter().collect();
    helped.sort_by_key(|(name, last)| (Reverse(*last), *name));
    let entry = |(name, last): (&str, Timestamp)| HelpedWorkload { name: name.to_owned(), last: Time(last) };
    shared(helped, |(name, _)| Some(namespace(name))).map(entry).collect()
}

/// The builds with most nodes, those with a name first: a node can report any number as its build.
fn builds(pool: &Pool, observation: &Observation) -> Vec<BuildStatus> {
    let mut builds: Vec<_> = observation.tally.builds.iter().collect();
    builds.sort_by_key(|(build, nodes)| (pool.spec.version_of(**build).is_none(), Reverse(**nodes), **build));
    builds.truncate(BUILDS);
    builds.sort();
    builds.into_iter().map(|(build, nodes)| build_status(pool, *build, *nodes, observation)).collect()
}

fn build_status(pool: &Pool, build: Build, nodes: usize, observation: &Observation) -> BuildStatus {
    let discovered = pool.spec.class_name(build).filter(|_| pool.spec.discover);
    BuildStatus {
        build: build.to_string(),
        product: builds::by_build(build).map(|product| product.name.to_owned()),
        nodes: number(nodes),
        runtime_class: discovered.filter(|name| observation.classes.iter().any(|class| class.name == *name)),
    }
}

fn problems(problems: &[Problem]) -> Vec<Problem> {
    let shown = |problem: &Problem| Problem { message: plain(&problem.message, MESSAGE), ..problem.clone() };
    shared(problems.iter().collect(), |problem| problem.object.namespace.as_deref()).map(shown).collect()
}

/// Those that a status names. A namespace has more than its share only if no other one needs the place.
fn shared<'a, T>(all: Vec<T>, of: impl Fn(&T) -> Option<&'a str>) -> impl Iterator<Item = T> {
    let mut shares = BTreeMap::<&str, usize>::new();
    let (first, rest): (Vec<T>, Vec<T>) = all.into_iter().partition(|named| {
        let share = of(named).map(|namespace| shares.entry(namespace).or_default());
        share.is_none_or(|share| std::mem::replace(share, *share + 1) < NAMED_OF_NAMESPACE)
    });
    first.into_iter().chain(rest).take(NAMED)
}

struct Conditions<'a> {
    previous: Option<&'a WindowsPoolStatus>,
    now: Timestamp,
    generation: Option<i64>,
    done: Vec<Condition>,
}

impl<'a> Conditions<'a> {
    /// The present condition of this type.
    fn present(&self, name: &str) -> Option<&'a Condition> {
        self.previous?.conditions.iter().find(|condition| condition.type_ == name)
    }

    /// Keeps the condition as it is, if there is one.
    fn keep(&mut self, name: &str) {
        self.done.extend(self.present(name).cloned());
    }

    fn push(&mut self, name: &str, Verdict { status, reason, message }: Verdict) {
        let same = self.present(name).filter(|condition| condition.status == status);
        self.done.push(Condition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: plain(&message, MESSAGE),
            observed_generation: self.generation,
            last_transition_time: same.map_or(Time(self.now), |condition| condition.last_transition_time.clone()),
        });
    }
}

/// The observed state of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// `metadata.generation` of the pool.
    pub generation: Option<i64>,
    /// The sums over its nodes.
    pub tally: Tally,
    /// Windows nodes in the cluster, selected or not.
    pub windows_nodes: usize,
    /// The kinds that winpool cannot read, with the reasons. The rest may be old.
    pub unreadable: BTreeMap<&'static str, String>,
    /// What is seen of each taint. The name, and the time, come with the status.
    pub taints: BTreeMap<Taint, TaintStatus>,
    /// The reason why taints are held, if it is known.
    pub held: Option<Verdict>,
    /// The classes after the writes.
    pub classes: Vec<RuntimeClassStatus>,
    /// The names of those that select a capability label.
    pub labelled: Vec<String>,
    /// Problems, the most important first.
    pub problems: Vec<Problem>,
    /// The pods that fail because of Windows.
    pub health: PodHealth,
}

// The conditions.

/// The status, reason and message of a condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    pub status: &'static str,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    pub(crate) fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "True", reason, message: message.into() }
    }

    pub(crate) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "False", reason, message: message.into() }
    }

    pub(crate) fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self { status: "Unknown", reason, message: message.into() }
    }
}

/// The verdict about nodes while kinds cannot be read, which are given with the reasons.
fn unreadable_verdict(unreadable: &BTreeMap<&'static str, String>) -> Option<Verdict> {
    let (kinds, (_, why)) = (joined(unreadable.keys()), unreadable.first_key_value()?);
    let message = format!("winpool cannot read {kinds}, so this status may be old, and no taint is added: {why}");
    Some(Verdict::unknown(reason::READ_FAILED, message))
}

fn ready(pool: &Pool, observation: &Observation) -> Verdict {
    let nodes = observation.tally.counts();
    for lost in [reason::STATUS_NOT_STORED, reason::RECORD_REMOVED, reason::TOLERATIONS_FAIL, reason::PODS_NOT_SEEN] {
        if let Some(problem) = observation.problems.iter().find(|problem| problem.reason == lost) {
            return Verdict::no(lost, problem.message.clone());
        }
    }
    let pending_classes = count(observation, ClassState::Pending);
    if pool.spec.mode == Mode::DryRun {
        let message = format!("dry run: winpool would change {}", changes(nodes.pending, pending_classes));
        return Verdict::yes(reason::DRY_RUN, message);
    }
    let in_use = observation.problems.iter().find(|problem| problem.reason == reason::CLASS_IN_USE);
    if let Some(problem) = in_use.filter(|_| nodes.pending == 0) {
        return Verdict::no(reason::CLASS_IN_USE, format!("{}: {}", problem.object, problem.message));
    }
    if nodes.pending > 0 || pending_classes > 0 {
        let message = format!("winpool has yet to change {}", changes(nodes.pending, pending_classes));
        return Verdict::no(reason::IN_PROGRESS, message);
    }
    if let Some(verdict) = held_taints(observation).or_else(|| bad_classes(observation)) {
        return Verdict { status: "False", ..verdict };
    }
    if let Some(contested) = observation.problems.iter().find(|problem| problem.reason == reason::CONTESTED) {
        return Verdict::no(reason::CONTESTED, format!("{}: {}", contested.object, contested.message));
    }
    if nodes.selected == 0 {
        return no_nodes(pool, observation);
    }
    let failing = observation.health.counts(&pool.spec.name).unwrap_or_default().into_values().sum();
    let parts = [
        (nodes.blocked, "; winpool cannot change ", "node", ", see problems"),
        (nodes.ignored, "; winpool ignores ", "node", ""),
        (number(failing), "; ", "pod", " cannot run because of Windows, see WorkloadsHealthy"),
    ];
    let parts = parts.into_iter().filter(|(number, ..)| *number > 0);
    let parts: Vec<_> = parts.map(|(number, a, noun, b)| format!("{a}{}{b}", count_of(number, noun))).collect();
    let (done, all, parts) = (nodes.converged, count_of(nodes.selected, "node"), parts.concat());
    Verdict::yes(reason::DONE, format!("{done} of {all} converged{parts}"))
}

fn changes(nodes: i64, classes: usize) -> String {
    format!("{} and {}", count_of(nodes, "node"), count_of(classes, "RuntimeClass"))
}

fn no_nodes(pool: &Pool, observation: &Observation) -> Verdict {
    let windows = count_of(observation.windows_nodes, "Windows node");
    let selector = &pool.spec.node_selector;
    if selector.is_empty() || observation.windows_nodes == 0 {
        return Verdict::yes(reason::NO_NODES_SELECTED, format!("the pool selects no node; the cluster has {windows}"));
    }
    let selector = yaml(&json!(selector));
    let message = format!(
        "nodeSelector {selector} matches none of {windows}: correct it, unless its node group has no nodes at present"
    );
    Verdict::yes(reason::NO_NODES_SELECTED, message)
}

/// The verdict about taints that wait, if there are some: the reason, or that winpool has yet to look at the pods.
fn held_taints(observation: &Observation) -> Option<Verdict> {
    let nodes = count_of(observation.tally.counts().held, "node");
    let message = format!(
        "the taints of {nodes} wait until winpool has listed the pods and added the toleration to those that run there"
    );
    let is_waiting = observation.tally.counts().held > 0;
    observation.held.clone().or_else(|| is_waiting.then(|| Verdict::no(reason::WAITING, message)))
}

/// The verdict about taints.
fn taints_verdict(pool: &Pool, observation: &Observation) -> Verdict {
    if let Some(held) = held_taints(observation) {
        return held;
    }
    let (nodes, untainted) = (observation.tally.counts(), observation.tally.untainted);
    if pool.spec.wants.is_some() {
        return nodes_verdict(pool, observation, untainted, "tainted");
    }
    if nodes.selected > 0 && untainted == 0 {
        return Verdict::yes(reason::DONE, "taintPolicy is Never: winpool adds no taint");
    }
    nodes_verdict(pool, observation, untainted, "freed of old taints")
}

/// The message if every node that winpool may change is done.
fn every_node(nodes: NodeCounts, done: &str) -> String {
    let ignored = count_of(nodes.ignored, "node");
    match nodes.ignored {
        0 => format!("every node is {done}"),
        all if all == nodes.selected => format!("winpool ignores {ignored}; the pool selects no other node"),
        _ => format!("winpool ignores {ignored}; every other node is {done}"),
    }
}

fn nodes_verdict(pool: &Pool, observation: &Observation, missing: usize, done: &str) -> Verdict {
    let nodes = observation.tally.counts();
    if nodes.selected == 0 {
        return no_nodes(pool, observation);
    }
    if missing == 0 {
        return Verdict::yes(reason::DONE, every_node(nodes, done));
    }
    if pool.spec.mode == Mode::DryRun {
        return Verdict::no(reason::DRY_RUN, format!("dry run: {} would be {done}", count_of(missing, "node")));
    }
    if nodes.pending > 0 {
        return Verdict::no(reason::IN_PROGRESS, format!("{} not {done} yet", count_of(missing, "node")));
    }
    let node_problem = observation.problems.iter().find(|problem| problem.object.kind == "Node");
    let mut reasons = [reason::ADMISSION_DENIED, reason::CONTESTED, reason::OPERATING_SYSTEM_DIFFERS].into_iter();
    let reason = reasons.find(|reason| node_problem.is_some_and(|problem| problem.reason == *reason));
    Verdict::no(
        reason.unwrap_or(reason::BUILD_UNKNOWN),
        format!("{} cannot be {done}, see problems", count_of(missing, "node")),
    )
}

/// The verdict about pods. winpool does not see all of them for the reason `unseen`, if given.
fn health_verdict(failures: &PoolFailures, unseen: Option<&str>) -> Verdict {
    let unseen = unseen.map(|message| format!("winpool does not see all pods that fail: {message}"));
    if failures.counts.is_empty() {
        return match unseen {
            Some(message) => Verdict::unknown(reason::PODS_NOT_SEEN, message),
            None => Verdict::yes(reason::HEALTHY, "no pod is known to fail because of Windows"),
        };
    }
    let named = failures.workloads.iter().map(|workload| {
        format!("{} ({}, {})", workload.object, count_of(workload.pods, "pod"), workload.cause.as_str())
    });
    let named = joined(named);
    let more = if failures.more > 0 { format!(" and {} more", failures.more) } else { String::new() };
    let pods = count_of(failures.counts.values().sum::<usize>(), "pod");
    let unseen = unseen.map(|message| format!("; {message}")).unwrap_or_default();
    let message = format!("{pods} of {named}{more} cannot run because of Windows, see problems{unseen}");
    Verdict::no(reason::PODS_FAILING, message)
}

fn overlap_verdict(Overlap { nodes, example, owner }: &Overlap) -> Verdict {
    let message = format!(
        "{} in the nodeSelector of this pool and of an older one, such as {example} of {owner}; change one of the \
         nodeSelectors",
        count_of(*nodes, "node")
    );
    Verdict::yes(reason::OLDER_POOL, message)
}

fn classes_verdict(pool: &Pool, observation: &Observation) -> Verdict {
    let pending = count(observation, ClassState::Pending);
    if pool.spec.mode == Mode::DryRun && pending > 0 {
        let message = format!("dry run: winpool would write {}", count_of(pending, "RuntimeClass"));
        return Verdict::no(reason::DRY_RUN, message);
    }
    if let Some(verdict) = bad_classes(observation) {
        return verdict;
    }
    if pending > 0 {
        let message = format!("winpool has yet to write {}", count_of(pending, "RuntimeClass"));
        return Verdict::no(reason::IN_PROGRESS, message);
    }
    let message = format!("{} up to date", count_of(observation.classes.len(), "RuntimeClass"));
    if observation.labelled.is_empty() {
        return Verdict::yes(reason::DONE, message);
    }
    let note = "A new node serves them after winpool has labelled it, and an autoscaler needs the labels in the template of an empty node \
                group";
    Verdict::yes(reason::DONE, format!("{message}; by capability label: {}. {note}", joined(&observation.labelled)))
}

/// The verdict if winpool cannot write classes of the pool, or cannot create them.
fn bad_classes(observation: &Observation) -> Option<Verdict> {
    let of = |reason| observation.problems.iter().filter(move |problem| problem.reason == reason);
    if count(observation, ClassState::Conflict) > 0 {
        let conflicts = of(reason::CLASS_CONFLICT).map(|problem| format!("{} {}", problem.object, problem.message));
        return Some(Verdict::no(reason::CLASS_CONFLICT, conflicts.collect::<Vec<_>>().join("; ")));
    }
    let problem = of(reason::CLASS_NAME_INVALID).next()?;
    Some(Verdict::no(reason::CLASS_NAME_INVALID, problem.message.clone()))
}

fn count(observation: &Observation, state: ClassState) -> usize {
    observation.classes.iter().filter(|class| class.state == state).count()
}
