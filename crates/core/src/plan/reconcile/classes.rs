//! The RuntimeClasses of a pool, each independently: a class whose write fails or has to wait delays no other. And their
//! effects on nodes and status.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use super::step::{Answer, CachedCluster, ClassRequest, ClassStep, Note, Step};
use super::{ATTEMPTS, Behind, CACHE_BEHIND, Memory, Round, write_failed};
use crate::api::names::{self, reason};
use crate::api::{ClassState, Isolation, ObjectReference, Problem, RuntimeClassStatus, Taint, number};
use crate::plan::SHOWN;
use crate::plan::attempt::{Attempt, RequestError, WriteConflict};
use crate::plan::classes::runtime_class::{
    COPY, ClassAction, ClassRetirement, ClassUsers, DesiredClass, KEPT_TAINT, PlannedClass, describe, describe_users,
    is_made_by_winpool, lacks_tolerations, owner, release_class, retire_class, selected_build,
};
use crate::plan::classes::{ClassesPlan, is_declared, plan_classes};
use crate::plan::nodes::capability_labels;
use crate::plan::patch::FieldChange;
use crate::plan::pods::table::UnknownPods;
use crate::plan::pools::consent::LaggingClass;
use crate::plan::pools::pool::{Hosts, Pool};
use crate::pod::selector_of;
use crate::windows::Build;

/// The number of recorded classes after which those that are gone are forgotten.
const RECORDED: usize = 128;
/// The pause before winpool looks again if the pods of a class are gone.
const PODS_AGAIN: Duration = Duration::from_secs(5);

impl Memory {
    /// Forgets the uids of classes that are gone, and requests whose effect the cache shows.
    pub(super) fn forget_classes(&mut self, round: &Round<'_>) {
        let (memory, now) = (self.of(round.name()), round.now.instant);
        for (name, known) in &mut memory.classes {
            let version = round.class(name).and_then(|class| class.metadata.resource_version.as_deref());
            known.behind.take_if(|(behind, _)| behind.is_over(version, now));
        }
        if memory.created.len() > RECORDED {
            let uids: BTreeSet<_> = round.cluster.classes.iter().filter_map(|class| class.uid()).collect();
            memory.created.retain(|uid| uids.contains(uid));
        }
    }

    pub(super) fn plan_classes(&self, round: &Round<'_>) -> ClassesPlan {
        let (cluster, pool) = (round.cluster, &round.pool);
        let mut own = round.tally().seen();
        own.awaited_capabilities = self.awaited_capabilities(round);
        own.tolerate.extend(self.pools.get(round.name()).into_iter().flat_map(|memory| memory.former.keys().cloned()));
        let seen = |name: &str| if name == round.name() { own.clone() } else { cluster.nodes.tally(name).seen() };
        let selects_nodes = |selector: &BTreeMap<String, String>| {
            let nodes = cluster.nodes.objects().map(|object| &object.node.labels);
            let mut own = nodes.filter(|labels| pool.spec.selects(labels)).peekable();
            own.peek().is_none() || own.any(|labels| labels.matches(selector))
        };
        plan_classes(pool, &self.policy(cluster.pools), &seen, cluster.classes, &selects_nodes)
    }

    /// The classes that select a build whose capability label is not on all nodes that run its images. A label that nodes
    /// do not get by the published policy may be on none of them. If no node gets the label, for example because all are
    /// ignored, the class goes on selecting the build. A dry run shows the class as it will be.
    fn awaited_capabilities(&self, round: &Round<'_>) -> BTreeMap<String, (Build, usize)> {
        let published = self.published(round.name());
        let awaited_capabilities =
            round.cluster.classes.iter().filter(|_| round.pool.spec.enforces()).filter_map(|class| {
                let build = selected_build(class)?;
                let is_published = published.is_some_and(|published| published.images().contains(&build));
                let nodes = match round.tally().awaited_capabilities.get(&build).copied().unwrap_or_default() {
                    0 if is_published => without_label(round.cluster, class, &capability_labels::key(build)),
                    nodes => nodes,
                };
                (!is_published || nodes > 0).then(|| (class.name_any(), (build, nodes)))
            });
        awaited_capabilities.collect()
    }

