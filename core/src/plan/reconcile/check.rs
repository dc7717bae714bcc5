//! Schedules workload checks, and applies their results to pools.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{Taint, TaintPolicy},
    pod::{Class, WorkloadKind},
    words::plain,
};

use super::{
    super::{
        Approval, AssignClass, CHECK_GOOD_FOR, CheckAnswer, CheckScope, ClassesPlan, CleanCheck, Consent, GuardedPool,
        HeldBecause, HeldTaints, KnownNode, PODS, Policy, Pool, Question, Tally, Watched, WorkloadCheck, assess,
        assess_as, pools,
        workload_check::{QUESTIONS, classes_by_build},
    },
    Cluster, Intent, LOOK_AGAIN, Memory, Now, PoolMemory,
};

/// The pause after a listing, as a multiple of its duration. After one that failed, which mostly waited for an answer,
/// the pause is as long as the listing.
const PAUSE_TIMES: u32 = 10;
/// The pause between reads, by name, of workloads that hold a taint.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The limit of workloads that are read by name.
const ASKED: usize = 10;
/// The longest error of a check in a message.
const ERROR: usize = 200;

/// The state of workload checks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CheckMemory {
    /// The start of the check that is in progress.
    running: Option<Instant>,
    not_before: Option<Instant>,
}

/// The newest check and its results for one pool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PoolCheck {
    /// The pool and classes that it was about.
    basis: Basis,
    result: Result<CheckAnswer, String>,
    started: Instant,
    ended: Instant,
    /// The time at which workloads that hold a taint are read by name.
    ask_at: Option<Instant>,
    /// True if a named workload no longer holds the taint.
    is_outdated: bool,
}

/// The objects that a check depends on: if they changed, its result is void.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Basis {
    generation: Option<i64>,
    /// `metadata.resourceVersion` of all classes.
    classes: BTreeMap<String, String>,
}

impl Basis {
    fn of(cluster: &Cluster<'_>, pool: &GuardedPool) -> Self {
        let version = |class: &Arc<RuntimeClass>| (class.name_any(), class.resource_version().unwrap_or_default());
        Self { generation: pool.metadata.generation, classes: cluster.classes.iter().map(version).collect() }
    }

    /// True if all classes are unchanged.
    fn stands(&self, cluster: &Cluster<'_>) -> bool {
        let unchanged = cluster.classes.iter().filter(|class| {
            let known = self.classes.get(&class.name_any());
            known.is_some_and(|version| class.resource_version().unwrap_or_default() == *version)
        });
        unchanged.count() == self.classes.len()
    }
}

/// The objects that a check has to list.
#[derive(Clone, Debug)]
pub enum CheckTask {
    /// All workloads, then all pods.
    Everything(Box<WorkloadCheck>),
    /// The workloads that hold a taint of this pool. They may have changed since.
    Named {
        pool: String,
        /// The check that judges them.
        check: Box<WorkloadCheck>,
        workloads: Vec<WorkloadName>,
    },
}

/// Kind, namespace and name of a workload.
pub type WorkloadName = (WorkloadKind, String, String);

impl PoolCheck {
    fn answer(&self) -> Option<&CheckAnswer> {
        self.result.as_ref().ok()
    }

    pub(super) fn is_about(&self, pool: &GuardedPool) -> bool {
        self.basis.generation == pool.metadata.generation
    }

    fn is_due(&self, basis: &Basis, now: Instant) -> bool {
        let holds = self.answer().is_some_and(|answer| !answer.held.is_empty());
        // A clean check does not cover nodes that still wait, and a failed check is repeated.
        !holds || self.is_outdated || self.basis != *basis || now >= self.ended + LOOK_AGAIN
    }

    /// The workloads that hold a taint and are due to be read by name.
    fn to_ask(&self, now: Instant) -> Vec<WorkloadName> {
        let is_time = !self.is_outdated && self.ask_at.is_some_and(|at| now >= at);
        let holding = self.answer().into_iter().filter(|_| is_time).flat_map(|answer| answer.unschedulable.keys());
        let named = holding.filter_map(|workload| {
            let (kind, rest) = workload.split_once(' ')?;
            let (namespace, name) = rest.split_once('/')?;
            Some((WorkloadKind::by_name(kind)?, namespace.to_owned(), name.to_owned()))
        });
        named.take(ASKED).collect()
    }
}

