//! The RuntimeClasses of a pool, each independently: a class whose write fails or has to wait delays no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::{Discriminant, discriminant},
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{ObjectReference, Problem, names::reason},
    plan::{
        classes::{
            ClassesPlan, plan_classes,
            report::{being_deleted, contested, is_being_deleted, needs_other_builds, not_recorded},
            runtime_class::{
                COPY, ClassAction, ClassRetirement, DesiredClass, KEPT_TAINT, PlannedClass, is_made_by_winpool,
                release_class, retire_class, selected_build,
            },
        },
        nodes::{capability_labels, numbers::Tally},
        patch::FieldChange,
        pods::table::{ClassUsers, UnknownPods},
        pools::pool::{Hosts, Pool},
        reconcile::{
            memory::{Memory, POLL_INTERVAL, WriteConflict, write_failed},
            step::{Answer, CachedCluster, ClassRequest, ClassStep, Note, Step},
        },
        refusal::Refusal,
    },
    pod::selector_of,
    windows::Build,
};

/// The number of attempts for a class that changes between reading and writing, before the write has to wait.
const ATTEMPTS: u32 = 4;
/// The number of recorded classes after which those that are gone are forgotten.
const RECORDED: usize = 128;
/// The pause before winpool looks again if the pods of a class are gone.
const PODS_AGAIN: Duration = Duration::from_secs(5);