    /// The next request about a class of the pool, if one is due; or a wait, until the cache shows what was written.
    pub(super) fn class_step(&mut self, round: &Round<'_>, plan: &ClassesPlan) -> Option<Step> {
        if !round.pool.spec.enforces() {
            return None;
        }
        let write = plan.classes.iter().find_map(|planned| self.write_step(round, planned));
        let mut leftover = plan.leftover.iter().filter_map(|name| round.class(name));
        let step = write.or_else(|| leftover.find_map(|class| self.retire_step(round, class, false)));
        let unseen = self.of(round.name()).classes.values().filter_map(|known| {
            known.behind.as_ref().filter(|(_, is_written)| *is_written).map(|(behind, _)| behind.until)
        });
        step.or_else(|| Some(Step::Wait(Some(unseen.min()?))))
    }

    /// The next request to create or change a class that the pool wants.
    fn write_step(&mut self, round: &Round<'_>, planned: &PlannedClass) -> Option<Step> {
        let (name, action, now) = (&planned.desired.name, &planned.action, round.now.instant);
        let current = round.class(name);
        let memory = self.of(round.name()).class(name);
        if !action.writes() {
            memory.is_up_to_date(now);
            return None;
        }
        if memory.behind.is_some() {
            return None;
        }
        let leaves_pods = current.is_some_and(|class| leaves_its_pods(round, planned, class));
        memory.right_since = None;
        if let Some(pause) = memory.back_off(current, now) {
            return self.postpone(round, Some(planned), contested(name, current), pause);
        }
        // A node with the build of the class has come.
        memory.attempt.last.take_if(|((_, problem), _)| {
            !leaves_pods && matches!(action, ClassAction::Change { .. }) && problem.reason == reason::CLASS_IN_USE
        });
        if memory.wait_reason(Some(planned), now).is_some() && !memory.is_contested(now) {
            return None;
        }
        let step = |request| Some(class_step(round, name, request, Some(planned.clone()), None));
        match (action, current) {
            (ClassAction::Create(class), _) => step(ClassRequest::Create(class.clone())),
            (ClassAction::Change { changes, .. }, Some(class)) if leaves_pods => {
                let users = match users(round, name) {
                    Ok(ClassUsers { count: 0, .. }) => return step(ClassRequest::patch(class, changes.clone())),
                    Err(UnknownPods::NotListed) => return None,
                    Ok(users) => Ok(users),
                    Err(UnknownPods::Unreadable(message) | UnknownPods::Denied(message)) => Err(message),
                };
                self.postpone(round, Some(planned), needs_other_builds(name, &users), PODS_AGAIN)
            }
            (ClassAction::Change { changes, .. }, Some(class)) => step(ClassRequest::patch(class, changes.clone())),
            _ => None,
        }
    }

    /// Sends nothing about the class with this problem for a while, unless the pool wants something else.
    fn postpone<T>(
        &mut self,
        round: &Round<'_>,
        planned: Option<&PlannedClass>,
        problem: Problem,
        wait: Duration,
    ) -> Option<T> {
        let (pool, now) = (round.name(), round.now.instant);
        let known = self.of(pool).class(&problem.object.name);
        let is_known = known.is_contested(now);
        known.postpone(planned, problem.clone(), now + wait);
        if !is_known {
            self.note(pool, Note::ClassPostponed(problem, wait));
        }
        None
    }

    /// Deletes or releases a class that has the pool's label and that the pool does not want. A class that others still need is
    /// released in any case.
    pub(super) fn retire_step(
        &mut self,
        round: &Round<'_>,
        class: &Arc<RuntimeClass>,
        is_needed: bool,
    ) -> Option<Step> {
        let (name, now) = (class.name_any(), round.now.instant);
        let memory = self.of(round.name());
        let is_recorded = class.uid().is_some_and(|uid| memory.created.contains(&uid));
        let known = memory.class(&name);
        if known.wait_reason(None, now).is_some() || known.behind.is_some() || is_being_deleted(class) {
            return None;
        }
        if let Some(pause) = known.back_off(Some(class), now) {
            return self.postpone(round, None, contested(&name, Some(class)), pause);
        }
        let retirement = if is_needed {
            release_class(class, KEPT_TAINT.to_owned())
        } else if is_made_by_winpool(class) && !is_recorded {
            // A user copied a class with its labels, or winpool ended before it recorded the class that it had created.
            release_class(class, COPY.to_owned())
        } else {
            match users(round, &name) {
                Ok(users) => retire_class(class, Ok(&users)),
                Err(UnknownPods::Denied(message)) => retire_class(class, Err(&message)),
                Err(UnknownPods::NotListed) => return None,
                Err(UnknownPods::Unreadable(message)) => {
                    let message = format!("stays until winpool sees the pods again: {message}");
                    let problem = Problem::new(reason::PODS_NOT_SEEN, ObjectReference::runtime_class(&name), message);
                    return self.postpone(round, None, problem, PODS_AGAIN);
                }
            }
        };
        let (request, released) = match retirement {
            ClassRetirement::Delete => (ClassRequest::Delete(Box::new(RuntimeClass::clone(class))), None),
            ClassRetirement::Release { changes, why } => (ClassRequest::patch(class, changes), Some(why)),
        };
        Some(class_step(round, &name, request, None, released))
    }

