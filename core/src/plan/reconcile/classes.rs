//! The RuntimeClasses of a pool, each by itself: a class whose write fails or has to wait holds up no other one.

mod memory;
mod report;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::api::{ObjectReference, names::reason};

use super::{
    super::{ClassAction, ClassesPlan, PlannedClass, Pool, Retirement, Tally, plan_classes, retire_class},
    ATTEMPTS, Answer, ClassRequest, Cluster, LOOK_AGAIN, Memory, Note, Refusal, Retry, Step, write_failed,
};

pub(super) use memory::ClassMemory;
use memory::{LastAnswer, NextWrite};
use report::{denied, not_recorded};

impl Memory {
    /// Forgets what the API server answered about classes of which the cache has another version by now.
    pub(super) fn forget_old_answers(&mut self, cluster: &Cluster<'_>, pool: &str) {
        for (name, memory) in &mut self.of(pool).classes {
            let class = cluster.classes.iter().find(|class| class.name_any() == *name);
            if class.and_then(|class| class.resource_version()) != memory.cached {
                memory.read = LastAnswer::None;
            }
        }
    }

    /// The classes as the caches show them, or as the API server answered since.
    pub(super) fn classes(&self, cluster: &Cluster<'_>, pool: &str) -> Vec<Arc<RuntimeClass>> {
        let mut classes: BTreeMap<String, Arc<RuntimeClass>> =
            cluster.classes.iter().map(|class| (class.name_any(), Arc::clone(class))).collect();
        let known = self.pools.get(pool).into_iter().flat_map(|memory| &memory.classes);
        for (name, memory) in known {
            if classes.get(name).and_then(|class| class.resource_version()) != memory.cached {
                continue;
            }
            match &memory.read {
                LastAnswer::None => continue,
                LastAnswer::Missing => classes.remove(name),
                LastAnswer::Found(class) => classes.insert(name.clone(), Arc::clone(class)),
            };
        }
        classes.into_values().collect()
    }

    pub(super) fn plan_classes(&self, cluster: &Cluster<'_>, pool: &Pool, tally: &Tally) -> ClassesPlan {
        let policy = self.policy(cluster.pools);
        let mut own = tally.seen();
        own.tolerate.extend(self.still_under_way(pool));
        let seen = |name: &str| if name == pool.name { own.clone() } else { (cluster.tally)(name).seen() };
        let selects_nodes = |selector: &BTreeMap<String, String>| {
            let (mut any, mut found) = (false, false);
            (cluster.nodes)(&mut |seen| {
                let is_the_pools = pool.selects(&seen.node.labels);
                any |= is_the_pools;
                found |= is_the_pools && seen.node.labels.matches(selector);
            });
            found || !any
        };
        plan_classes(pool, &policy, &seen, &self.classes(cluster, &pool.name), &selects_nodes)
    }

    /// The next request about a class of the pool, if one is due.
    pub(super) fn class_step(
        &mut self,
        cluster: &Cluster<'_>,
        pool: &Pool,
        plan: &ClassesPlan,
        now: Instant,
    ) -> Option<Step> {
        if !pool.enforces() {
            return None;
        }
        let existing = self.classes(cluster, &pool.name);
        for planned in &plan.classes {
            let current = existing.iter().find(|class| class.name_any() == planned.desired.name);
            if let Some(step) = self.write_step(cluster, pool, planned, current, now) {
                return Some(step);
            }
        }
        for name in &plan.leftover {
            let Some(class) = existing.iter().find(|class| class.name_any() == *name) else { continue };
            if let Some(step) = self.retire_step(cluster, pool, class, false, now) {
                return Some(step);
            }
        }
        self.early_step(pool, now)
    }

