//! The state of one RuntimeClass between steps.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{ObjectReference, Problem, names::reason},
    words::count,
};

use super::{
    super::{
        super::{ClassAction, ClassUsers, DesiredClass, FieldChange, PlannedClass, WriteConflict},
        ClassRequest, LOOK_AGAIN, problem,
    },
    report::{being_deleted, contested, in_use, is_being_deleted},
};

/// The time for which a class without pods is assumed to be unused.
const UNUSED: Duration = Duration::from_secs(2);

/// The state of one RuntimeClass between steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassMemory {
    /// The API server's last answer, and the version in the cache at that time. A newer version in the cache takes
    /// precedence.
    pub(super) answer: Option<(Option<String>, Option<Arc<RuntimeClass>>)>,
    pub(super) conflict: WriteConflict<DesiredClass>,
    /// The number of times in a row that the class changed between reading and writing.
    pub(super) attempts: u32,
    /// The number of writes in a row that failed.
    pub(super) failures: u32,
    pub(in super::super) postponed: Option<Postponed>,
    /// The time until which some API servers may not know its new tolerations, and the class before that change.
    pub(super) widened: Option<(Instant, Option<Arc<RuntimeClass>>)>,
    pub(super) users: Option<(Result<ClassUsers, String>, Instant)>,
    /// The time of the next search for pods that were created before the class tolerated the pool's taints.
    pub(super) early_again: Option<Instant>,
    /// The time at which a test creation showed that a class with that name may be created.
    pub(super) creatable: Option<Instant>,
}

/// A write that was refused or has to wait. It is not sent before `until`, unless the pool wants another change.
#[derive(Clone, Debug, PartialEq)]
pub struct Postponed {
    pub(super) action: Option<ClassAction>,
    pub(super) problem: Problem,
    pub(super) until: Instant,
}

/// The next write of a class that differs from the plan.
pub enum NextWrite {
    CountUsers,
    Postpone(Problem, Duration),
    Send(ClassRequest),
}

impl ClassRequest {
    pub(super) fn patch(class: &RuntimeClass, changes: Vec<FieldChange>) -> Self {
        let version = class.resource_version().unwrap_or_default();
        Self::Patch { uid: class.uid().unwrap_or_default(), version, changes }
    }
}

impl ClassMemory {
    /// The times at which the class is due again.
    pub fn dues(&self) -> impl Iterator<Item = Instant> {
        let widened = self.widened.as_ref().map(|(until, _)| *until);
        self.postponed.as_ref().map(|postponed| postponed.until).into_iter().chain(widened).chain(self.early_again)
    }

    pub fn found_users(&mut self, users: Result<ClassUsers, String>, now: Instant) {
        let waiting = users.as_ref().is_ok_and(|users| !users.created_too_early.is_empty());
        self.early_again = self.early_again.filter(|_| waiting).map(|_| now + LOOK_AGAIN);
        // "No users" is a fact for a moment only.
        let is_unused = users.as_ref().is_ok_and(|users| users.count == 0);
        self.users = Some((users, now + if is_unused { UNUSED } else { LOOK_AGAIN }));
    }

    /// The users, if they were counted recently.
    pub(super) fn users(&self, now: Instant) -> Option<&Result<ClassUsers, String>> {
        self.users.as_ref().filter(|(_, until)| now < *until).map(|(users, _)| users)
    }

    pub(super) fn postpone(&mut self, action: Option<&ClassAction>, problem: Problem, until: Instant) {
        self.postponed = Some(Postponed { action: action.cloned(), problem, until });
    }

    /// The reason why this action has to wait.
    pub(super) fn stands(&self, action: Option<&ClassAction>, now: Instant) -> Option<&Problem> {
        let postponed = self.postponed.as_ref().filter(|postponed| now < postponed.until)?;
        (postponed.action.as_ref() == action).then_some(&postponed.problem)
    }

    /// The next write towards the planned class.
    pub(super) fn next_write(
        &self,
        planned: &PlannedClass,
        current: Option<&Arc<RuntimeClass>>,
        now: Instant,
    ) -> Option<NextWrite> {
        let name = &planned.desired.name;
        if self.attempts > 0 && self.answer.is_none() {
            return Some(NextWrite::Send(ClassRequest::Read));
        }
        if let Some(pause) = self.conflict.pause(&planned.desired, now) {
            return Some(NextWrite::Postpone(contested(name, current.map(AsRef::as_ref)), pause));
        }
        let request = match (&planned.action, current) {
            (ClassAction::Create(class), _) => ClassRequest::Create(class.clone()),
            (ClassAction::Change { changes, .. }, Some(class)) => ClassRequest::patch(class, changes.clone()),
            (ClassAction::Replace(_), Some(current)) if is_being_deleted(current) => {
                return Some(NextWrite::Postpone(being_deleted(current), LOOK_AGAIN));
            }
            (ClassAction::Replace(class), Some(current)) => match self.users(now) {
                None => return Some(NextWrite::CountUsers),
                Some(Ok(ClassUsers { count: 0, .. })) if self.creatable.is_some_and(|at| now < at + LOOK_AGAIN) => {
                    ClassRequest::Delete(Box::new(RuntimeClass::clone(current)))
                }
                Some(Ok(ClassUsers { count: 0, .. })) => ClassRequest::TryCreate(class.clone()),
                Some(users) => return Some(NextWrite::Postpone(in_use(name, users), LOOK_AGAIN)),
            },
            _ => return None,
        };
        Some(NextWrite::Send(request))
    }

    /// True if some API servers may not know its tolerations yet.
    pub(in super::super) fn was_widened_just_now(&self, now: Instant) -> bool {
        self.widened.as_ref().is_some_and(|(until, _)| now < *until)
    }

    /// Records that the class got tolerations that `before` lacks. Some API servers may not know them for this time.
    pub(super) fn was_widened(&mut self, before: Option<Arc<RuntimeClass>>, now: Instant, unseen: Duration) {
        // The wait for an earlier change still counts.
        let open = self.widened.take().filter(|(until, _)| now < *until);
        self.widened = Some((now + unseen, open.map_or(before, |(_, earlier)| earlier)));
        self.early_again = Some(now);
    }

    /// A problem that names the pods which were created before the class tolerated the pool's taints.
    pub(super) fn created_too_early(&self, class: &str) -> Option<Problem> {
        let (users, _) = self.users.as_ref().filter(|_| self.early_again.is_some())?;
        let found = &users.as_ref().ok()?.created_too_early;
        let named: Vec<String> = found.iter().take(5).map(|(name, count)| format!("{name} ({count})")).collect();
        let message = format!(
            "{} without a node, created before the class tolerated the pool's taints: pods keep the tolerations that \
             they were created with. Delete these pods; their controllers recreate them: {}",
            count(found.values().sum::<usize>(), "pod"),
            named.join(", ")
        );
        let problem = problem(reason::PODS_CREATED_TOO_EARLY, ObjectReference::runtime_class(class), message);
        (!found.is_empty()).then_some(problem)
    }
}