impl Memory {
    /// Returns the check that is due, if any. The caller carries it out and reports its end to [`Self::checked`] or
    /// [`Self::asked`]. One listing serves all pools.
    pub fn start_check(&mut self, cluster: &Cluster<'_>, now: Now) -> Option<CheckTask> {
        if self.check.running.is_some() {
            return None;
        }
        self.forget(cluster);
        let policy = self.policy(cluster.pools);
        let waiting = cluster.pools.iter().filter(|pool| self.waits(cluster, &policy, pool, now.instant));
        let waiting: BTreeMap<String, Basis> =
            waiting.map(|pool| (pool.name_any(), Basis::of(cluster, pool))).collect();
        let check = |name: &str| self.pools.get(name).and_then(|memory| memory.check.as_ref());
        let is_due = |name: &str, basis: &Basis| check(name).is_none_or(|check| check.is_due(basis, now.instant));
        let may_list = self.check.not_before.is_none_or(|not_before| now.instant >= not_before);
        let due: BTreeSet<&String> =
            waiting.iter().filter(|(name, basis)| may_list && is_due(name, basis)).map(|(name, _)| name).collect();
        if !due.is_empty() {
            // One listing answers a limited number of questions. Pools that waited longest come first.
            let mut served: Vec<&String> = waiting.keys().collect();
            served.sort_by_key(|name| (!due.contains(name), check(name).map(|check| check.started)));
            let mut questions = 0;
            served.retain(|name| {
                questions += policy.pool(name).map_or(0, |pool| pool.checked_taints().len());
                questions <= QUESTIONS
            });
            let scope = self.scope(cluster, &policy, &served.iter().copied().collect(), now);
            // A pool whose nodes all wait for a class has no question.
            let asks = scope.questions.iter().any(|question| due.contains(&question.pool));
            if let Some(check) = Some(scope).filter(|_| asks).and_then(WorkloadCheck::start) {
                let served: BTreeSet<String> = served.into_iter().cloned().collect();
                for (name, basis) in waiting.into_iter().filter(|(name, _)| served.contains(name)) {
                    self.of(&name).check_basis = Some(basis);
                }
                self.check.running = Some(now.instant);
                return Some(CheckTask::Everything(Box::new(check)));
            }
        }
        let mut asked = waiting.keys().filter_map(|name| Some((name, check(name)?.to_ask(now.instant))));
        let (pool, workloads) = asked.find(|(_, workloads)| !workloads.is_empty())?;
        let task = WorkloadCheck::start(self.scope(cluster, &policy, &[pool].into(), now))?;
        if let Some(check) = self.of(pool).check.as_mut() {
            check.ask_at = Some(now.instant + ASK_AGAIN);
        }
        self.check.running = Some(now.instant);
        Some(CheckTask::Named { pool: pool.clone(), check: Box::new(task), workloads })
    }

    /// The time at which the next check may be due.
    pub fn check_due(&self, now: Instant) -> Option<Instant> {
        let asks = self.pools.values().filter_map(|memory| memory.check.as_ref());
        let dues = asks.flat_map(|check| check.ask_at.into_iter().chain([check.ended + LOOK_AGAIN]));
        let dues = dues.chain(self.check.not_before).filter(|due| *due > now);
        dues.min().filter(|_| self.check.running.is_none())
    }

    /// Records the result of a complete check.
    pub fn checked(
        &mut self,
        cluster: &Cluster<'_>,
        mut result: Result<BTreeMap<String, CheckAnswer>, String>,
        now: Instant,
    ) {
        let started = self.check.running.unwrap_or(now);
        let pause = now.duration_since(started) * if result.is_ok() { PAUSE_TIMES } else { 1 };
        self.check = CheckMemory { running: None, not_before: Some(now + self.pauses.listings.max(pause)) };
        for (pool, memory) in &mut self.pools {
            let Some(basis) = memory.check_basis.take() else { continue };
            let result = match &mut result {
                Ok(_) if !basis.stands(cluster) => Err("RuntimeClasses changed meanwhile".to_owned()),
                Ok(answers) => Ok(answers.remove(pool).unwrap_or_default()),
                Err(error) => Err(plain(error, ERROR)),
            };
            let holds = result.as_ref().is_ok_and(|answer| !answer.unschedulable.is_empty());
            let ask_at = holds.then(|| now + ASK_AGAIN);
            memory.check = Some(PoolCheck { basis, result, started, ended: now, ask_at, is_outdated: false });
        }
    }

    /// Records that workloads were read by name; `are_settled` if none of them holds a taint of the pool any more.
    pub fn asked(&mut self, pool: &str, are_settled: bool) {
        self.check.running = None;
        if let Some(check) = self.of(pool).check.as_mut() {
            check.is_outdated |= are_settled;
        }
    }

    /// True if nodes of the pool wait for a check, or for a class.
    fn waits(&self, cluster: &Cluster<'_>, policy: &Policy, guarded: &GuardedPool, now: Instant) -> bool {
        let Some(pool) = policy.pool(&guarded.name_any()).filter(|pool| !pool.deleting) else { return false };
        // A check now would not cover the nodes of a class that has just changed, and the next one may find more.
        let is_ready = |memory: &PoolMemory| {
            memory.intent.is_some() && !memory.classes.values().any(|class| class.was_widened_just_now(now))
        };
        self.pools.get(&pool.name).is_some_and(is_ready)
            && !pool.checked_taints().is_empty()
            && (cluster.tally)(&pool.name).waits()
    }

