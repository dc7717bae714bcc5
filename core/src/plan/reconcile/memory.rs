//! What the loop of a pool remembers between steps.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::ResourceExt;

use crate::{
    api::{Problem, Taint, WindowsPoolStatus},
    windows::Build,
};

use super::{
    super::{
        ApprovedTaint, ClassAction, ClassUsers, CleanCheck, DesiredClass, Entry, GuardedPool, Held, LaggingClass,
        Policy, Pool, ever_applied,
    },
    CACHE_BEHIND, CLASSES_SEEN, Cluster, Note, Refusal, Step,
    check::{Basis, CheckMemory, PoolCheck},
    classes::ClassMemory,
    deletion::DeletionMemory,
};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// What is remembered between steps. It is as old as the term of leadership.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// How long what was refused is not tried again, and how long a deletion waits without progress.
    pub patience: Duration,
    pub(super) pools: BTreeMap<String, PoolMemory>,
    pub(super) published: BTreeMap<String, Arc<Pool>>,
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) check: CheckMemory,
    pub(super) notes: Vec<(String, Note)>,
}

/// What is remembered of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PoolMemory {
    /// The pool that all of this is about, and not another one that had its name before.
    pub(super) uid: Option<String>,
    /// `metadata.generation`.
    pub(super) generation: Option<i64>,
    /// Whether the cache was seen to show the pool as it is, in this term.
    pub(super) fresh: bool,
    /// The cached version when winpool last wrote the pool, or saw that the cache is behind.
    pub(super) old_version: Option<String>,
    /// What stands in the status already, by reason and object: people are told of it once.
    pub(super) announced: BTreeSet<(String, String)>,
    /// What the pool may do to nodes, as far as it is known.
    pub(super) intent: Intent,
    /// Taints that nodes may still get by a policy that was published before, and until when at least.
    pub(super) former: Option<(BTreeSet<Taint>, Instant)>,
    pub(super) classes: BTreeMap<String, ClassMemory>,
    /// The uids of classes that winpool created, as status has them or will have them.
    pub(super) created: BTreeMap<String, String>,
    pub(super) finalizer: Retry,
    pub(super) read: Retry,
    pub(super) status: Retry,
    /// Pods cannot be counted.
    pub(super) users: Retry,
    /// The status that was written last, which the cache may not show yet.
    pub(super) written: Option<WindowsPoolStatus>,
    pub(super) next_status: Option<Instant>,
    pub(super) check: Option<PoolCheck>,
    /// What the check that is under way is about.
    pub(super) check_basis: Option<(String, Basis)>,
    /// Whether its classes were looked at, in this term.
    pub(super) looked_at: bool,
    pub(super) held: Option<Held>,
    /// What is wrong with the pool, if it is not valid.
    pub(super) invalid: Option<String>,
    pub(super) reported: Option<WindowsPoolStatus>,
    pub(super) deletion: DeletionMemory,
}

/// What a pool may do to nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Intent {
    pub(super) approved: Vec<ApprovedTaint>,
    pub(super) clean_check: Arc<CleanCheck>,
    pub(super) lagging: Vec<LaggingClass>,
    /// Builds whose classes are planned.
    pub(super) builds: BTreeSet<Build>,
    /// Taints of winpool's that nodes carry, and that have to be recorded.
    pub(super) carried: Vec<Taint>,
}

/// A request that failed, and when it is sent again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Retry {
    pub(super) failures: u32,
    pub(super) until: Option<Instant>,
    pub(super) words: String,
    pub(super) denied: bool,
}

impl Retry {
    /// When it may be sent again, if that is not now.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }

    pub(super) fn failed(&mut self, refusal: &Refusal, patience: Duration, now: Instant) -> Duration {
        self.failures += 1;
        self.denied = matches!(refusal, Refusal::Denied(_));
        let (words, wait) = match refusal {
            Refusal::Denied(words) => (words.clone(), patience),
            Refusal::Failed(words) => (words.clone(), pause_after(self.failures)),
            Refusal::Conflict | Refusal::Gone => ("the object keeps changing".to_owned(), pause_after(self.failures)),
        };
        self.words = words;
        self.until = Some(now + wait);
        wait
    }
}

/// Half a second after the first failure, then twice as long each time, up to a minute.
fn pause_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.pow(doublings))
}

impl Memory {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(patience: Duration) -> Self {
        Self { patience, ..Self::default() }
    }

