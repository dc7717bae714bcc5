//! Computes the status of a pool.

mod verdict;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use crate::{
    api::{
        ApprovedTaint, BuildStatus, NodeCounts, ObjectReference, Problem, Revisions, RuntimeClassStatus, Summary,
        Taint, VendorStatus, WindowsPoolStatus, names::condition,
    },
    windows::{Build, KubernetesSupport, KubernetesVersion, Vendor, product},
    words::plain,
};

use super::{admission::Admission, failing_pods::PodHealth, pools::Pool, problem, trial::Trial};

use verdict::Verdict;

const BUILDS: usize = 32;
const TAINTS: usize = 32;
const CLASSES: usize = 64;
const PROBLEMS: usize = 10;
const MESSAGE: usize = 1024;
/// The number of names in a printer column.
const SHOWN: usize = 5;

/// The observed state of one pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// `metadata.generation` of the pool.
    pub generation: Option<i64>,
    pub nodes: NodeCounts,
    /// Nodes without the right label, including blocked ones.
    pub unlabeled: usize,
    /// Nodes without the right taints, including blocked ones.
    pub untainted: usize,
    /// The Kubernetes version of the cluster, if it could be read.
    pub kubernetes: Option<KubernetesVersion>,
    /// Nodes that this pool selects and an older one owns, with one example.
    pub overlap: Option<Overlap>,
    /// The number of nodes by build and revision; `None` for nodes that report no revision.
    pub builds: BTreeMap<Build, BTreeMap<Option<u32>, usize>>,
    /// The builds that each vendor's nodes run.
    pub vendors: BTreeSet<(Build, Vendor)>,
    /// Windows nodes in the cluster, selected or not.
    pub windows_nodes: usize,
    /// The kinds that winpool cannot read, with the reasons. The rest may be old.
    pub unreadable: BTreeMap<&'static str, String>,
    /// The reason why taints are held, if it is known.
    pub held: Option<HeldTaints>,
    /// Kinds that the last workload check could not list, with the API server's message.
    pub unlisted: BTreeMap<String, String>,
    /// The classes after the writes.
    pub classes: Vec<RuntimeClassStatus>,
    /// The names of those that select a capability label.
    pub labelled: Vec<String>,
    pub admission: Admission,
    /// Problems, the most important first.
    pub problems: Vec<Problem>,
    /// The pods that fail because of Windows.
    pub health: PodHealth,
}

/// Nodes that an older pool owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    pub nodes: usize,
    /// The name of one of them.
    pub example: String,
    /// The pool that owns it.
    pub owner: String,
}

/// Taints that wait, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldTaints {
    pub taints: BTreeSet<Taint>,
    pub because: HeldBecause,
}

/// The reason why taints wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldBecause {
    /// These workloads would become unschedulable, each with the number of its pods that count.
    Unschedulable(BTreeMap<String, usize>),
    /// winpool may not list pods; with the API server's message.
    PodsUnreadable(String),
    /// The workload check failed and is repeated.
    CheckFailed(String),
    /// These RuntimeClasses do not tolerate them yet.
    Classes(BTreeSet<String>),
    /// Pods of these workloads waited only because of them, so winpool removed them. The second part is the time of the
    /// next attempt; `None` if it begins with the next clean check.
    Objected(BTreeSet<String>, Option<Timestamp>),
}

/// The status of a valid pool. `previous` is its present status: transition times of unchanged conditions are kept.
pub fn status(
    pool: &Pool,
    observation: &Observation,
    previous: Option<&WindowsPoolStatus>,
    now: Timestamp,
) -> WindowsPoolStatus {
    let nodes = observation.nodes;
    let mut conditions = Conditions { previous, now, generation: observation.generation, done: Vec::new() };
    conditions.push(condition::READY, verdict::ready(pool, observation));
    conditions.push(condition::NODES_LABELED, verdict::labels_verdict(pool, observation));
    conditions.push(
        condition::TAINTS_APPLIED,
        match &observation.held {
            _ if !observation.unreadable.is_empty() => verdict::unreadable_verdict(&observation.unreadable),
            Some(held) => verdict::held_verdict(pool, held),
            None if nodes.held > 0 => verdict::waiting(nodes.held),
            None => verdict::taints_verdict(pool, observation),
        }
        .with_unlisted(&observation.unlisted),
    );
    conditions.push(condition::RUNTIME_CLASSES_APPLIED, verdict::classes_verdict(pool, observation));
    conditions.push(condition::WINDOWS_SUPPORTED, verdict::support_verdict(observation, now));
    match &observation.health {
        PodHealth::Off => {}
        PodHealth::NotYet => conditions.keep(condition::WORKLOADS_HEALTHY),
        PodHealth::Seen { pools, unseen } => {
            let failures = pools.get(&pool.spec.name).cloned().unwrap_or_default();
            conditions.push(condition::WORKLOADS_HEALTHY, verdict::health_verdict(&failures, unseen.as_deref()));
        }
    }
    if let Some(overlap) = &observation.overlap {
        conditions.push(condition::OVERLAPPING, verdict::overlap_verdict(overlap));
    }
    WindowsPoolStatus {
        observed_generation: observation.generation,
        nodes,
        managed_taints: ever_applied(pool, &[]).iter().map(ToString::to_string).collect(),
        approved_taints: approved(pool),
        taint_trials: pool.consent.trials.iter().take(TAINTS).map(Trial::to_status).collect(),
        summary: summary(observation),
        builds: builds(pool, observation),
        runtime_classes: observation.classes.iter().take(CLASSES).cloned().collect(),
        admission_policies: observation.admission.report(observation.kubernetes),
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
        problems: problems(&[problem(reason, ObjectReference::windows_pool(pool), message)]),
        conditions: conditions.done,
        ..previous.cloned().unwrap_or_default()
    }
}