    /// The scope of a check for these pools.
    fn scope(&self, cluster: &Cluster<'_>, policy: &Policy, pools: &BTreeSet<&String>, now: Now) -> CheckScope {
        let mut nodes = Vec::new();
        let mut questions: BTreeMap<(String, Taint), Question> = BTreeMap::new();
        (cluster.nodes)(&mut |seen| {
            let consent = Consent::Known { uid: seen.uid, watched: seen.watched, now: now.instant };
            let assessment = assess(seen.node, policy, consent);
            let index = nodes.len();
            let mut ask = |pool: &Pool, held: Vec<Taint>| {
                // A node that waits for a class does not get the taint, whatever the result of the check.
                let asks = |taint: &Taint| !pool.needs_no_check(taint) && !pool.waits_for_a_class(taint, seen.node);
                for taint in held.into_iter().filter(asks) {
                    let key = (pool.name.clone(), taint.clone());
                    let question = questions.entry(key).or_insert_with(|| Question {
                        pool: pool.name.clone(),
                        taint,
                        candidates: BTreeSet::new(),
                        enforces: pool.enforces(),
                    });
                    question.candidates.insert(index);
                }
            };
            let owner = assessment.pool.as_ref().and_then(|name| policy.pool(name));
            if let Some(owner) = owner.filter(|owner| pools.contains(&owner.name)) {
                ask(owner, assessment.held.clone());
            }
            for pool in policy.previews(&seen.node.labels).filter(|pool| pools.contains(&pool.name)) {
                let consent = Consent::Known { uid: seen.uid, watched: &Watched::default(), now: now.instant };
                ask(pool, assess_as(seen.node, Some(pool), policy, consent).held);
            }
            // A node that is about to get a taint, of another pool for example, may not accept pods that need this
            // one.
            let coming = assessment.plan.taints.iter().flat_map(|change| &change.added);
            let lasting = seen.node.taints.taints().iter().filter(|taint| !taint.has_foreign_key()).chain(coming);
            nodes.push(KnownNode {
                name: seen.name.into(),
                uid: seen.uid.into(),
                labels: seen.node.after(&assessment.plan).labels,
                taints: lasting.cloned().collect(),
            });
        });
        let admission = &cluster.control_plane.admission;
        let assign_class = admission.policy("assign-class").and_then(|installed| {
            let pool = policy.pool(installed.pool.as_deref()?)?;
            // The policy acts only while the pool enforces. A dry run shows what would be.
            let acts = pool.enforces() || !pool.deleting && questions.values().all(|question| !question.enforces);
            let guarded = cluster.pools.iter().find(|guarded| guarded.name_any() == pool.name).filter(|_| acts)?;
            let status = guarded.status.as_ref();
            Some(AssignClass {
                excluded: installed.excluded.clone()?,
                by_namespace: admission.namespace_classes.clone()?,
                by_build: status.map(|status| classes_by_build(status, pool.enforces())).unwrap_or_default(),
                defaults: guarded.pool.as_ref().ok()?.spec.pod_defaults.clone().unwrap_or_default(),
            })
        });
        // A binding can name one pool instead of all.
        let tolerate_windows = admission.policy("tolerate-windows").filter(|installed| installed.pool.is_none());
        let intolerant_namespaces = tolerate_windows.and_then(|installed| installed.excluded.clone());
        CheckScope {
            nodes,
            questions: questions.into_values().collect(),
            classes: self.classes_as_planned(cluster, policy),
            intolerant_namespaces,
            assign_class,
            now: now.time,
        }
    }

    /// The classes in the API server; for a dry run, as they would be.
    fn classes_as_planned(&self, cluster: &Cluster<'_>, policy: &Policy) -> BTreeMap<String, Class> {
        let answered = policy.pools().flat_map(|pool| self.classes(cluster, &pool.name));
        let classes = cluster.classes.iter().cloned().chain(answered);
        let mut classes: BTreeMap<String, Class> =
            classes.map(|class| (class.name_any(), Class::from(class.as_ref()))).collect();
        for pool in policy.pools().filter(|pool| !pool.enforces() && !pool.deleting) {
            let plan = self.plan_classes(cluster, pool, &(cluster.tally)(&pool.name));
            for planned in plan.classes {
                if planned.action.writes() {
                    classes.insert(planned.desired.name.clone(), Class::from(&planned.desired.to_object()));
                }
            }
        }
        classes
    }