    /// What people have to be told since the last call, each with its pool.
    pub fn take_notes(&mut self) -> Vec<(String, Note)> {
        std::mem::take(&mut self.notes)
    }

    /// The write of a RuntimeClass that was sent last for the pool, and what the class is to become; `None` for one that
    /// the pool gives up.
    #[must_use]
    pub fn sent(&self, pool: &str, class: &str) -> Option<&(ClassAction, DesiredClass)> {
        self.pools.get(pool)?.classes.get(class)?.sent.as_ref()
    }

    /// Why taints of the pool wait, as its status says.
    #[must_use]
    pub fn held_of(&self, pool: &str) -> Option<&Held> {
        self.pools.get(pool)?.held.as_ref()
    }

    /// The kinds that the last workload check for the pool left out, with the API server's words.
    #[must_use]
    pub fn unlisted_of(&self, pool: &str) -> BTreeMap<String, String> {
        self.pools.get(pool).map(PoolMemory::unlisted).unwrap_or_default()
    }

    /// The status that was computed last for the pool, whether it is written already or not.
    #[must_use]
    pub fn status_of(&self, pool: &str) -> Option<&WindowsPoolStatus> {
        self.pools.get(pool)?.reported.as_ref()
    }

    /// The policy without pools that are no more, if that has to be published.
    pub fn drop_gone(&mut self, cluster: &Cluster<'_>) -> Option<Step> {
        self.forget(cluster);
        self.publish(cluster, None)
    }

    pub(super) fn note(&mut self, pool: &str, note: Note) {
        self.notes.push((pool.to_owned(), note));
    }

    pub(super) fn of(&mut self, pool: &str) -> &mut PoolMemory {
        self.pools.entry(pool.to_owned()).or_default()
    }

    /// All valid pools, with what is known of what they may do to nodes: by this policy nodes are counted.
    #[must_use]
    pub fn policy(&self, pools: &[Arc<GuardedPool>]) -> Policy {
        let read = Pools::read(pools);
        let entries = read.valid.iter().map(|pool| Entry { pool: self.intended(pool), ready: true });
        Policy::new(entries, read.invalid)
    }

    /// The pool as it is to be published once its status records that.
    pub(super) fn intended(&self, pool: &Pool) -> Arc<Pool> {
        let Some(memory) = self.pools.get(&pool.name) else {
            // Until it was looked at, nothing is approved: what the status says may be old.
            return Arc::new(Pool { approved: Vec::new(), ..pool.clone() });
        };
        let Intent { approved, clean_check, lagging, builds, mut carried } = memory.intent.clone();
        carried.extend(clean_check.nodes.keys().cloned());
        let mut intended = Pool { approved, clean_check, lagging, planned_builds: builds, ..self.with_written(pool) };
        if pool.enforces() {
            intended.ever_applied = ever_applied(&intended, &carried);
        } else {
            // A preview records nothing.
            intended.ever_applied.extend(pool.wanted_taints());
        }
        Arc::new(intended)
    }

    /// The pool with the taints that winpool recorded in a status which the cache may not show yet.
    pub(super) fn with_written(&self, pool: &Pool) -> Pool {
        let written = self.pools.get(&pool.name).and_then(|memory| memory.written.as_ref());
        let mut pool = pool.clone();
        for taint in super::super::pools::managed_taints(written) {
            if !pool.ever_applied.contains(&taint) {
                pool.ever_applied.push(taint);
            }
        }
        pool
    }

    /// Forgets pools that are no more, and what is remembered of another pool of the same name.
    pub(super) fn forget(&mut self, cluster: &Cluster<'_>) {
        self.pools.retain(|name, memory| {
            cluster.pools.iter().any(|pool| pool.name_any() == *name && pool.uid() == memory.uid)
        });
        self.published.retain(|name, _| cluster.pools.iter().any(|pool| pool.name_any() == *name));
    }

    /// A patch that was planned before may be under way, and the cache shows its node a moment later.
    pub(super) fn remember_former(&mut self, ready: &Pool, now: Instant) {
        let Some(published) = self.published.get(&ready.name).filter(|published| published.enforces()) else { return };
        let mut dropped: BTreeSet<Taint> = published.applicable_taints().into_iter().collect();
        dropped.retain(|taint| !ready.wanted_taints().contains(taint));
        if !dropped.is_empty() {
            let memory = self.of(&ready.name);
            let before = memory.former.take().map(|(taints, _)| taints).unwrap_or_default();
            memory.former = Some((before.into_iter().chain(dropped).collect(), now + CLASSES_SEEN));
        }
    }

