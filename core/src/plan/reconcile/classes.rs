//! The RuntimeClasses of a pool, each independently: a class whose write fails or has to wait delays no other.

mod hosts;
pub(super) mod memory;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{ObjectReference, Problem, names::reason},
    plan::{
        class_retirement::{ClassRetirement, KEPT_TAINT, release_class, retire_class},
        classes::{ClassesPlan, plan_classes},
        pods::{ClassUsers, UnknownPods},
        pools::Pool,
        runtime_class::{ClassAction, PlannedClass, is_made_by_winpool},
        tally::Tally,
    },
};

use super::{
    memory::Memory,
    pauses::POLL_INTERVAL,
    retry::write_failed,
    step::{Answer, CachedCluster, ClassRequest, ClassStep, Note, Refusal, Step},
};

use hosts::leaves_its_pods;
use report::{being_deleted, contested, is_being_deleted, needs_other_builds, not_recorded};

/// The number of attempts for a class that changes between reading and writing, before the write has to wait.
const ATTEMPTS: u32 = 4;
/// The number of recorded classes after which those that are gone are forgotten.
const RECORDED: usize = 128;
/// The pause before winpool looks again if the pods of a class are gone.
const PODS_AGAIN: Duration = Duration::from_secs(5);

impl Memory {
    /// Forgets classes that do not exist and that the pool does not want: a node may report many different builds.
    pub(super) fn forget_classes(&mut self, cluster: &CachedCluster<'_>, pool: &str, plan: &ClassesPlan, now: Instant) {
        self.of(pool).classes.retain(|name, memory| {
            plan.classes.iter().any(|planned| planned.desired.name == *name)
                || memory.was_patched(now)
                || memory.answer.as_ref().is_some_and(|answer| answer.class.is_some())
                || cluster.classes.iter().any(|class| class.metadata.name.as_ref() == Some(name))
        });
        if self.of(pool).created.len() > RECORDED {
            let uids: BTreeSet<_> = self.classes(cluster, pool).iter().filter_map(|class| class.uid()).collect();
            self.of(pool).created.retain(|uid| uids.contains(uid));
        }
    }

    pub(super) fn plan_classes(&self, cluster: &CachedCluster<'_>, pool: &Pool, tally: &Tally) -> ClassesPlan {
        let policy = self.policy(cluster.pools);
        let existing = self.classes(cluster, &pool.spec.name);
        let mut own = tally.seen();
        own.unlabelled = self.unlabelled(cluster, pool, &existing, tally);
        own.tolerate
            .extend(self.pools.get(&pool.spec.name).into_iter().flat_map(|memory| memory.former.keys().cloned()));
        let seen = |name: &str| if name == pool.spec.name { own.clone() } else { cluster.nodes.tally(name).seen() };
        let selects_nodes = |selector: &BTreeMap<String, String>| {
            let nodes = cluster.nodes.nodes().map(|(object, _)| &object.node.labels);
            let mut own = nodes.filter(|labels| pool.spec.selects(labels)).peekable();
            own.peek().is_none() || own.any(|labels| labels.matches(selector))
        };
        plan_classes(pool, &policy, &seen, &existing, &selects_nodes)
    }

    /// The next request about a class of the pool, if one is due.
    pub(super) fn class_step(
        &mut self,
        cluster: &CachedCluster<'_>,
        pool: &Pool,
        plan: &ClassesPlan,
        now: Instant,
    ) -> Option<Step> {
        if !pool.spec.enforces() {
            return None;
        }
        let existing = self.classes(cluster, &pool.spec.name);
        let find = |name: &str| existing.iter().find(|class| class.name_any() == name);
        for planned in &plan.classes {
            if let Some(step) = self.write_step(cluster, pool, planned, find(&planned.desired.name), now) {
                return Some(step);
            }
        }
        for class in plan.leftover.iter().filter_map(|name| find(name)) {
            if let Some(step) = self.retire_step(cluster, pool, class, false, now) {
                return Some(step);
            }
        }
        None
    }