    /// Sets the changes that the pool may make to nodes from now on.
    pub(super) fn intend(
        &self,
        cluster: &Cluster<'_>,
        guarded: &GuardedPool,
        pool: &Pool,
        plan: &ClassesPlan,
        tally: &Tally,
        now: Now,
    ) -> Intent {
        let existing = self.classes(cluster, &pool.name);
        let lagging = if pool.enforces() { self.lagging(pool, plan, &existing, now.instant) } else { Vec::new() };
        let memory = self.pools.get(&pool.name);
        let mut recorded = pools::approved_taints(self.recorded_status(guarded));
        // A dropped approval stays dropped, even if the status that says so is not written yet.
        if let Some(intent) = memory.and_then(|memory| memory.intent.as_ref()) {
            recorded.retain(|known| intent.approved.iter().any(|approved| approved.taint == known.taint));
        }
        let check = memory.and_then(|memory| memory.check.as_ref()).filter(|check| check.is_about(guarded));
        let valid = check
            .filter(|check| check.basis.stands(cluster))
            .map(|check| (check.started, check.ended + CHECK_GOOD_FOR))
            .filter(|(_, until)| now.instant < *until);
        let clean = check.and_then(PoolCheck::answer).filter(|_| valid.is_some()).map(|answer| answer.clean.clone());
        let clean = clean.unwrap_or_default();
        let holds = |taint: &Taint| {
            tally.is_held(taint)
                && check.is_some_and(|check| check.answer().is_none_or(|answer| answer.held.contains(taint)))
        };
        let lags = |taint: &Taint| lagging.iter().any(|class| !class.is_missing && class.taints.contains(taint));
        let is_safe = |taint: &Taint| {
            let known = recorded.iter().any(|approved| approved.taint == *taint);
            pool.needs_no_check(taint)
                || !lags(taint) && !holds(taint) && (known || clean.contains_key(taint) || tally.all_carry(taint))
        };
        let wanted = pool.wanted_taints().into_iter().filter(|taint| taint.effect != "PreferNoSchedule");
        let approved = wanted.filter(|_| pool.enforces() && pool.taint_policy != TaintPolicy::Never).filter(is_safe);
        let since =
            |taint: &Taint| recorded.iter().find(|known| known.taint == *taint).map_or(now.time, |known| known.since);
        let approved = approved.map(|taint| Approval { since: whole_seconds(since(&taint)), taint }).collect();
        let lingering = tally.seen().tolerate.into_iter().filter(|taint| pool.ever_applied.contains(taint));
        let valid = valid.filter(|_| !clean.is_empty());
        Intent {
            approved,
            clean_check: Arc::new(CleanCheck { nodes: clean, valid }),
            lagging,
            builds: tally.seen().builds.into_keys().chain(plan.builds()).collect(),
            carried: tally.owned().cloned().chain(lingering).collect(),
        }
    }

    /// The reason why taints wait, if it is known.
    pub fn held(&self, pool: &Pool, tally: &Tally) -> Option<HeldTaints> {
        let memory = self.pools.get(&pool.name).filter(|_| tally.waits())?;
        let lagging = memory.intent.as_ref().map(|intent| intent.lagging.as_slice()).unwrap_or_default();
        let all = || pool.checked_taints().into_iter().filter(|taint| tally.is_held(taint)).collect();
        // A check of an earlier spec says nothing about this one.
        let check = memory.check.as_ref().filter(|check| check.basis.generation == memory.generation);
        let (taints, because) = match check.map(|check| &check.result) {
            Some(Ok(answer)) if !answer.unschedulable.is_empty() => {
                (answer.held.clone(), HeldBecause::Unschedulable(answer.unschedulable.clone()))
            }
            Some(Ok(CheckAnswer { unlisted, .. })) if unlisted.contains_key(PODS) => {
                (all(), HeldBecause::PodsUnreadable(unlisted.get(PODS).cloned().unwrap_or_default()))
            }
            _ if !lagging.is_empty() => (
                lagging.iter().flat_map(|class| class.taints.clone()).collect(),
                HeldBecause::Classes(lagging.iter().map(|class| class.name.clone()).collect()),
            ),
            Some(Err(error)) => (all(), HeldBecause::CheckFailed(error.clone())),
            _ => return None,
        };
        Some(HeldTaints { taints, because })
    }

    /// The kinds that the last workload check for the pool left out, with the API server's message.
    pub fn unlisted(&self, pool: &str) -> BTreeMap<String, String> {
        let check = self.pools.get(pool).and_then(|memory| memory.check.as_ref());
        let mut unlisted = check.and_then(PoolCheck::answer).map(|answer| answer.unlisted.clone()).unwrap_or_default();
        unlisted.remove(PODS);
        unlisted
    }
}

/// The API stores whole seconds.
pub(super) fn whole_seconds(time: k8s_openapi::jiff::Timestamp) -> k8s_openapi::jiff::Timestamp {
    k8s_openapi::jiff::Timestamp::from_second(time.as_second()).unwrap_or(time)
}
