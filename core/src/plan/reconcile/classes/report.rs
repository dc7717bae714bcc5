//! What a pool's classes hold up, and what its status says of them.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::api::{
    ClassState, ObjectReference, Problem, RuntimeClassStatus, Taint,
    names::{self, reason},
};

use super::{
    super::{
        super::{
            ClassAction, ClassUsers, ClassesPlan, DesiredClass, Hosts, LaggingClass, PlannedClass, Pool, describe,
            is_made_by_winpool, lacks_tolerations, owner,
        },
        Memory,
    },
    ClassMemory,
};

impl Memory {
    /// The classes that do not tolerate the pool's taints yet.
    pub(in super::super) fn lagging(
        &self,
        pool: &Pool,
        plan: &ClassesPlan,
        existing: &[Arc<RuntimeClass>],
        now: Instant,
    ) -> Vec<LaggingClass> {
        let known = self.pools.get(&pool.name).map(|memory| &memory.classes);
        let owned = plan.classes.iter().filter(|planned| !matches!(planned.action, ClassAction::Conflict(_)));
        let lagging = owned.filter_map(|planned| {
            let known = known.and_then(|known| known.get(&planned.desired.name));
            let Some(class) = existing.iter().find(|class| class.name_any() == planned.desired.name) else {
                return missing(pool, &planned.desired, known);
            };
            // A class that somebody else keeps holds nothing by itself; its pods do.
            if planned.state == ClassState::Satisfied {
                return None;
            }
            let widened = known.and_then(|known| known.widened.as_ref());
            let old = widened.filter(|(until, _)| now < *until).map(|(_, before)| before.as_ref());
            let not_seen = |taint: &Taint| old.is_some_and(|old| old.is_none_or(|old| lacks_tolerations(old, [taint])));
            let lacks = |taint: &Taint| not_seen(taint) || lacks_tolerations(class, [taint]);
            let taints: Vec<Taint> = pool.wanted_taints().into_iter().filter(lacks).collect();
            let selector = class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.clone());
            (!taints.is_empty()).then(|| LaggingClass {
                name: class.name_any(),
                selector: selector.unwrap_or_default(),
                taints,
                is_missing: false,
            })
        });
        lagging.collect()
    }

    /// A class under a wanted name that says it is winpool's is one, even if winpool ended before it could record that.
    pub(in super::super) fn record_own(&mut self, pool: &Pool, plan: &ClassesPlan, existing: &[Arc<RuntimeClass>]) {
        let wanted = plan.classes.iter().filter(|planned| !matches!(planned.action, ClassAction::Conflict(_)));
        let wanted: BTreeSet<&String> = wanted.map(|planned| &planned.desired.name).collect();
        let is_own = |class: &&Arc<RuntimeClass>| is_made_by_winpool(class) && owner(class) == Some(&pool.name);
        let own = existing.iter().filter(|class| pool.enforces() && wanted.contains(&class.name_any())).filter(is_own);
        let uids = own.filter_map(|class| Some((class.name_any(), class.uid()?)));
        self.of(&pool.name).created.extend(uids);
    }

    /// What status says of the classes, and what needs attention.
    pub(in super::super) fn class_report(
        &self,
        pool: &Pool,
        plan: ClassesPlan,
        existing: &[Arc<RuntimeClass>],
        now: Instant,
    ) -> (Vec<RuntimeClassStatus>, Vec<Problem>) {
        let (mut classes, mut problems) = (Vec::new(), plan.problems);
        let memory = self.pools.get(&pool.name);
        let known = |name: &str| memory.and_then(|memory| memory.classes.get(name));
        for PlannedClass { desired, action, state } in plan.classes {
            let class = existing.iter().find(|class| class.name_any() == desired.name);
            match &action {
                ClassAction::Conflict(problem) => problems.push(problem.clone()),
                action if pool.enforces() => {
                    problems.extend(known(&desired.name).and_then(|known| known.stands(Some(action), now)).cloned());
                }
                action => problems.extend(would_change(&desired.name, action)),
            }
            problems.extend(
                known(&desired.name).and_then(ClassMemory::too_early).map(|early| early.describe(&desired.name)),
            );
            let created = memory.and_then(|memory| memory.created.get(&desired.name));
            let is_recorded = class.is_some_and(|class| class.uid().as_ref() == created);
            classes.push(status_of(&desired, state, created.filter(|_| is_recorded)));
        }
        for name in &plan.leftover {
            let Some(class) = existing.iter().find(|class| class.name_any() == *name) else { continue };
            let problem = known(name).and_then(|known| known.stands(None, now)).cloned();
            problems.extend(problem);
            // It stands in status until it is gone: without its uid it would never be deleted.
            let created =
                memory.and_then(|memory| memory.created.get(name)).filter(|uid| class.uid().as_ref() == Some(uid));
            if let Some(uid) = created {
                classes.push(leftover_status(class, uid));
            }
        }
        (classes, problems)
    }
}

