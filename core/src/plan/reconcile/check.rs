//! Schedules workload checks, and applies their results to pools.

pub(super) mod memory;
mod scope;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::ResourceExt;

use crate::{
    api::Taint,
    plan::{
        approval::ApprovalFacts,
        classes::ClassesPlan,
        guarded::GuardedPool,
        now::{Now, whole_seconds},
        pools::{Policy, Pool, approved_taints},
        status::{HeldBecause, HeldTaints},
        tally::Tally,
        workload_check::{CheckAnswer, CheckScope, PODS, QUESTIONS, WorkloadName},
    },
    pod::Class,
    words::plain,
};

use super::{
    memory::{Intent, Memory, PoolMemory},
    pauses::POLL_INTERVAL,
    step::CachedCluster,
};

use memory::{Basis, CheckMemory, PoolCheck};
use scope::ScopeBuilder;

/// The pause after a listing, as a multiple of its duration. After one that failed, which mostly waited for an answer,
/// the pause is as long as the listing.
const PAUSE_TIMES: u32 = 10;
/// The pause between reads, by name, of workloads that hold a taint.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The longest error of a check in a message.
const ERROR: usize = 200;

/// The objects that a check has to list.
#[derive(Clone, Debug)]
pub enum CheckTask {
    /// All workloads, then all pods.
    Everything(Box<CheckScope>),
    /// The workloads that hold a taint of this pool. They may have changed since.
    Named {
        pool: String,
        /// The input of the check that judges them.
        scope: Box<CheckScope>,
        workloads: Vec<WorkloadName>,
    },
}

impl Memory {
    /// Returns the check that is due, if any. The caller carries it out and reports its end to [`Self::checked`] or
    /// [`Self::asked`]. One listing serves all pools.
    pub fn start_check(&mut self, cluster: &CachedCluster<'_>, now: Now) -> Option<CheckTask> {
        if self.check.running.is_some() {
            return None;
        }
        self.forget(cluster, now.instant);
        let policy = self.policy(cluster.pools);
        let waiting = cluster.pools.iter().filter(|pool| self.waits(cluster, &policy, pool, now));
        let waiting: BTreeMap<String, &Arc<GuardedPool>> = waiting.map(|pool| (pool.name_any(), pool)).collect();
        let check = |name: &str| self.pools.get(name).and_then(|memory| memory.check.as_ref());
        let is_due =
            |name: &str, pool: &GuardedPool| check(name).is_none_or(|check| check.is_due(cluster, pool, now.instant));
        let may_list = self.check.not_before.is_none_or(|not_before| now.instant >= not_before);
        let due: BTreeSet<&String> =
            waiting.iter().filter(|(name, pool)| may_list && is_due(name, pool)).map(|(name, _)| name).collect();
        if !due.is_empty() {
            // One listing answers a limited number of questions. Pools that waited longest come first.
            let mut served: Vec<&String> = waiting.keys().collect();
            served.sort_by_key(|name| (!due.contains(name), check(name).map(|check| check.started)));
            let mut questions = 0;
            served.retain(|name| {
                questions += policy.pool(name).map_or(0, |pool| pool.spec.checked_taints().len());
                questions <= QUESTIONS
            });
            let scope = self.scope(cluster, &policy, &served.iter().copied().collect(), now);
            // A pool whose nodes all wait for a class has no question.
            let asks = scope.questions.iter().any(|question| due.contains(&question.pool));
            if asks {
                let served: BTreeSet<String> = served.into_iter().cloned().collect();
                for (name, guarded) in waiting.into_iter().filter(|(name, _)| served.contains(name)) {
                    let generation = guarded.metadata.generation;
                    let basis = policy.pool(&name).map(|pool| Basis::new(generation, pool, cluster));
                    self.of(&name).check_basis = basis;
                }
                self.check.running = Some(now.instant);
                return Some(CheckTask::Everything(Box::new(scope)));
            }
        }
        let mut asked = waiting.keys().filter_map(|name| Some((name, check(name)?.to_ask(now.instant))));
        let (pool, workloads) = asked.find(|(_, workloads)| !workloads.is_empty())?;
        let scope =
            Some(self.scope(cluster, &policy, &[pool].into(), now)).filter(|scope| !scope.questions.is_empty())?;
        if let Some(check) = self.of(pool).check.as_mut() {
            check.ask_at = Some(now.instant + ASK_AGAIN);
        }
        self.check.running = Some(now.instant);
        Some(CheckTask::Named { pool: pool.clone(), scope: Box::new(scope), workloads })
    }

    /// The time at which the next check may be due.
    pub fn check_due(&self, now: Instant) -> Option<Instant> {
        let asks = self.pools.values().filter_map(|memory| memory.check.as_ref());
        let dues = asks.flat_map(|check| check.ask_at.into_iter().chain([check.ended + POLL_INTERVAL]));
        let dues = dues.chain(self.check.not_before).filter(|due| *due > now);
        dues.min().filter(|_| self.check.running.is_none())
    }