    /// Taints that nodes may get although the pool no longer wants them: its classes keep their tolerations.
    pub(super) fn still_under_way(&self, pool: &Pool) -> Vec<Taint> {
        let published = self.published.get(&pool.name).filter(|published| published.enforces());
        let published = published.into_iter().flat_map(|published| published.applicable_taints());
        let former = self.pools.get(&pool.name).and_then(|memory| memory.former.clone());
        published.chain(former.into_iter().flat_map(|(taints, _)| taints)).collect()
    }

    /// The policy after `ready`, if given, is published. Valid pools that were never ready hold the nodes that they
    /// select; those that are not valid keep what they have.
    pub(super) fn publish(&mut self, cluster: &Cluster<'_>, ready: Option<Arc<Pool>>) -> Option<Step> {
        let read = Pools::read(cluster.pools);
        self.published.retain(|name, _| read.valid.iter().any(|pool| pool.name == *name));
        if let Some(pool) = ready {
            self.published.insert(pool.name.clone(), pool);
        }
        let entries = read.valid.iter().map(|pool| match self.published.get(&pool.name) {
            Some(published) => Entry { pool: Arc::clone(published), ready: true },
            None => Entry { pool: Arc::clone(pool), ready: false },
        });
        let policy = Policy::new(entries, read.invalid);
        if self.policy.as_deref() == Some(&policy) {
            return None;
        }
        let policy = Arc::new(policy);
        self.policy = Some(Arc::clone(&policy));
        Some(Step::Publish(policy))
    }
}

/// All pools of a cluster, read.
struct Pools {
    pub(super) valid: Vec<Arc<Pool>>,
    pub(super) invalid: BTreeSet<String>,
}

impl Pools {
    pub(super) fn read(pools: &[Arc<GuardedPool>]) -> Self {
        let (mut valid, mut invalid) = (Vec::new(), BTreeSet::new());
        for guarded in pools {
            match guarded.read() {
                Ok(pool) => valid.push(Arc::new(pool)),
                Err(error) => {
                    invalid.insert(error.name);
                }
            }
        }
        Self { valid, invalid }
    }
}

impl PoolMemory {
    pub(super) fn new(guarded: &GuardedPool) -> Self {
        let problems = guarded.status.iter().flat_map(|status| &status.problems);
        Self {
            uid: guarded.uid(),
            created: recorded_classes(guarded),
            announced: problems.map(|problem| (problem.reason.clone(), problem.object.to_string())).collect(),
            ..Self::default()
        }
    }

    /// The pool was read from the API server: the cache shows it as it is, or still an old version.
    pub(super) fn was_read(&mut self, fresh: bool, version: Option<&String>, now: Instant) {
        self.deletion.answered(now);
        self.fresh = fresh;
        self.read = Retry { until: (!fresh).then(|| now + CACHE_BEHIND), ..Retry::default() };
        self.old_version = version.filter(|_| !fresh).cloned();
    }

    /// The pods of these classes were counted.
    pub(super) fn found_users(
        &mut self,
        classes: &BTreeSet<String>,
        users: &Result<BTreeMap<String, ClassUsers>, String>,
        now: Instant,
    ) {
        self.users = Retry::default();
        for class in classes {
            let found = users.as_ref().map(|users| users.get(class).cloned().unwrap_or_default());
            self.classes.entry(class.clone()).or_default().found_users(found.map_err(Clone::clone), now);
        }
    }

    /// The problems that were not in the status before.
    pub(super) fn announce(&mut self, status: &WindowsPoolStatus) -> Vec<Problem> {
        let key = |problem: &Problem| (problem.reason.clone(), problem.object.to_string());
        let known = std::mem::replace(&mut self.announced, status.problems.iter().map(key).collect());
        status.problems.iter().filter(|problem| !known.contains(&key(problem))).cloned().collect()
    }
}

fn recorded_classes(pool: &GuardedPool) -> BTreeMap<String, String> {
    let classes = pool.status.iter().flat_map(|status| &status.runtime_classes);
    classes.filter_map(|class| Some((class.name.clone(), class.uid.clone()?))).collect()
}