/// Nodes wait for the class of their build, unless the API server refuses it.
fn missing(pool: &Pool, desired: &DesiredClass, known: Option<&ClassMemory>) -> Option<LaggingClass> {
    let is_denied =
        known.and_then(|known| known.postponed.as_ref()).is_some_and(|p| p.problem.reason != reason::WRITE_FAILED);
    let is_of_a_build = matches!(desired.hosts, Hosts::Of(_));
    (is_of_a_build && !is_denied).then(|| LaggingClass {
        name: desired.name.clone(),
        selector: desired.node_selector.clone(),
        taints: pool.wanted_taints(),
        is_missing: true,
    })
}

fn status_of(desired: &DesiredClass, state: ClassState, uid: Option<&String>) -> RuntimeClassStatus {
    RuntimeClassStatus {
        name: desired.name.clone(),
        uid: uid.cloned(),
        build: desired.hosts.build().map_or_else(|| "Any".to_owned(), |build| build.to_string()),
        isolation: desired.isolation,
        handler: desired.handler.clone(),
        state,
        nodes: 0,
    }
}

/// A class that is about to go, as far as the object tells.
fn leftover_status(class: &RuntimeClass, uid: &str) -> RuntimeClassStatus {
    let selector = class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.as_ref());
    let build = selector.and_then(|selector| selector.get(names::WINDOWS_BUILD));
    RuntimeClassStatus {
        name: class.name_any(),
        uid: Some(uid.to_owned()),
        build: build.cloned().unwrap_or_else(|| "Any".to_owned()),
        isolation: crate::api::Isolation::default(),
        handler: class.handler.clone(),
        state: ClassState::Pending,
        nodes: 0,
    }
}

pub(super) fn contested(name: &str, class: Option<&RuntimeClass>) -> Problem {
    let mut managers = class.iter().flat_map(|class| class.managed_fields()).filter_map(|e| e.manager.as_deref());
    let writer = managers.rfind(|manager| *manager != names::FIELD_MANAGER).unwrap_or("unknown");
    Problem {
        reason: reason::CONTESTED.to_owned(),
        object: ObjectReference::runtime_class(name),
        message: format!(
            "another writer keeps reverting winpool's changes (field manager: {writer}); correct the class where it is kept, or \
             give this pool's classes other names with runtimeClassNameFormat"
        ),
    }
}

pub(super) fn denied(object: ObjectReference, words: &str) -> Problem {
    let message = format!("the API server refuses the class, next try within 10 minutes: {words}");
    Problem { reason: reason::ADMISSION_DENIED.to_owned(), object, message }
}

pub(super) fn in_use(name: &str, users: &Result<ClassUsers, String>) -> Problem {
    let why = match users {
        Ok(users) => users.describe(),
        Err(words) => format!("pods cannot be listed: {words}"),
    };
    Problem {
        reason: reason::CLASS_IN_USE.to_owned(),
        object: ObjectReference::runtime_class(name),
        message: format!("gets another handler, for which winpool recreates it once no pod uses it; {why}"),
    }
}

pub(super) fn not_recorded(name: &str) -> Problem {
    Problem {
        reason: reason::CLASS_NOT_RECORDED.to_owned(),
        object: ObjectReference::runtime_class(name),
        message:
            "carries winpool's labels, but winpool has no record that it created this class and no pool wants it, so \
                  it is left alone; take off its labels, or delete it"
                .to_owned(),
    }
}

fn would_change(name: &str, action: &ClassAction) -> Option<Problem> {
    let message = describe(action)?;
    Some(Problem { reason: reason::WOULD_CHANGE.to_owned(), object: ObjectReference::runtime_class(name), message })
}