    /// Records the result of a complete check.
    pub fn checked(
        &mut self,
        cluster: &CachedCluster<'_>,
        mut result: Result<BTreeMap<String, CheckAnswer>, String>,
        now: Instant,
    ) {
        let started = self.check.running.unwrap_or(now);
        let pause = now.duration_since(started) * if result.is_ok() { PAUSE_TIMES } else { 1 };
        self.check = CheckMemory { running: None, not_before: Some(now + self.pauses.listings.max(pause)) };
        for (pool, memory) in &mut self.pools {
            let Some(mut basis) = memory.check_basis.take() else { continue };
            let result = match &mut result {
                Ok(answers) => {
                    let answer = answers.remove(pool).unwrap_or_default();
                    basis.depends_on(&answer.used_classes);
                    let is_valid = basis.stands(cluster);
                    if is_valid { Ok(answer) } else { Err("RuntimeClasses changed meanwhile".to_owned()) }
                }
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

    /// True if nodes of the pool wait for a check, or for a class, or if all have a taint that is not approved yet.
    fn waits(&self, cluster: &CachedCluster<'_>, policy: &Policy, guarded: &GuardedPool, now: Now) -> bool {
        let Some(pool) = policy.pool(&guarded.name_any()).filter(|pool| !pool.spec.deleting) else { return false };
        // A check now would not cover the nodes of a class that has just changed, and the next one may find more. While
        // a kind cannot be read, a check would read nodes or classes that may have changed.
        let is_ready = |memory: &PoolMemory| {
            memory.intent.is_some()
                && !memory.is_blind()
                && !memory.classes.values().any(|class| class.was_widened_just_now(now.instant))
        };
        let tally = cluster.nodes.tally(&pool.spec.name);
        self.pools.get(&pool.spec.name).is_some_and(is_ready)
            && (pool.spec.checked_taints().iter().any(|taint| tally.is_held(taint))
                || to_approve(pool, tally).next().is_some())
    }

    /// The scope of a check for these pools.
    fn scope(&self, cluster: &CachedCluster<'_>, policy: &Policy, pools: &BTreeSet<&String>, now: Now) -> CheckScope {
        let mut builder = ScopeBuilder::new(cluster, policy, now);
        for pool in pools.iter().filter_map(|name| policy.pool(name)) {
            for taint in to_approve(pool, cluster.nodes.tally(&pool.spec.name)) {
                builder.question(pool, taint);
            }
        }
        for (object, watched) in cluster.nodes.nodes() {
            // No pod is known to run there, now or after a taint elsewhere.
            if !object.node.contradicts_itself() {
                builder.add(object, watched, pools);
            }
        }
        let answered = policy.pools().flat_map(|pool| self.classes(cluster, &pool.spec.name));
        let classes = cluster.classes.iter().cloned().chain(answered);
        CheckScope {
            classes: classes.map(|class| (class.name_any(), Class::from(class.as_ref()))).collect(),
            planned_classes: self.planned_classes(cluster, policy),
            ..builder.finish()
        }
    }

    /// The classes that pools in dry run would write.
    fn planned_classes(&self, cluster: &CachedCluster<'_>, policy: &Policy) -> BTreeMap<String, Class> {
        let mut classes = BTreeMap::new();
        for pool in policy.pools().filter(|pool| !pool.spec.enforces() && !pool.spec.deleting) {
            let plan = self.plan_classes(cluster, pool, cluster.nodes.tally(&pool.spec.name));
            for planned in plan.classes {
                if planned.action.writes() {
                    classes.insert(planned.desired.name.clone(), Class::from(&planned.desired.to_object()));
                }
            }
        }
        classes
    }

    /// Returns the changes that the pool may make to nodes from now on.
    pub(super) fn intend(
        &self,
        cluster: &CachedCluster<'_>,
        guarded: &GuardedPool,
        pool: &Pool,
        plan: &ClassesPlan,
        tally: &Tally,
        now: Now,
    ) -> Intent {
        let existing = self.classes(cluster, &pool.spec.name);
        let lagging = if pool.spec.enforces() { self.lagging(pool, plan, &existing, now.instant) } else { Vec::new() };
        let memory = self.pools.get(&pool.spec.name);
        let check = memory.and_then(|memory| memory.check.as_ref()).filter(|check| check.is_about(guarded));
        let seen = tally.seen();
        let facts = ApprovalFacts {
            pool,
            tally,
            before: memory.and_then(|memory| memory.intent.as_ref()).map(|intent| &*intent.consent),
            recorded: approved_taints(self.recorded_status(guarded)),
            is_widened: memory.is_some_and(|memory| memory.is_widened(pool)),
            check: check.map(|check| &check.result),
            valid: check.and_then(|check| check.validity(cluster, now.instant)),
            lagging,
            images: plan.images(&existing),
            planned_builds: seen.builds.into_keys().chain(plan.builds()).collect(),
            is_blind: !cluster.unreadable(now.instant).is_empty(),
            now: whole_seconds(now.time),
        };
        let lingering = seen.tolerate.into_iter().filter(|taint| pool.managed_taints.contains(taint));
        Intent { consent: facts.consent().into(), carried: tally.owned().cloned().chain(lingering).collect() }
    }

    /// The reason why taints wait, if it is known.
    pub fn held(&self, pool: &Pool, tally: &Tally) -> Option<HeldTaints> {
        let memory = self.pools.get(&pool.spec.name).filter(|_| tally.waits())?;
        let lagging = memory.intent.as_ref().map(|intent| intent.consent.lagging.as_slice()).unwrap_or_default();
        let all = || pool.spec.checked_taints().into_iter().filter(|taint| tally.is_held(taint)).collect();
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

/// The taints that every node of the pool carries, for instance from its kubelet, and that can be approved now.
fn to_approve(pool: &Pool, tally: &Tally) -> impl Iterator<Item = Taint> {
    let taints = if pool.spec.enforces() { pool.spec.checked_taints() } else { Vec::new() };
    let waits = |taint: &Taint| {
        let lags = pool.consent.lagging.iter().any(|class| class.lags(taint));
        tally.all_carry(taint) && !pool.consent.approves(taint) && !lags
    };
    taints.into_iter().filter(waits).collect::<Vec<_>>().into_iter()
}
