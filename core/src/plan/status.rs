//! Computes the status of a pool.

mod observation;
mod verdict;

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::{SignedDuration, Timestamp},
};

use crate::{
    api::{
        BuildStatus, HelpedWorkload, ObjectReference, Problem, Revisions, Summary, Taint, TaintStatus, VendorStatus,
        WindowsPoolStatus, names::condition, number,
    },
    windows::{Build, product},
    words::plain,
};

use super::{pods::PodHealth, pools::Pool};

use verdict::Verdict;

pub use observation::{HeldBecause, HeldTaints, Observation};

const BUILDS: usize = 32;
const TAINTS: usize = 32;
const CLASSES: usize = 64;
const PROBLEMS: usize = 10;
const WORKLOADS: usize = 10;
/// The time for which the name of a helped workload is kept: a `CronJob` may run once a month.
const HELPED: SignedDuration = SignedDuration::from_hours(35 * 24);
const MESSAGE: usize = 1024;
/// The number of names in a printer column.
const SHOWN: usize = 5;

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
        },
    );
    conditions.push(condition::RUNTIME_CLASSES_APPLIED, verdict::classes_verdict(pool, observation));
    conditions.push(condition::WINDOWS_SUPPORTED, verdict::support_verdict(observation, now));
    match &observation.health {
        PodHealth::Off => {}
        PodHealth::NotYet => conditions.keep(condition::WORKLOADS_HEALTHY),
        PodHealth::Seen { summary, unseen } => {
            let failures = summary.pools.get(&pool.spec.name).cloned().unwrap_or_default();
            conditions.push(condition::WORKLOADS_HEALTHY, verdict::health_verdict(&failures, unseen.as_deref()));
        }
    }
    if let Some(overlap) = &observation.overlap {
        conditions.push(condition::OVERLAPPING, verdict::overlap_verdict(overlap));
    }
    WindowsPoolStatus {
        observed_generation: observation.generation,
        nodes,
        taints: taints(pool, observation, previous, now),
        summary: summary(observation),
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
        TaintStatus { taint: text, since: known.or_else(|| (seen.nodes > 0).then_some(Time(now))), ..seen }
    };
    ever_applied(pool, &[]).into_iter().map(status).collect()
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
    helped.into_iter().take(WORKLOADS).map(entry).collect()
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
        kubernetes_support: observation.support_of(build),
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
            name: vendor.as_str().to_owned(),
            end_of_support: support.and_then(|support| support.end).map(|day| day.to_string()),
            removed_in: support.and_then(|support| support.removed).map(|minor| format!("1.{minor}")),
        }
    })
    .collect()
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