/// The taints of `status.managedTaints`: those that the pool may add from now on, winpool's taints that its nodes carry,
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

/// `status.approvedTaints`.
fn approved(pool: &Pool) -> Vec<ApprovedTaint> {
    let approved = pool.consent.approved.iter().take(TAINTS).filter(|_| pool.spec.enforces());
    approved.map(|approved| ApprovedTaint { taint: approved.taint.to_string(), since: Time(approved.since) }).collect()
}

/// The builds with most nodes, those with a name first: a node can report any number as its build.
fn builds(pool: &Pool, observation: &Observation) -> Vec<BuildStatus> {
    let mut builds: Vec<_> = observation.builds.iter().collect();
    builds.sort_by_key(|(build, revisions)| {
        (pool.spec.version_of(**build).is_none(), Reverse(revisions.values().sum::<usize>()), **build)
    });
    builds.truncate(BUILDS);
    builds.sort();
    builds.into_iter().map(|(build, revisions)| build_status(pool, *build, revisions, observation)).collect()
}

/// The lists of the printer columns, whose paths reach only the first entry of a list.
fn summary(observation: &Observation) -> Summary {
    let joined = |names: Vec<String>| {
        let more = names.len().saturating_sub(SHOWN);
        let text = names.into_iter().take(SHOWN).collect::<Vec<_>>().join(",");
        if more > 0 { format!("{text},+{more}") } else { text }
    };
    Summary {
        runtime_classes: joined(observation.classes.iter().map(|class| class.name.clone()).collect()),
        builds: joined(observation.builds.keys().map(ToString::to_string).collect()),
    }
}

fn build_status(
    pool: &Pool,
    build: Build,
    revisions: &BTreeMap<Option<u32>, usize>,
    observation: &Observation,
) -> BuildStatus {
    let discovered = pool.spec.discover.then(|| pool.spec.class_name(build));
    let known: Vec<i64> = revisions.keys().flatten().map(|revision| i64::from(*revision)).collect();
    BuildStatus {
        build: build.to_string(),
        product: product::by_build(build).map(|product| product.name.to_owned()),
        kubernetes_support: support_of(observation, build),
        end_of_support: product::by_build(build).map(|product| product.end_of_support().to_string()),
        vendors: vendors(observation, build),
        nodes: number(revisions.values().sum()),
        runtime_class: discovered.filter(|name| observation.classes.iter().any(|class| class.name == *name)),
        revisions: known.first().zip(known.last()).map(|(oldest, newest)| Revisions {
            oldest: *oldest,
            newest: *newest,
            distinct: number(known.len()),
        }),
    }
}

fn vendors(observation: &Observation, build: Build) -> Vec<VendorStatus> {
    let mine = observation.vendors.iter().filter(|(its, _)| *its == build);
    mine.map(|(_, vendor)| {
        let support = vendor.support_of(build);
        VendorStatus {
            name: vendor.name().to_owned(),
            end_of_support: support.and_then(|support| support.end).map(|day| day.to_string()),
            removed_in: support.and_then(|support| support.removed).map(|minor| format!("1.{minor}")),
        }
    })
    .collect()
}

fn support_of(observation: &Observation, build: Build) -> KubernetesSupport {
    observation.kubernetes.map_or(KubernetesSupport::Unknown, |version| version.support_of(build))
}

/// A count in the API's integer type.
pub fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn problems(problems: &[Problem]) -> Vec<Problem> {
    let shown = |problem: &Problem| Problem { message: plain(&problem.message, MESSAGE), ..problem.clone() };
    problems.iter().take(PROBLEMS).map(shown).collect()
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