    /// The next request to create or change a class that the pool wants.
    fn write_step(
        &mut self,
        cluster: &CachedCluster<'_>,
        pool: &Pool,
        planned: &PlannedClass,
        current: Option<&Arc<RuntimeClass>>,
        now: Instant,
    ) -> Option<Step> {
        let (name, action) = (&planned.desired.name, &planned.action);
        let memory = self.of(&pool.spec.name).class(name);
        if !action.writes() {
            memory.is_up_to_date(now);
            return None;
        }
        let leaves_pods = current.is_some_and(|class| leaves_its_pods(cluster, pool, planned, class));
        memory.right_since = None;
        if let Some(pause) = memory.back_off(current, now) {
            return self.postpone(pool, Some(planned), contested(name, current), pause, now);
        }
        // A node with the build of the class has come.
        memory.postponed.take_if(|postponed| {
            !leaves_pods
                && matches!(action, ClassAction::Change { .. })
                && postponed.problem.reason == reason::CLASS_IN_USE
        });
        if memory.stands(Some(planned), now).is_some() && !memory.is_contested(now) {
            return None;
        }
        let step = |request| Some(class_step(cluster, name, request, Some(planned.clone()), None, current));
        if memory.attempts > 0 && memory.answer.is_none() {
            return step(ClassRequest::Read);
        }
        match (action, current) {
            (ClassAction::Create(class), _) => step(ClassRequest::Create(class.clone())),
            (ClassAction::Change { changes, .. }, Some(class)) if leaves_pods => {
                let users = match users(cluster, name) {
                    Ok(ClassUsers { count: 0, .. }) => return step(ClassRequest::patch(class, changes.clone())),
                    Err(UnknownPods::NotListed) => return None,
                    Ok(users) => Ok(users),
                    Err(UnknownPods::Unreadable(message) | UnknownPods::Denied(message)) => Err(message),
                };
                self.postpone(pool, Some(planned), needs_other_builds(name, &users), PODS_AGAIN, now)
            }
            (ClassAction::Change { changes, .. }, Some(class)) => step(ClassRequest::patch(class, changes.clone())),
            _ => None,
        }
    }

    /// Sends nothing about the class with this problem for a while, unless the pool wants something else.
    fn postpone(
        &mut self,
        pool: &Pool,
        planned: Option<&PlannedClass>,
        problem: Problem,
        wait: Duration,
        now: Instant,
    ) -> Option<Step> {
        let class = problem.object.name.clone();
        let known = self.of(&pool.spec.name).class(&class);
        let is_known = known.is_contested(now);
        known.postpone(planned, problem.clone(), now + wait);
        if !is_known {
            self.note(&pool.spec.name, Note::ClassPostponed(class, problem, wait));
        }
        None
    }

    /// Deletes or releases a class that has the pool's label and that the pool does not want.
    pub(super) fn retire_step(
        &mut self,
        cluster: &CachedCluster<'_>,
        pool: &Pool,
        class: &Arc<RuntimeClass>,
        release: bool,
        now: Instant,
    ) -> Option<Step> {
        let name = class.name_any();
        let memory = self.of(&pool.spec.name);
        let is_recorded = class.uid().is_some_and(|uid| memory.created.contains(&uid));
        let known = memory.class(&name);
        if known.stands(None, now).is_some() {
            return None;
        }
        if is_being_deleted(class) {
            known.postpone(None, being_deleted(class), now + POLL_INTERVAL);
            return None;
        }
        if let Some(pause) = known.back_off(Some(class), now) {
            return self.postpone(pool, None, contested(&name, Some(class)), pause, now);
        }
        if is_made_by_winpool(class) && !is_recorded && !release {
            // A user copied a class with its labels, or winpool ended before it recorded the class that it had
            // created.
            known.postpone(None, not_recorded(&name), now + POLL_INTERVAL);
            return None;
        }
        let retirement = if release {
            release_class(class, KEPT_TAINT.to_owned())
        } else {
            match users(cluster, &name) {
                Ok(users) => retire_class(class, Ok(&users)),
                Err(UnknownPods::Denied(message)) => retire_class(class, Err(&message)),
                Err(UnknownPods::NotListed) => return None,
                Err(UnknownPods::Unreadable(message)) => {
                    let message = format!("stays until winpool sees the pods again: {message}");
                    let problem = Problem::new(reason::PODS_NOT_SEEN, ObjectReference::runtime_class(&name), message);
                    return self.postpone(pool, None, problem, PODS_AGAIN, now);
                }
            }
        };
        let (request, released) = match retirement {
            ClassRetirement::Delete => (ClassRequest::Delete(Box::new(RuntimeClass::clone(class))), None),
            ClassRetirement::Release { changes, why } => (ClassRequest::patch(class, changes), Some(why)),
        };
        Some(class_step(cluster, &name, request, None, released, Some(class)))
    }