    /// True if an unwanted class still has to be deleted or released. One that is being deleted waits for others.
    pub(super) fn waits_for_class(&self, round: &Round<'_>, class: &RuntimeClass) -> bool {
        let Some(memory) = self.pools.get(round.name()) else { return false };
        let known = memory.classes.get(&class.name_any()).and_then(|class| class.attempt.last.as_ref());
        let is_denied = known.is_some_and(|((_, problem), _)| problem.reason == reason::ADMISSION_DENIED);
        !(is_being_deleted(class) || is_denied && self.is_uninstalled)
    }

    pub(super) fn class_answered(&mut self, pool: &str, step: &ClassStep, answer: Answer, now: Instant) {
        let (name, patience) = (&step.name, self.patience);
        let memory = self.of(pool).class(name);
        match (&step.request, answer) {
            (
                ClassRequest::Delete(_),
                answer @ (Answer::Done | Answer::Class(_) | Answer::Refused(RequestError::Gone)),
            ) => {
                memory.attempt.failures = 0;
                memory.await_cache(step, true, now + SHOWN);
                // The finalizers of others can keep it.
                if !matches!(answer, Answer::Class(Some(_))) {
                    self.note(pool, Note::ClassDeleted(name.clone()));
                }
            }
            (_, Answer::Class(class)) => self.class_written(pool, step, class.as_ref(), now),
            (_, Answer::Refused(refusal)) => {
                memory.attempt.failures += 1;
                let failures = memory.attempt.failures;
                if refusal.is_late() && failures <= ATTEMPTS {
                    return memory.await_cache(step, false, now + CACHE_BEHIND);
                }
                let (wait, object) = (refusal.pause(failures, patience), ObjectReference::runtime_class(name));
                let planned = step.planned.as_ref();
                let (problem, note) = match &refusal {
                    RequestError::Denied(message) => {
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

    fn class_written(&mut self, pool: &str, step: &ClassStep, class: Option<&Arc<RuntimeClass>>, now: Instant) {
        let (name, unseen) = (&step.name, self.pauses.classes);
        let memory = self.of(pool);
        let uid = class.and_then(|class| class.uid());
        let known = memory.class(name);
        known.written(step, class, now);
        known.await_cache(step, true, now + SHOWN);
        known.attempt = Attempt::default();
        let Some(PlannedClass { action, .. }) = &step.planned else {
            let released = step.released.iter().map(|why| Note::ClassReleased(name.clone(), why.clone()));
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
    round: &Round<'_>,
    name: &str,
    request: ClassRequest,
    planned: Option<PlannedClass>,
    released: Option<String>,
) -> Step {
    let current = round.class(name).cloned();
    Step::Class(Box::new(ClassStep { name: name.to_owned(), request, planned, released, current }))
}

/// The unfinished pods of the class.
fn users(round: &Round<'_>, class: &str) -> Result<ClassUsers, UnknownPods> {
    round.cluster.pods.as_ref().map(|pods| pods.users(class)).map_err(Clone::clone)
}

/// True if the class is about to select a build that no node of the pool has, instead of a capability label.
fn leaves_its_pods(round: &Round<'_>, planned: &PlannedClass, class: &RuntimeClass) -> bool {
    let Hosts::Of(build) = planned.desired.hosts else { return false };
    selector_of(class).contains_key(&capability_labels::key(build)) && !round.tally().builds.contains_key(&build)
}

/// The number of nodes that the class selects, if no node has this label.
fn without_label(cluster: &CachedCluster<'_>, class: &RuntimeClass, label: &str) -> usize {
    let (nodes, selector) = (|| cluster.nodes.objects().map(|object| &object.node.labels), selector_of(class));
    if nodes().any(|labels| labels.get(label).is_some()) {
        return 0;
    }
    nodes().filter(|labels| labels.matches(&selector)).count()
}

/// A class is contested until it has been up to date for this long.
const SETTLED: Duration = Duration::from_secs(10);

/// The state of one RuntimeClass between steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassMemory {
    /// The last request, while the cache does not show what has become of the class. True if it was accepted.
    behind: Option<(Behind, bool)>,
    /// Recent writes, whatever they changed: another writer may alternate between values.
    conflict: WriteConflict<()>,
    /// The version in which winpool's last write left the class.
    left: Option<String>,
    /// The time since which a contested class has needed no write.
    right_since: Option<Instant>,
    /// The last write that was refused or has to wait, unless the target changes.
    attempt: Attempt<(WriteTarget, Problem)>,
    /// The time until which some API servers may not know its new tolerations, and the class before that change.
    widened: Option<(Instant, Option<Arc<RuntimeClass>>)>,
}

/// The class that the pool wants, with the kind of the next action; `None` if the pool gives the class up.
type WriteTarget = Option<(DesiredClass, Discriminant<ClassAction>)>;

fn target(planned: Option<&PlannedClass>) -> WriteTarget {
    planned.map(|planned| (planned.desired.clone(), discriminant(&planned.action)))
}

fn is_contested((_, problem): &(WriteTarget, Problem)) -> bool {
    problem.reason == reason::CONTESTED
}

impl ClassRequest {
    fn patch(class: &RuntimeClass, changes: Vec<FieldChange>) -> Self {
        let version = class.resource_version().unwrap_or_default();
        Self::Patch { uid: class.uid().unwrap_or_default(), version, changes }
    }
}

impl ClassMemory {
    /// The times at which the class is due again.
    pub fn dues(&self) -> impl Iterator<Item = Instant> {
        let widened = self.widened.as_ref().map(|(until, _)| *until);
        let postponed = self.attempt.last.as_ref().map(|(_, until)| *until);
        postponed.into_iter().chain(widened).chain(self.behind.as_ref().map(|(behind, _)| behind.until))
    }

    fn await_cache(&mut self, step: &ClassStep, is_written: bool, until: Instant) {
        let version = step.current.as_ref().and_then(|class| class.resource_version());
        self.behind = Some((Behind { version, until }, is_written));
    }

    fn postpone(&mut self, planned: Option<&PlannedClass>, problem: Problem, until: Instant) {
        self.attempt.last = Some(((target(planned), problem), until));
    }

    /// The reason why this class has to wait.
    fn wait_reason(&self, planned: Option<&PlannedClass>, now: Instant) -> Option<&Problem> {
        let (postponed, _) = self.attempt.pause(now)?;
        (is_contested(postponed) || postponed.0 == target(planned)).then_some(&postponed.1)
    }

    /// True if another writer keeps changing the class, even if it is up to date at the moment.
    fn is_contested(&self, now: Instant) -> bool {
        self.attempt.pause(now).is_some_and(|(postponed, _)| is_contested(postponed))
    }

    /// Records that the class needs no write. It stays contested for a while: if another writer alternates between values,
    /// each of them would be a write of the status otherwise.
    fn is_up_to_date(&mut self, now: Instant) {
        self.attempt.failures = 0;
        self.attempt.last.take_if(|(postponed, _)| !is_contested(postponed));
        let Some((_, until)) = &mut self.attempt.last else { return };
        *until = *self.right_since.get_or_insert(now) + SETTLED;
        if *until <= now {
            (self.attempt.last, self.right_since) = (None, None);
        }
    }

    /// The pause before the next write, if another writer keeps changing the class.
    fn back_off(&self, current: Option<&Arc<RuntimeClass>>, now: Instant) -> Option<Duration> {
        self.conflict.pause(&(), now).filter(|_| self.was_changed(current))
    }

    /// True if another writer has changed, deleted or created the class since winpool wrote it.
    fn was_changed(&self, current: Option<&Arc<RuntimeClass>>) -> bool {
        self.left.is_some() && current.and_then(|class| class.resource_version()) != self.left
    }

    /// Records a write. It counts as a repair only if another writer has changed the class since the last one.
    fn written(&mut self, step: &ClassStep, class: Option<&Arc<RuntimeClass>>, now: Instant) {
        if !self.was_changed(step.current.as_ref()) {
            self.conflict = WriteConflict::default();
        }
        self.conflict.written((), now);
        self.left = class.and_then(|class| class.resource_version());
    }

    /// Writes at once again, because the pool has changed.
    pub fn end_back_off(&mut self) {
        self.conflict = WriteConflict::default();
        self.attempt.last.take_if(|(postponed, _)| is_contested(postponed));
    }

    /// Records that the class got tolerations that `before` lacks. Some API servers may not know them for this time.
    fn was_widened(&mut self, before: Option<Arc<RuntimeClass>>, now: Instant, unseen: Duration) {
        // The wait for an earlier change still counts.
        let open = self.widened.take().filter(|(until, _)| now < *until);
        self.widened = Some((now + unseen, open.map_or(before, |(_, earlier)| earlier)));
    }
}

// What follows for nodes and status.

impl Memory {
    /// The classes that do not tolerate the pool's taints yet.
    pub(super) fn lagging(&self, round: &Round<'_>, plan: &ClassesPlan) -> Vec<LaggingClass> {
        let (pool, now) = (&round.pool, round.now.instant);
        let known = self.pools.get(round.name()).map(|memory| &memory.classes);
        let lagging = ours(plan).filter_map(|planned| {
            let name = &planned.desired.name;
            let known = known.and_then(|known| known.get(name));
            let Some(class) = round.class(name) else { return missing(pool, &planned.desired, known) };
            // winpool does not change a class that another owner manages, so no taint waits for it.
            if planned.action.state() == ClassState::Satisfied {
                return None;
            }
            let widened = known.and_then(|known| known.widened.as_ref());
            let old = widened.filter(|(until, _)| now < *until).map(|(_, before)| before.as_ref());
            let not_seen = |taint: &Taint| old.is_some_and(|old| old.is_none_or(|old| lacks_tolerations(old, [taint])));
            let lacks = |taint: &Taint| not_seen(taint) || lacks_tolerations(class, [taint]);
            let taints: Vec<Taint> = pool.spec.tolerated_taints.iter().filter(|taint| lacks(taint)).cloned().collect();
            let selector = selector_of(class);
            (!taints.is_empty()).then(|| LaggingClass { name: name.clone(), selector, taints, is_missing: false })
        });
        lagging.collect()
    }

    /// Records the uids of classes with winpool's labels under wanted names, even if winpool ended before it could do
    /// so.
    fn record_own(&mut self, round: &Round<'_>, plan: &ClassesPlan) {
        let own = ours(plan).filter_map(|planned| round.class(&planned.desired.name));
        let own = own.filter(|class| is_made_by_winpool(class) && owner(class) == Some(round.name()));
        let own = own.filter(|_| round.pool.spec.enforces()).filter_map(|class| class.uid());
        self.of(round.name()).created.extend(own);
    }

    /// Records the same of a pool that is being deleted.
    pub(super) fn record_wanted(&mut self, pool: &Pool, owned: &[Arc<RuntimeClass>]) {
        let is_wanted = |class: &&Arc<RuntimeClass>| {
            let name = class.name_any();
            let is_discovered = |build| pool.spec.discover && pool.spec.class_name(build).as_ref() == Some(&name);
            is_declared(pool, &name) || selected_build(class).is_some_and(is_discovered)
        };
        let own = owned.iter().filter(|class| is_made_by_winpool(class)).filter(is_wanted);
        self.of(&pool.spec.name).created.extend(own.filter_map(|class| class.uid()));
    }

    /// The classes in status, with their problems.
    pub(super) fn class_report(
        &mut self,
        round: &Round<'_>,
        plan: ClassesPlan,
    ) -> (Vec<RuntimeClassStatus>, Vec<Problem>) {
        self.record_own(round, &plan);
        let (builds, now) = (round.tally().seen().builds, round.now.instant);
        let (memory, mut classes, mut problems) = (self.of(round.name()), Vec::new(), plan.problems);
        let mut report = |name: String, build: Option<Build>, isolation, handler: String, state| {
            let uid = round.class(&name).and_then(|class| class.uid()).filter(|uid| memory.created.contains(uid));
            let nodes = number(build.and_then(|build| builds.get(&build)).copied().unwrap_or(0));
            let build = build.map_or_else(|| "Any".to_owned(), |build| build.to_string());
            classes.push(RuntimeClassStatus { name, uid, build, isolation, handler, state, nodes });
        };
        for planned in plan.classes {
            let known = memory.classes.get(&planned.desired.name);
            problems.extend(class_problems(round, &planned, known));
            let PlannedClass { desired: DesiredClass { name, hosts, isolation, handler, .. }, action } = planned;
            // Its nodes get their labels by the policy that is published next.
            let is_due = round.pool.spec.enforces() && plan.to_label.get(&name) == Some(&0);
            let is_contested = known.is_some_and(|memory| memory.is_contested(now));
            let state = if is_due || is_contested { ClassState::Pending } else { action.state() };
            let handler = round.class(&name).map_or(handler, |class| class.handler.clone());
            report(name, hosts.build(), isolation, handler, state);
        }
        for class in plan.leftover.iter().filter_map(|name| round.class(name)) {
            let name = class.name_any();
            problems.extend(memory.classes.get(&name).and_then(|known| known.wait_reason(None, now)).cloned());
            problems.extend(being_deleted(class));
            // It stays in status until it is gone: winpool never deletes a class without its uid.
            if class.uid().is_some_and(|uid| memory.created.contains(&uid)) {
                report(name, selected_build(class), Isolation::default(), class.handler.clone(), ClassState::Pending);
            }
        }
        (classes, problems)
    }
}

/// The problems of a wanted class.
fn class_problems(round: &Round<'_>, planned: &PlannedClass, memory: Option<&ClassMemory>) -> Vec<Problem> {
    let name = &planned.desired.name;
    let mut problems = Vec::new();
    match &planned.action {
        ClassAction::OtherHandler(problem) | ClassAction::Conflict(problem) => problems.push(problem.clone()),
        _ if round.pool.spec.enforces() => {
            problems.extend(memory.and_then(|memory| memory.wait_reason(Some(planned), round.now.instant)).cloned());
        }
        action => {
            let object = ObjectReference::runtime_class(name);
            problems.extend(describe(action).map(|message| Problem::new(reason::WOULD_CHANGE, object, message)));
        }
    }
    let pods = round.cluster.health.of_class(name);
    problems.extend(pods.and_then(|pods| pods.problem(name, planned.desired.hosts.is_by_label())));
    problems
}

/// The wanted classes that the pool may have.
fn ours(plan: &ClassesPlan) -> impl Iterator<Item = &PlannedClass> {
    plan.classes.iter().filter(|planned| !matches!(planned.action, ClassAction::Conflict(_)))
}

/// A missing class, for which the nodes of its build wait, unless the API server refuses it.
fn missing(pool: &Pool, desired: &DesiredClass, known: Option<&ClassMemory>) -> Option<LaggingClass> {
    let postponed = known.and_then(|known| known.attempt.last.as_ref());
    let is_denied = postponed.is_some_and(|((_, problem), _)| problem.reason != reason::WRITE_FAILED);
    let build = desired.hosts.build().filter(|_| desired.isolation == Isolation::Process && !is_denied)?;
    let mut selector = desired.node_selector.clone();
    selector.remove(&capability_labels::key(build));
    selector.insert(names::WINDOWS_BUILD.to_owned(), build.to_string());
    Some(LaggingClass {
        name: desired.name.clone(),
        selector,
        taints: pool.spec.tolerated_taints.clone(),
        is_missing: true,
    })
}

fn contested(name: &str, class: Option<&Arc<RuntimeClass>>) -> Problem {
    let mut managers = class.iter().flat_map(|class| class.managed_fields()).filter_map(|e| e.manager.as_deref());
    let writer = managers.rfind(|manager| *manager != names::FIELD_MANAGER).unwrap_or("unknown");
    let message = format!(
        "another writer keeps reverting winpool's changes (field manager: {writer}); correct the class at its source, or \
         give this pool's classes other names with runtimeClassNameFormat"
    );
    Problem::new(reason::CONTESTED, ObjectReference::runtime_class(name), message)
}

fn needs_other_builds(name: &str, users: &Result<ClassUsers, String>) -> Problem {
    let why = describe_users(users.as_ref().map_err(String::as_str));
    let message = format!("keeps selecting its capability label, because no node has its build; {why}");
    Problem::new(reason::CLASS_IN_USE, ObjectReference::runtime_class(name), message)
}

/// True if the class is deleted as soon as its finalizers are removed. winpool adds none.
fn is_being_deleted(class: &RuntimeClass) -> bool {
    class.metadata.deletion_timestamp.is_some()
}

fn being_deleted(class: &RuntimeClass) -> Option<Problem> {
    let finalizers = Some(class.finalizers().join(", ")).filter(|_| is_being_deleted(class))?;
    let message = format!("is being deleted, and stays until these finalizers are removed: {finalizers}");
    Some(Problem::new(reason::IN_PROGRESS, ObjectReference::runtime_class(&class.name_any()), message))
}
