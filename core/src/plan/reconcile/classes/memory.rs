//! The state of one RuntimeClass between steps.

use std::{
    mem::{Discriminant, discriminant},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{Problem, names::reason},
    plan::{
        conflict::WriteConflict,
        patch::FieldChange,
        reconcile::step::{ClassRequest, ClassStep},
        runtime_class::{ClassAction, DesiredClass, PlannedClass},
    },
};

/// A class is contested until it has been up to date for this long.
const SETTLED: Duration = Duration::from_secs(10);
/// If the cache does not show a new class within this time, winpool reads the class: others may have deleted it.
const SHOWN: Duration = Duration::from_secs(5);

/// The API server's last answer about a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassAnswer {
    /// The version that the cache showed when winpool asked. Another version in the cache takes precedence.
    cached: Option<String>,
    pub(in super::super) class: Option<Arc<RuntimeClass>>,
    at: Instant,
}

impl ClassAnswer {
    /// The time at which a class that the cache has never shown is read again.
    fn due(&self) -> Option<Instant> {
        (self.cached.is_none() && self.class.is_some()).then_some(self.at + SHOWN)
    }
}

/// The state of one RuntimeClass between steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassMemory {
    pub(in super::super) answer: Option<ClassAnswer>,
    /// Recent writes, whatever they changed: another writer may alternate between values.
    conflict: WriteConflict<()>,
    /// The version in which winpool's last write left the class.
    left: Option<String>,
    /// True if the last write changed a class that existed.
    patched: bool,
    /// The time since which a contested class has needed no write.
    pub(super) right_since: Option<Instant>,
    /// The number of times in a row that the class changed between reading and writing.
    pub(super) attempts: u32,
    /// The number of writes in a row that failed.
    pub(super) failures: u32,
    pub(in super::super) postponed: Option<Postponed>,
    /// The time until which some API servers may not know its new tolerations, and the class before that change.
    pub(super) widened: Option<(Instant, Option<Arc<RuntimeClass>>)>,
}

/// The class that the pool wants, with the kind of the next action; `None` if the pool gives the class up.
type WriteTarget = Option<(DesiredClass, Discriminant<ClassAction>)>;

fn target(planned: Option<&PlannedClass>) -> WriteTarget {
    planned.map(|planned| (planned.desired.clone(), discriminant(&planned.action)))
}

/// A write that was refused or has to wait. It is not sent before `until`, unless the target changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Postponed {
    target: WriteTarget,
    pub(super) problem: Problem,
    pub(super) until: Instant,
}

impl Postponed {
    fn is_contested(&self) -> bool {
        self.problem.reason == reason::CONTESTED
    }
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
        let postponed = self.postponed.as_ref().map(|postponed| postponed.until);
        postponed.into_iter().chain(widened).chain(self.answer.as_ref().and_then(ClassAnswer::due))
    }

    pub(super) fn answered(&mut self, step: &ClassStep, class: Option<Arc<RuntimeClass>>, now: Instant) {
        self.answer = Some(ClassAnswer { cached: step.cached.clone(), class, at: now });
    }

    /// Forgets the answer if the cache has changed since, or has not shown a new class in time.
    pub(in super::super) fn forget_answer(&mut self, cached: Option<&str>, now: Instant) {
        let Some(answer) = &self.answer else { return };
        if answer.cached.as_deref() != cached {
            self.answer = None;
        } else if answer.due().is_some_and(|due| due <= now) {
            // An attempt without an answer begins with a read.
            (self.answer, self.attempts) = (None, self.attempts.max(1));
        }
    }

    pub(super) fn postpone(&mut self, planned: Option<&PlannedClass>, problem: Problem, until: Instant) {
        self.postponed = Some(Postponed { target: target(planned), problem, until });
    }

    /// The reason why this class has to wait.
    pub(super) fn stands(&self, planned: Option<&PlannedClass>, now: Instant) -> Option<&Problem> {
        let postponed = self.postponed.as_ref().filter(|postponed| now < postponed.until)?;
        (postponed.is_contested() || postponed.target == target(planned)).then_some(&postponed.problem)
    }

    /// True if another writer keeps changing the class, even if it is up to date at the moment.
    pub(super) fn is_contested(&self, now: Instant) -> bool {
        self.postponed.as_ref().is_some_and(|postponed| postponed.is_contested() && now < postponed.until)
    }

    /// Records that the class needs no write. It stays contested for a while: if another writer alternates between values,
    /// each of them would be a write of the status otherwise.
    pub(super) fn is_up_to_date(&mut self, now: Instant) {
        (self.attempts, self.failures) = (0, 0);
        self.postponed.take_if(|postponed| !postponed.is_contested());
        let Some(postponed) = &mut self.postponed else { return };
        postponed.until = *self.right_since.get_or_insert(now) + SETTLED;
        if postponed.until <= now {
            (self.postponed, self.right_since) = (None, None);
        }
    }

    /// The pause before the next write, if another writer keeps changing the class.
    pub(super) fn back_off(&self, current: Option<&Arc<RuntimeClass>>, now: Instant) -> Option<Duration> {
        self.conflict.pause(&(), now).filter(|_| self.was_changed(current))
    }

    /// True if another writer has changed, deleted or created the class since winpool wrote it.
    fn was_changed(&self, current: Option<&Arc<RuntimeClass>>) -> bool {
        self.left.is_some() && current.and_then(|class| class.resource_version()) != self.left
    }

    /// Records a write. It counts as a repair only if another writer has changed the class since the last one.
    pub(super) fn written(&mut self, step: &ClassStep, class: Option<&Arc<RuntimeClass>>, now: Instant) {
        if !self.was_changed(step.current.as_ref()) {
            self.conflict = WriteConflict::default();
        }
        self.conflict.written((), now);
        (self.left, self.patched) = (class.and_then(|class| class.resource_version()), step.current.is_some());
    }

    /// Writes at once again, because the pool has changed.
    pub fn end_back_off(&mut self) {
        self.conflict = WriteConflict::default();
        self.postponed.take_if(|postponed| postponed.is_contested());
    }

    /// True if winpool has changed the class recently. Another writer may delete it and create it again.
    pub(super) fn was_patched(&self, now: Instant) -> bool {
        self.patched && self.conflict.is_recent(now)
    }

    /// Records that the class got tolerations that `before` lacks. Some API servers may not know them for this time.
    pub(super) fn was_widened(&mut self, before: Option<Arc<RuntimeClass>>, now: Instant, unseen: Duration) {
        // The wait for an earlier change still counts.
        let open = self.widened.take().filter(|(until, _)| now < *until);
        self.widened = Some((now + unseen, open.map_or(before, |(_, earlier)| earlier)));
    }
}
