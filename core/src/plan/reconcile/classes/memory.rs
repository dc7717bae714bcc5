//! What is remembered of one RuntimeClass.

use std::{
    collections::BTreeMap,
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
        super::{ClassAction, ClassUsers, DesiredClass, PlannedClass, WriteConflict},
        CLASSES_SEEN, ClassRequest, LOOK_AGAIN, Retry,
    },
    report::{contested, in_use},
};

/// How long it is taken for granted that no pod uses a class.
const UNUSED: Duration = Duration::from_secs(2);

/// What is remembered of one RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassMemory {
    /// The class as the API server answered last.
    pub(super) read: LastAnswer,
    /// The version in the cache when that was asked: a newer one in the cache counts more than the answer.
    pub(super) cached: Option<String>,
    pub(super) conflict: WriteConflict<DesiredClass>,
    /// The write that was sent last: what it does, and what the class is to become.
    pub sent: Option<(ClassAction, DesiredClass)>,
    /// How often in a row the class changed between reading and writing.
    pub(super) attempts: u32,
    pub(super) retry: Retry,
    pub(super) postponed: Option<Postponed>,
    /// The class before the patch that was sent last.
    pub(super) patched: Option<Arc<RuntimeClass>>,
    /// Until when API servers may not know the tolerations that it got, and the class before that.
    pub(super) widened: Option<(Instant, Option<Arc<RuntimeClass>>)>,
    pub(super) users: Option<(Result<ClassUsers, String>, Instant)>,
    /// Since when pods are looked for that were created before the class tolerated the pool's taints.
    pub(super) early_again: Option<Instant>,
    /// When it was seen that a class of that name may be created.
    pub(super) creatable: Option<Instant>,
}

/// What the API server answered last about a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum LastAnswer {
    #[default]
    None,
    Missing,
    Found(Arc<RuntimeClass>),
}

/// A write that was refused or has to wait: it is not sent before `until`, unless something else is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Postponed {
    pub(super) action: Option<ClassAction>,
    pub(super) problem: Problem,
    pub(super) until: Instant,
}

/// What to do about a class that is not as it should be.
pub enum NextWrite {
    CountUsers,
    Postpone(Problem, Duration),
    Send(ClassRequest),
}

impl ClassMemory {
    /// When there is something to do about the class.
    pub fn dues(&self) -> impl Iterator<Item = Instant> {
        let widened = self.widened.as_ref().map(|(until, _)| *until);
        self.postponed.as_ref().map(|postponed| postponed.until).into_iter().chain(widened).chain(self.early_again)
    }

    /// Whether a write of the class was refused, or has to wait.
    pub fn has_to_wait(&self) -> bool {
        self.postponed.is_some()
    }

    pub fn found_users(&mut self, users: Result<ClassUsers, String>, now: Instant) {
        let waiting = users.as_ref().is_ok_and(|users| !users.created_too_early.is_empty());
        self.early_again = self.early_again.filter(|_| waiting).map(|_| now + LOOK_AGAIN);
        // That nobody uses a class is true for a moment only.
        let is_unused = users.as_ref().is_ok_and(|users| users.count == 0);
        self.users = Some((users, now + if is_unused { UNUSED } else { LOOK_AGAIN }));
    }

    /// The users, if they were counted a moment ago.
    pub(super) fn users(&self, now: Instant) -> Option<&Result<ClassUsers, String>> {
        self.users.as_ref().filter(|(_, until)| now < *until).map(|(users, _)| users)
    }

    pub(super) fn postpone(&mut self, action: Option<&ClassAction>, problem: Problem, until: Instant) {
        self.postponed = Some(Postponed { action: action.cloned(), problem, until });
    }

    pub(super) fn stands(&self, action: Option<&ClassAction>, now: Instant) -> Option<&Problem> {
        let postponed = self.postponed.as_ref().filter(|postponed| now < postponed.until)?;
        (postponed.action.as_ref() == action).then_some(&postponed.problem)
    }

    /// What to do so that the class becomes what the plan wants.
    pub(super) fn next_write(
        &self,
        planned: &PlannedClass,
        current: Option<&Arc<RuntimeClass>>,
        now: Instant,
    ) -> Option<NextWrite> {
        let name = &planned.desired.name;
        if self.attempts > 0 && self.read == LastAnswer::None {
            return Some(NextWrite::Send(ClassRequest::Read));
        }
        if let Some(pause) = self.conflict.pause(&planned.desired, now) {
            return Some(NextWrite::Postpone(contested(name, current.map(AsRef::as_ref)), pause));
        }
        let request = match (&planned.action, current) {
            (ClassAction::Create(class), _) => ClassRequest::Create(class.clone()),
            (ClassAction::Change { changes, .. }, Some(class)) => ClassRequest::Patch {
                uid: class.uid().unwrap_or_default(),
                version: class.resource_version().unwrap_or_default(),
                changes: changes.clone(),
            },
            (ClassAction::Replace(class), Some(current)) => match self.users(now) {
                None => return Some(NextWrite::CountUsers),
                Some(Ok(ClassUsers { count: 0, .. })) => {
                    if self.creatable.is_some_and(|at| now < at + LOOK_AGAIN) {
                        ClassRequest::Delete(Box::new(RuntimeClass::clone(current)))
                    } else {
                        ClassRequest::TryCreate(class.clone())
                    }
                }
                Some(users) => return Some(NextWrite::Postpone(in_use(name, users), LOOK_AGAIN)),
            },
            _ => return None,
        };
        Some(NextWrite::Send(request))
    }

    pub(super) fn learn(&mut self, class: Option<Arc<RuntimeClass>>) {
        self.read = class.map_or(LastAnswer::Missing, LastAnswer::Found);
    }

    /// Whether API servers may not know its tolerations yet.
    pub(in super::super) fn was_widened_just_now(&self, now: Instant) -> bool {
        self.widened.as_ref().is_some_and(|(until, _)| now < *until)
    }

    /// The class got tolerations. API servers may not know them yet.
    pub(super) fn was_widened(&mut self, now: Instant) {
        // What an earlier change has yet to make known counts on.
        let open = self.widened.take().filter(|(until, _)| now < *until);
        let before = open.map_or_else(|| self.patched.take(), |(_, before)| before);
        self.widened = Some((now + CLASSES_SEEN, before));
        self.early_again = Some(now);
    }

    pub(super) fn too_early(&self) -> Option<Early<'_>> {
        let (users, _) = self.users.as_ref().filter(|_| self.early_again.is_some())?;
        let found = &users.as_ref().ok()?.created_too_early;
        (!found.is_empty()).then_some(Early(found))
    }
}

/// Pods that were created before their class tolerated the pool's taints, by workload.
pub(super) struct Early<'a>(&'a BTreeMap<String, usize>);

impl Early<'_> {
    pub fn describe(&self, class: &str) -> Problem {
        let named: Vec<String> = self.0.iter().take(5).map(|(name, count)| format!("{name} ({count})")).collect();
        Problem {
            reason: reason::PODS_CREATED_TOO_EARLY.to_owned(),
            object: ObjectReference::runtime_class(class),
            message: format!(
                "{} without a node, created before the class tolerated the pool's taints: pods keep the tolerations that \
                 they were created with. Delete these pods; their controllers recreate them: {}",
                count(self.0.values().sum::<usize>(), "pod"),
                named.join(", ")
            ),
        }
    }
}