    /// Brings a class that the pool wants up to date.
    fn write_step(
        &mut self,
        cluster: &Cluster<'_>,
        pool: &Pool,
        planned: &PlannedClass,
        current: Option<&Arc<RuntimeClass>>,
        now: Instant,
    ) -> Option<Step> {
        let (name, action) = (&planned.desired.name, &planned.action);
        let users_pause = self.of(&pool.name).users.pause(now);
        let memory = self.of(&pool.name).classes.entry(name.clone()).or_default();
        if matches!(action, ClassAction::Nothing | ClassAction::Conflict(_)) {
            (memory.postponed, memory.attempts, memory.retry) = (None, 0, Retry::default());
            return None;
        }
        if memory.stands(Some(action), now).is_some() {
            return None;
        }
        match memory.next_write(planned, current, now)? {
            NextWrite::CountUsers if users_pause.is_some() => None,
            NextWrite::CountUsers => {
                Some(Step::FindUsers { classes: [name.clone()].into(), taints: pool.wanted_taints() })
            }
            NextWrite::Postpone(problem, wait) => {
                memory.postpone(Some(action), problem.clone(), now + wait);
                self.note(&pool.name, Note::ClassPostponed(name.clone(), problem, wait));
                None
            }
            NextWrite::Send(request) => {
                memory.sent = Some((action.clone(), planned.desired.clone()));
                memory.patched = current.cloned();
                Some(self.send(cluster, pool, name, request))
            }
        }
    }

    fn send(&mut self, cluster: &Cluster<'_>, pool: &Pool, name: &str, request: ClassRequest) -> Step {
        let cached = cluster.classes.iter().find(|class| class.name_any() == name).and_then(|c| c.resource_version());
        let known = self.of(&pool.name).classes.entry(name.to_owned()).or_default();
        if known.cached != cached {
            // The last answer is older than what the cache shows now, and must not stand for it if this request fails.
            (known.read, known.cached) = (LastAnswer::None, cached);
        }
        Step::Class(name.to_owned(), request)
    }

    /// Deletes or releases a class that carries the pool's label and that the pool does not want, or no longer.
    pub(super) fn retire_step(
        &mut self,
        cluster: &Cluster<'_>,
        pool: &Pool,
        class: &Arc<RuntimeClass>,
        release: bool,
        now: Instant,
    ) -> Option<Step> {
        let name = class.name_any();
        let memory = self.of(&pool.name);
        let is_recorded = memory.created.get(&name).is_some_and(|uid| Some(uid) == class.uid().as_ref());
        let users_pause = memory.users.pause(now);
        let known = memory.classes.entry(name.clone()).or_default();
        if known.stands(None, now).is_some() {
            return None;
        }
        let made = super::super::is_made_by_winpool(class);
        if made && !is_recorded && !release {
            // Somebody copied a class with its labels, or winpool ended before it could record what it had created.
            known.postpone(None, not_recorded(&name), now + LOOK_AGAIN);
            return None;
        }
        let end = if release {
            super::super::release_class(class, "nodes keep a taint that it tolerates".to_owned())
        } else {
            match known.users(now) {
                None if users_pause.is_some() => return None,
                None => {
                    let taints = pool.wanted_taints();
                    return Some(Step::FindUsers { classes: [name].into(), taints });
                }
                Some(users) => retire_class(class, users.as_ref().map_err(String::as_str)),
            }
        };
        known.sent = None;
        let request = match end {
            Retirement::Delete => ClassRequest::Delete(Box::new(RuntimeClass::clone(class))),
            Retirement::Release { changes, why } => {
                let note = Note::Left(
                    reason::CLASS_IN_USE,
                    format!("RuntimeClass/{name}"),
                    format!("RuntimeClass {name} stays and is no longer winpool's: {why}"),
                );
                self.note(&pool.name, note);
                ClassRequest::Patch {
                    uid: class.uid().unwrap_or_default(),
                    version: class.resource_version().unwrap_or_default(),
                    changes,
                }
            }
        };
        Some(self.send(cluster, pool, &name, request))
    }

    /// Whether a class that is to go is still to be deleted or released. One that is not winpool's own stays.
    pub(super) fn waits_for_class(&self, pool: &Pool, name: &str) -> bool {
        let Some(memory) = self.pools.get(&pool.name) else { return false };
        let known = memory.classes.get(name).and_then(|class| class.postponed.as_ref());
        known.is_none_or(|postponed| postponed.problem.reason != reason::CLASS_NOT_RECORDED)
    }