impl Memory {
    /// Forgets classes that do not exist and that the pool does not want: a node may report many different builds.
    pub(crate) fn forget_classes(&mut self, cluster: &CachedCluster<'_>, pool: &str, plan: &ClassesPlan, now: Instant) {
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

    pub(crate) fn plan_classes(&self, cluster: &CachedCluster<'_>, pool: &Pool, tally: &Tally) -> ClassesPlan {
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
    pub(crate) fn class_step(
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
        if memory.wait_reason(Some(planned), now).is_some() && !memory.is_contested(now) {
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
        let known = self.of(&pool.spec.name).class(&problem.object.name);
        let is_known = known.is_contested(now);
        known.postpone(planned, problem.clone(), now + wait);
        if !is_known {
            self.note(&pool.spec.name, Note::ClassPostponed(problem, wait));
        }
        None
    }

    /// Deletes or releases a class that has the pool's label and that the pool does not want.
    pub(crate) fn retire_step(
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
        // The end of the pool decides about a class that is not recorded.
        let is_decided = |problem: &Problem| pool.spec.deleting && problem.reason == reason::CLASS_NOT_RECORDED;
        if known.wait_reason(None, now).is_some_and(|problem| !is_decided(problem)) {
            return None;
        }
        if is_being_deleted(class) {
            known.postpone(None, being_deleted(class), now + POLL_INTERVAL);
            return None;
        }
        if let Some(pause) = known.back_off(Some(class), now) {
            return self.postpone(pool, None, contested(&name, Some(class)), pause, now);
        }
        // A user copied a class with its labels, or winpool ended before it recorded the class that it had created.
        let is_copy = is_made_by_winpool(class) && !is_recorded && !release;
        if is_copy && !pool.spec.deleting {
            known.postpone(None, not_recorded(&name), now + POLL_INTERVAL);
            return None;
        }
        let retirement = if is_copy || release {
            release_class(class, if is_copy { COPY } else { KEPT_TAINT }.to_owned())
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
    pub(crate) fn waits_for_class(&self, pool: &Pool, name: &str) -> bool {
        let Some(memory) = self.pools.get(&pool.spec.name) else { return false };
        let known = memory.classes.get(name).and_then(|class| class.postponed.as_ref());
        known.is_none_or(|postponed| match postponed.problem.reason.as_str() {
            reason::CLASS_NOT_RECORDED | reason::IN_PROGRESS => false,
            reason::ADMISSION_DENIED => !self.is_uninstalled,
            _ => true,
        })
    }

    pub(crate) fn class_answered(&mut self, pool: &str, step: &ClassStep, answer: Answer, now: Instant) {
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
                if refusal.is_late() && memory.attempts < ATTEMPTS {
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
                self.note(pool, note.unwrap_or(Note::ClassPostponed(problem, wait)));
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

// The nodes that a class selects, now and next.

impl Memory {
    /// The classes that select a build whose capability label is not on all nodes that run its images. A label that nodes
    /// do not get by the published policy may be on none of them. If no node gets the label, for example because all are
    /// ignored, the class goes on selecting the build. A dry run shows the class as it will be.
    pub(crate) fn unlabelled(
        &self,
        cluster: &CachedCluster<'_>,
        pool: &Pool,
        existing: &[Arc<RuntimeClass>],
        tally: &Tally,
    ) -> BTreeMap<String, (Build, usize)> {
        let published = self.published(&pool.spec.name);
        let unlabelled = existing.iter().filter(|_| pool.spec.enforces()).filter_map(|class| {
            let build = selected_build(class)?;
            let is_published = published.is_some_and(|published| published.images().contains(&build));
            let nodes = match tally.unlabelled(build) {
                0 if is_published => without_label(cluster, class, &capability_labels::key(build)),
                nodes => nodes,
            };
            (!is_published || nodes > 0).then(|| (class.name_any(), (build, nodes)))
        });
        unlabelled.collect()
    }
}

/// True if the class is about to select a build that no node of the pool has, instead of a capability label.
pub(crate) fn leaves_its_pods(
    cluster: &CachedCluster<'_>,
    pool: &Pool,
    planned: &PlannedClass,
    class: &RuntimeClass,
) -> bool {
    let Hosts::Of(build) = planned.desired.hosts else { return false };
    !cluster.nodes.tally(&pool.spec.name).seen().builds.contains_key(&build)
        && selector_of(class).contains_key(&capability_labels::key(build))
}

/// The number of nodes that the class selects, if no node has this label.
fn without_label(cluster: &CachedCluster<'_>, class: &RuntimeClass, label: &str) -> usize {
    let (nodes, selector) = (|| cluster.nodes.nodes().map(|(object, _)| &object.node.labels), selector_of(class));
    if nodes().any(|labels| labels.get(label).is_some()) {
        return 0;
    }
    nodes().filter(|labels| labels.matches(&selector)).count()
}

/// A class is contested until it has been up to date for this long.
const SETTLED: Duration = Duration::from_secs(10);
/// If the cache does not show a new class within this time, winpool reads the class: others may have deleted it.
const SHOWN: Duration = Duration::from_secs(5);

/// The API server's last answer about a class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassAnswer {
    /// The version that the cache showed when winpool asked. Another version in the cache takes precedence.
    cached: Option<String>,
    pub(crate) class: Option<Arc<RuntimeClass>>,
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
    pub(crate) answer: Option<ClassAnswer>,
    /// Recent writes, whatever they changed: another writer may alternate between values.
    conflict: WriteConflict<()>,
    /// The version in which winpool's last write left the class.
    left: Option<String>,
    /// True if the last write changed a class that existed.
    patched: bool,
    /// The time since which a contested class has needed no write.
    pub(crate) right_since: Option<Instant>,
    /// The number of times in a row that the class changed between reading and writing.
    pub(crate) attempts: u32,
    /// The number of writes in a row that failed.
    pub(crate) failures: u32,
    pub(crate) postponed: Option<Postponed>,
    /// The time until which some API servers may not know its new tolerations, and the class before that change.
    pub(crate) widened: Option<(Instant, Option<Arc<RuntimeClass>>)>,
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
    pub(crate) problem: Problem,
    pub(crate) until: Instant,
}

impl Postponed {
    fn is_contested(&self) -> bool {
        self.problem.reason == reason::CONTESTED
    }
}

impl ClassRequest {
    pub(crate) fn patch(class: &RuntimeClass, changes: Vec<FieldChange>) -> Self {
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

    pub(crate) fn answered(&mut self, step: &ClassStep, class: Option<Arc<RuntimeClass>>, now: Instant) {
        self.answer = Some(ClassAnswer { cached: step.cached.clone(), class, at: now });
    }

    /// Forgets the answer if the cache has changed since, or has not shown a new class in time.
    pub(crate) fn forget_answer(&mut self, cached: Option<&str>, now: Instant) {
        let Some(answer) = &self.answer else { return };
        if answer.cached.as_deref() != cached {
            self.answer = None;
        } else if answer.due().is_some_and(|due| due <= now) {
            // An attempt without an answer begins with a read.
            (self.answer, self.attempts) = (None, self.attempts.max(1));
        }
    }

    pub(crate) fn postpone(&mut self, planned: Option<&PlannedClass>, problem: Problem, until: Instant) {
        self.postponed = Some(Postponed { target: target(planned), problem, until });
    }

    /// The reason why this class has to wait.
    pub(crate) fn wait_reason(&self, planned: Option<&PlannedClass>, now: Instant) -> Option<&Problem> {
        let postponed = self.postponed.as_ref().filter(|postponed| now < postponed.until)?;
        (postponed.is_contested() || postponed.target == target(planned)).then_some(&postponed.problem)
    }

    /// True if another writer keeps changing the class, even if it is up to date at the moment.
    pub(crate) fn is_contested(&self, now: Instant) -> bool {
        self.postponed.as_ref().is_some_and(|postponed| postponed.is_contested() && now < postponed.until)
    }

    /// Records that the class needs no write. It stays contested for a while: if another writer alternates between values,
    /// each of them would be a write of the status otherwise.
    pub(crate) fn is_up_to_date(&mut self, now: Instant) {
        (self.attempts, self.failures) = (0, 0);
        self.postponed.take_if(|postponed| !postponed.is_contested());
        let Some(postponed) = &mut self.postponed else { return };
        postponed.until = *self.right_since.get_or_insert(now) + SETTLED;
        if postponed.until <= now {
            (self.postponed, self.right_since) = (None, None);
        }
    }

    /// The pause before the next write, if another writer keeps changing the class.
    pub(crate) fn back_off(&self, current: Option<&Arc<RuntimeClass>>, now: Instant) -> Option<Duration> {
        self.conflict.pause(&(), now).filter(|_| self.was_changed(current))
    }

    /// True if another writer has changed, deleted or created the class since winpool wrote it.
    fn was_changed(&self, current: Option<&Arc<RuntimeClass>>) -> bool {
        self.left.is_some() && current.and_then(|class| class.resource_version()) != self.left
    }

    /// Records a write. It counts as a repair only if another writer has changed the class since the last one.
    pub(crate) fn written(&mut self, step: &ClassStep, class: Option<&Arc<RuntimeClass>>, now: Instant) {
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
    pub(crate) fn was_patched(&self, now: Instant) -> bool {
        self.patched && self.conflict.is_recent(now)
    }

    /// Records that the class got tolerations that `before` lacks. Some API servers may not know them for this time.
    pub(crate) fn was_widened(&mut self, before: Option<Arc<RuntimeClass>>, now: Instant, unseen: Duration) {
        // The wait for an earlier change still counts.
        let open = self.widened.take().filter(|(until, _)| now < *until);
        self.widened = Some((now + unseen, open.map_or(before, |(_, earlier)| earlier)));
    }
}