    /// True if an unwanted class still has to be deleted or released. A class that is not winpool's own stays, and one
    /// that is being deleted waits for others.
    pub(super) fn waits_for_class(&self, pool: &Pool, name: &str) -> bool {
        let Some(memory) = self.pools.get(&pool.spec.name) else { return false };
        let known = memory.classes.get(name).and_then(|class| class.postponed.as_ref());
        let is_others = |reason: &str| [reason::CLASS_NOT_RECORDED, reason::IN_PROGRESS].contains(&reason);
        known.is_none_or(|postponed| !is_others(&postponed.problem.reason))
    }

    pub(super) fn class_answered(&mut self, pool: &str, step: &ClassStep, answer: Answer, now: Instant) {
        let (name, patience) = (&step.name, self.patience);
        let memory = self.of(pool).class(name);
        match (&step.request, answer) {
            (ClassRequest::Read, Answer::Class(class)) => memory.answered(step, class, now),
            (ClassRequest::Delete(_), answer @ (Answer::Done | Answer::Class(_) | Answer::Refused(Refusal::Gone))) => {
                // The finalizers of others can keep it.
                let kept = if let Answer::Class(kept) = answer { kept } else { None };
                let is_gone = kept.is_none();
                memory.answered(step, kept, now);
                (memory.attempts, memory.failures) = (0, 0);
                if is_gone {
                    self.note(pool, Note::ClassDeleted(name.clone()));
                }
            }
            (_, Answer::Class(class)) => self.class_written(pool, step, class, now),
            (_, Answer::Refused(refusal)) => {
                if matches!(refusal, Refusal::Conflict | Refusal::Gone) && memory.attempts < ATTEMPTS {
                    memory.attempts += 1;
                    memory.answer = None;
                    return;
                }
                (memory.attempts, memory.failures) = (0, memory.failures + 1);
                let (wait, object) = (refusal.pause(memory.failures, patience), ObjectReference::runtime_class(name));
                let planned = step.planned.as_ref();
                let (problem, note) = match &refusal {
                    Refusal::Denied(message) => {
                        let detail = format!("the API server refuses the class, next try within 10 minutes: {message}");
                        let message =
                            format!("RuntimeClass {name} stays as it is and keeps winpool's labels: {detail}");
                        let left = Note::Left(Problem::new(reason::ADMISSION_DENIED, object.clone(), message));
                        (Problem::new(reason::ADMISSION_DENIED, object, detail), planned.is_none().then_some(left))
                    }
                    _ => (write_failed(object, refusal.message()), None),
                };
                memory.postpone(planned, problem.clone(), now + wait);
                self.note(pool, note.unwrap_or_else(|| Note::ClassPostponed(name.clone(), problem, wait)));
            }
            _ => {}
        }
    }

    fn class_written(&mut self, pool: &str, step: &ClassStep, class: Option<Arc<RuntimeClass>>, now: Instant) {
        let (name, unseen) = (&step.name, self.pauses.classes);
        let memory = self.of(pool);
        let uid = class.as_ref().and_then(|class| class.uid());
        let known = memory.class(name);
        known.written(step, class.as_ref(), now);
        known.answered(step, class, now);
        (known.attempts, known.failures, known.postponed) = (0, 0, None);
        let Some(PlannedClass { action, .. }) = &step.planned else {
            let released =
                step.released.iter().map(|why| Note::ClassReleased { class: name.clone(), why: why.clone() });
            return released.for_each(|note| self.note(pool, note));
        };
        let (reason, fields) = if let ClassAction::Change { changes, tolerations, .. } = action {
            if *tolerations {
                known.was_widened(step.current.clone(), now, unseen);
            }
            ("RuntimeClassChanged", changes.iter().map(|change| change.path.join(".")).collect())
        } else {
            memory.created.extend(uid);
            ("RuntimeClassCreated", Vec::new())
        };
        self.note(pool, Note::ClassWritten(name.clone(), reason, fields));
    }
}

fn class_step(
    cluster: &CachedCluster<'_>,
    name: &str,
    request: ClassRequest,
    planned: Option<PlannedClass>,
    released: Option<String>,
    current: Option<&Arc<RuntimeClass>>,
) -> Step {
    let cached = cluster.cached_version(name);
    Step::Class(Box::new(ClassStep {
        name: name.to_owned(),
        request,
        planned,
        released,
        current: current.cloned(),
        cached,
    }))
}

/// The unfinished pods of the class.
fn users(cluster: &CachedCluster<'_>, class: &str) -> Result<ClassUsers, UnknownPods> {
    cluster.pods.as_ref().map(|pods| pods.users(class)).map_err(Clone::clone)
}
