//! Computes the status of a pool.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::{SignedDuration, Timestamp},
};
use kube::ResourceExt;

use super::verdict;
use crate::{
    api::{
        BuildStatus, HelpedWorkload, NodeCounts, ObjectReference, Problem, Revisions, RuntimeClassStatus, Summary,
        Taint, TaintStatus, VendorStatus, WindowsPoolStatus,
        names::{condition, reason},
        number,
    },
    plan::{
        classes::{CLASSES, ClassesPlan},
        nodes::numbers::{Overlap, Tally},
        pods::{
            failures::{PodHealth, WorkloadFailure},
            tolerations::PoolHelp,
        },
        pools::{
            pool::{GuardedPool, Pool, recorded},
            verdict::Verdict,
        },
        reconcile::{
            memory::{Memory, Now, PoolMemory, RequestKind, whole_seconds, write_failed},
            step::{CachedCluster, NOT_STORED, Note, Step},
        },
        taints::objections::HeldTaints,
    },
    windows::{Build, KubernetesSupport, KubernetesVersion, Vendor, product},
    words::plain,
};

const BUILDS: usize = 32;
const TAINTS: usize = 32;
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
    for (name, verdict) in [
        (condition::READY, verdict::ready(pool, observation)),
        (condition::NODES_LABELED, verdict::labels_verdict(pool, observation)),
        (condition::TAINTS_APPLIED, verdict::taints_verdict(pool, observation)),
    ] {
        conditions.push(name, verdict::unreadable_verdict(&observation.unreadable).unwrap_or(verdict));
    }
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
        end_of_support: product::by_build(build).map(|product| product.end_of_support.to_string()),
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
            end_of_support: support.map(|support| support.end.to_string()),
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
    /// What is seen of each taint. The name, and the time, come with the status.
    pub taints: BTreeMap<Taint, TaintStatus>,
    /// The reason why taints are held, if it is known.
    pub held: Option<HeldTaints>,
    /// The classes after the writes.
    pub classes: Vec<RuntimeClassStatus>,
    /// The names of those that select a capability label.
    pub labelled: Vec<String>,
    /// Problems, the most important first.
    pub problems: Vec<Problem>,
    /// The pods that fail because of Windows.
    pub health: PodHealth,
}

impl Observation {
    /// The support of a build by the Kubernetes version of the cluster.
    pub(crate) fn support_of(&self, build: Build) -> KubernetesSupport {
        self.kubernetes.map_or(KubernetesSupport::Unknown, |version| version.support_of(build))
    }
}

// The status of a pool: its inputs, and when it is written.

impl Memory {
    /// Writes the status of a pool that is not being deleted, or waits.
    pub(crate) fn report(
        &mut self,
        cluster: &CachedCluster<'_>,
        guarded: &GuardedPool,
        pool: &Pool,
        plan: ClassesPlan,
        tally: &Tally,
        now: Now,
    ) -> Step {
        let existing = self.classes(cluster, &pool.spec.name);
        self.record_own(pool, &plan, &existing);
        let builds = tally.seen().builds;
        let by_label = plan.classes.iter().filter(|planned| planned.desired.hosts.is_by_label());
        let labelled = by_label.map(|planned| planned.desired.name.clone()).collect();
        let (classes, mut problems) = self.class_report(cluster, pool, plan, &existing, &builds, now.instant);
        let memory = self.of(&pool.spec.name);
        let is_needless = guarded.has_finalizer() && !pool.spec.needs_cleanup();
        let failed = memory.retries.get(&RequestKind::Finalizer).filter(|_| is_needless);
        let object = || ObjectReference::windows_pool(&pool.spec.name);
        problems.extend(failed.map(|retry| write_failed(object(), retry.refusal.message())));
        let not_stored = memory.retries.get(&RequestKind::Status).map(|retry| retry.refusal.message());
        problems.extend(not_stored.filter(|message| *message == NOT_STORED).map(|message| {
            Problem::new(reason::STATUS_NOT_STORED, ObjectReference::custom_resource_definition(), message)
        }));
        problems.extend(tally.problems());
        if let PodHealth::Seen { summary, .. } = &cluster.health {
            let failing = summary.pools.get(&pool.spec.name).into_iter().flat_map(|failures| &failures.workloads);
            problems.extend(failing.filter_map(WorkloadFailure::problem));
            let refused = summary.help.get(&pool.spec.name).into_iter().flat_map(PoolHelp::problems);
            problems.extend(refused);
        }
        let objections = self.objections(cluster, pool);
        problems.extend(objections.problems());
        let mut windows_nodes = 0;
        if tally.counts().selected == 0 {
            windows_nodes = cluster.nodes.nodes().count();
        }
        let observation = Observation {
            generation: guarded.metadata.generation,
            nodes: tally.counts(),
            windows_nodes,
            unlabeled: tally.unlabeled,
            untainted: tally.untainted,
            unreadable: cluster.unreadable(now.instant),
            taints: self.taints(guarded, pool, &objections, tally),
            held: self.held(cluster, pool, &objections, tally),
            kubernetes: cluster.control_plane.kubernetes,
            overlap: tally.overlap().cloned(),
            builds: tally.revisions.clone(),
            vendors: tally.vendors.clone(),
            classes,
            labelled,
            problems,
            health: cluster.health.clone(),
        };
        // A dry run records no taints.
        let intended = if pool.spec.enforces() { self.intended(pool) } else { pool.clone().into() };
        let status = status(&intended, &observation, self.recorded_status(guarded), whole_seconds(now.time));
        self.write_status(guarded, status, now)
    }