    /// Looks for pods that were created before their class tolerated the pool's taints.
    fn early_step(&mut self, pool: &Pool, now: Instant) -> Option<Step> {
        let memory = self.of(&pool.name);
        if memory.users.pause(now).is_some() {
            return None;
        }
        let due = memory.classes.iter().filter(|(_, class)| class.early_again.is_some_and(|again| again <= now));
        let classes: BTreeSet<String> = due.map(|(name, _)| name.clone()).collect();
        (!classes.is_empty()).then(|| Step::FindUsers { classes, taints: pool.wanted_taints() })
    }

    pub(super) fn class_answered(
        &mut self,
        pool: &str,
        name: &str,
        request: &ClassRequest,
        answer: Answer,
        now: Instant,
    ) {
        let memory = self.of(pool).classes.entry(name.to_owned()).or_default();
        match (request, answer) {
            (ClassRequest::Read, Answer::Class(class)) => memory.learn(class),
            (ClassRequest::TryCreate(_), Answer::Class(_) | Answer::Refused(Refusal::Conflict)) => {
                memory.creatable = Some(now);
            }
            (ClassRequest::Delete(_), Answer::Done | Answer::Class(_) | Answer::Refused(Refusal::Gone)) => {
                memory.learn(None);
                (memory.attempts, memory.retry, memory.creatable, memory.users) = (0, Retry::default(), None, None);
                if memory.sent.is_none() {
                    self.of(pool).created.remove(name);
                    self.note(pool, Note::ClassDeleted(name.to_owned()));
                }
            }
            (_, Answer::Class(class)) => self.class_written(pool, name, class, now),
            (_, Answer::Refused(refusal)) => self.class_refused(pool, name, request, &refusal, now),
            _ => {}
        }
    }

    fn class_refused(&mut self, pool: &str, name: &str, request: &ClassRequest, refusal: &Refusal, now: Instant) {
        let patience = self.patience;
        let memory = self.of(pool).classes.entry(name.to_owned()).or_default();
        if matches!(request, ClassRequest::TryCreate(_) | ClassRequest::Delete(_)) {
            // By the next try there may be others.
            memory.users = None;
        }
        if matches!(refusal, Refusal::Conflict | Refusal::Gone) && memory.attempts < ATTEMPTS {
            memory.attempts += 1;
            memory.read = LastAnswer::None;
            return;
        }
        let wait = memory.retry.failed(refusal, patience, now);
        memory.attempts = 0;
        let object = ObjectReference::runtime_class(name);
        let problem = match refusal {
            Refusal::Denied(words) => denied(object, words),
            _ => write_failed(object, &memory.retry.words),
        };
        let action = memory.sent.as_ref().map(|(action, _)| action.clone());
        memory.postpone(action.as_ref(), problem.clone(), now + wait);
        let note = if action.is_none() && problem.reason == reason::ADMISSION_DENIED {
            let words = &problem.message;
            let message = format!("RuntimeClass {name} stays as it is and keeps winpool's labels: {words}");
            Note::Left(reason::ADMISSION_DENIED, problem.object.to_string(), message)
        } else {
            Note::ClassPostponed(name.to_owned(), problem, wait)
        };
        self.note(pool, note);
    }

    fn class_written(&mut self, pool: &str, name: &str, class: Option<Arc<RuntimeClass>>, now: Instant) {
        let uid = class.as_ref().and_then(|class| class.uid());
        let memory = self.of(pool);
        let known = memory.classes.entry(name.to_owned()).or_default();
        known.learn(class);
        (known.attempts, known.retry, known.postponed, known.users) = (0, Retry::default(), None, None);
        let Some((action, desired)) = known.sent.take() else { return };
        known.conflict.written(desired, now);
        let (reason, fields) = if let ClassAction::Change { changes, tolerations, .. } = &action {
            if *tolerations {
                known.was_widened(now);
            }
            ("RuntimeClassChanged", changes.iter().map(|change| change.path.join(".")).collect())
        } else {
            memory.created.extend(uid.map(|uid| (name.to_owned(), uid)));
            ("RuntimeClassCreated", Vec::new())
        };
        self.note(pool, Note::ClassWritten(name.to_owned(), reason, fields));
    }
}