    /// Writes the status of a pool that is suspended, or waits.
    pub(crate) fn suspend(&mut self, guarded: &GuardedPool, reason: &'static str, message: &str, now: Now) -> Step {
        let (generation, time) = (guarded.metadata.generation, whole_seconds(now.time));
        let previous = self.recorded_status(guarded);
        let status = suspended_status(&guarded.name_any(), reason, message, generation, previous, time);
        self.write_status(guarded, status, now)
    }

    /// Writes the status if it changed: at once if it records a taint that nodes are to get, otherwise after
    /// [`STATUS_INTERVAL`].
    fn write_status(&mut self, guarded: &GuardedPool, status: WindowsPoolStatus, now: Now) -> Step {
        let memory = self.of(&guarded.name_any());
        memory.reported = Some(status.clone());
        let previous = memory.unseen_status().or(guarded.status.as_ref());
        if previous == Some(&status) {
            return Step::Wait(None);
        }
        if let Some(retry) = memory.retry(RequestKind::Status, now.instant) {
            return Step::Wait(Some(retry.until));
        }
        let records = previous.is_none_or(|old| {
            let has = |new: &TaintStatus| {
                let mut known = old.taints.iter().filter(|known| known.taint == new.taint);
                known.any(|known| known.at_registration || !new.at_registration)
            };
            !status.taints.iter().all(has)
        });
        let next = memory.next_status.filter(|next| now.instant < *next && !records);
        if next.is_some() {
            return Step::Wait(next);
        }
        let is_news = |problem: &&Problem| {
            let mut known = previous.iter().flat_map(|old| &old.problems);
            !known.any(|known| (&known.reason, &known.object) == (&problem.reason, &problem.object))
        };
        let problems = status.problems.iter().filter(is_news).cloned().map(Note::Problem);
        let news = problems.chain(taints_note(previous, &status)).collect();
        let seen = memory.unseen_status().map(recorded).or_else(|| guarded.recorded.clone());
        memory.written_over = guarded.resource_version();
        Step::WriteStatus { seen, status: Box::new(status), news }
    }

    /// The recorded status, as far as winpool knows.
    pub(crate) fn recorded_status<'a>(&'a self, guarded: &'a GuardedPool) -> Option<&'a WindowsPoolStatus> {
        let unseen = self.pools.get(&guarded.name_any()).and_then(PoolMemory::unseen_status);
        unseen.or(guarded.status.as_ref())
    }
}

/// Returns a note if the taints of the pool are held or no longer held since the previous status.
fn taints_note(previous: Option<&WindowsPoolStatus>, status: &WindowsPoolStatus) -> Option<Note> {
    // With other reasons winpool is still working, or a problem has a note of its own.
    const NOTED: [&str; 2] = [reason::DONE, reason::DAEMON_SETS_NOT_TOLERATING];
    let find = |status: &WindowsPoolStatus| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|condition| condition.type_ == condition::TAINTS_APPLIED)?;
        Some((found.status.clone(), found.reason.clone(), found.message.clone()))
    };
    let (is_applied, reason, message) = find(status)?;
    let (was_applied, before, _) = previous.and_then(find).unwrap_or_default();
    let is_new = (&was_applied, &before) != (&is_applied, &reason) && NOTED.contains(&reason.as_str());
    is_new.then_some(Note::TaintsChanged { are_applied: is_applied == "True", reason, message })
}
