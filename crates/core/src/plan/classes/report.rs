//! The effects of a pool's classes on its nodes and its status.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::ResourceExt;

use crate::{
    api::{
        ClassState, Isolation, ObjectReference, Problem, RuntimeClassStatus, Taint,
        names::{self, reason},
        number,
    },
    plan::{
        classes::{
            ClassesPlan, is_declared,
            runtime_class::{
                ClassAction, DesiredClass, PlannedClass, describe, is_made_by_winpool, lacks_tolerations, owner,
                selected_build,
            },
            steps::ClassMemory,
        },
        nodes::capability_labels,
        pods::{
            failures::PodHealth,
            table::{ClassUsers, describe_users},
        },
        pools::pool::{Hosts, Pool},
        reconcile::{
            memory::{Memory, PoolMemory},
            step::CachedCluster,
        },
        taints::LaggingClass,
    },
    pod::selector_of,
    windows::{Build, compatibility::can_run},
};

impl Memory {
    /// The classes that do not tolerate the pool's taints yet.
    pub(crate) fn lagging(
        &self,
        pool: &Pool,
        plan: &ClassesPlan,
        existing: &[Arc<RuntimeClass>],
        now: Instant,
    ) -> Vec<LaggingClass> {
        let known = self.pools.get(&pool.spec.name).map(|memory| &memory.classes);
        let lagging = ours(plan).filter_map(|planned| {
            let name = &planned.desired.name;
            let known = known.and_then(|known| known.get(name));
            let Some(class) = existing.iter().find(|class| class.name_any() == *name) else {
                return missing(pool, &planned.desired, known);
            };
            // winpool does not change a class that another owner manages, so no taint waits for it.
            if planned.action.state() == ClassState::Satisfied {
                return None;
            }
            let widened = known.and_then(|known| known.widened.as_ref());
            let old = widened.filter(|(until, _)| now < *until).map(|(_, before)| before.as_ref());
            let not_seen = |taint: &Taint| old.is_some_and(|old| old.is_none_or(|old| lacks_tolerations(old, [taint])));
            let lacks = |taint: &Taint| not_seen(taint) || lacks_tolerations(class, [taint]);
            let taints: Vec<Taint> = pool.spec.wanted_taints().into_iter().filter(lacks).collect();
            let selector = selector_of(class);
            (!taints.is_empty()).then(|| LaggingClass { name: name.clone(), selector, taints, is_missing: false })
        });
        lagging.collect()
    }

    /// Records the uids of classes with winpool's labels under wanted names, even if winpool ended before it could do
    /// so.
    pub(crate) fn record_own(&mut self, pool: &Pool, plan: &ClassesPlan, existing: &[Arc<RuntimeClass>]) {
        let wanted: BTreeSet<&String> = ours(plan).map(|planned| &planned.desired.name).collect();
        let is_own = |class: &&Arc<RuntimeClass>| {
            wanted.contains(&class.name_any()) && is_made_by_winpool(class) && owner(class) == Some(&pool.spec.name)
        };
        let own = existing.iter().filter(|_| pool.spec.enforces()).filter(is_own);
        self.of(&pool.spec.name).created.extend(own.filter_map(|class| class.uid()));
    }

    /// Records the same of a pool that is being deleted.
    pub(crate) fn record_wanted(&mut self, pool: &Pool, owned: &[Arc<RuntimeClass>]) {
        let is_wanted = |class: &&Arc<RuntimeClass>| {
            let name = class.name_any();
            let is_discovered = |build| pool.spec.discover && pool.spec.class_name(build) == name;
            is_declared(pool, &name) || selected_build(class).is_some_and(is_discovered)
        };
        let own = owned.iter().filter(|class| is_made_by_winpool(class)).filter(is_wanted);
        self.of(&pool.spec.name).created.extend(own.filter_map(|class| class.uid()));
    }

    /// The classes in status, with their problems.
    pub(crate) fn class_report(
        &self,
        cluster: &CachedCluster<'_>,
        pool: &Pool,
        plan: ClassesPlan,
        existing: &[Arc<RuntimeClass>],
        builds: &BTreeMap<Build, usize>,
        now: Instant,
    ) -> (Vec<RuntimeClassStatus>, Vec<Problem>) {
        let (mut classes, mut problems) = (Vec::new(), plan.problems);
        let (memory, health) = (self.pools.get(&pool.spec.name), &cluster.health);
        let known = KnownClasses { memory, existing, builds, health };
        for planned in plan.classes {
            problems.extend(known.problems(pool, &planned, now));
            let PlannedClass { desired: DesiredClass { name, hosts, isolation, handler, .. }, action } = planned;
            // Its nodes get their labels by the policy that is published next.
            let is_due = pool.spec.enforces() && plan.to_label.get(&name) == Some(&0);
            let is_contested = known.memory_of(&name).is_some_and(|memory| memory.is_contested(now));
            let state = if is_due || is_contested { ClassState::Pending } else { action.state() };
            let handler = known.find(&name).map_or(handler, |class| class.handler.clone());
            classes.push(known.status(name, hosts.build(), isolation, handler, state));
        }
        for class in plan.leftover.iter().filter_map(|name| known.find(name)) {
            let name = class.name_any();
            problems.extend(known.memory_of(&name).and_then(|memory| memory.wait_reason(None, now)).cloned());
            let (build, handler) = (selected_build(class), class.handler.clone());
            let status = known.status(name, build, Isolation::default(), handler, ClassState::Pending);
            // It stays in status until it is gone: winpool never deletes a class without its uid.
            classes.extend(Some(status).filter(|status| status.uid.is_some()));
        }
        (classes, problems)
    }
}

/// The facts about the classes of a pool.
struct KnownClasses<'a> {
    memory: Option<&'a PoolMemory>,
    existing: &'a [Arc<RuntimeClass>],
    /// Number of the pool's nodes by build.
    builds: &'a BTreeMap<Build, usize>,
    health: &'a PodHealth,
}

impl KnownClasses<'_> {
    fn memory_of(&self, name: &str) -> Option<&ClassMemory> {
        self.memory?.classes.get(name)
    }

    fn find(&self, name: &str) -> Option<&Arc<RuntimeClass>> {
        self.existing.iter().find(|class| class.name_any() == name)
    }

    /// The uid of the class, if winpool created it.
    fn recorded_uid(&self, name: &str) -> Option<String> {
        self.find(name)?.uid().filter(|uid| self.memory.is_some_and(|memory| memory.created.contains(uid)))
    }

    fn status(
        &self,
        name: String,
        build: Option<Build>,
        isolation: Isolation,
        handler: String,
        state: ClassState,
    ) -> RuntimeClassStatus {
        let nodes = build.and_then(|build| self.builds.get(&build)).copied().unwrap_or(0);
        let uid = self.recorded_uid(&name);
        let build = build.map_or_else(|| "Any".to_owned(), |build| build.to_string());
        RuntimeClassStatus { name, uid, build, isolation, handler, state, nodes: number(nodes) }
    }

    /// The problems of a wanted class.
    fn problems(&self, pool: &Pool, planned: &PlannedClass, now: Instant) -> Vec<Problem> {
        let (name, memory) = (&planned.desired.name, self.memory_of(&planned.desired.name));
        let mut problems = Vec::new();
        match &planned.action {
            ClassAction::OtherHandler(problem) | ClassAction::Conflict(problem) => problems.push(problem.clone()),
            _ if pool.spec.enforces() => {
                problems.extend(memory.and_then(|memory| memory.wait_reason(Some(planned), now)).cloned());
            }
            action => {
                problems.extend(
                    describe(action).map(|message| {
                        Problem::new(reason::WOULD_CHANGE, ObjectReference::runtime_class(name), message)
                    }),
                );
            }
        }
        if let Some(pods) = self.health.of_class(name) {
            if pods.is_unserved {
                problems.push(not_served(pool, name, planned.desired.hosts, self.builds, &pods.users));
            } else {
                problems.extend(pods.too_early(name));
            }
        }
        problems
    }
}

/// The wanted classes that the pool may have.
fn ours(plan: &ClassesPlan) -> impl Iterator<Item = &PlannedClass> {
    plan.classes.iter().filter(|planned| !matches!(planned.action, ClassAction::Conflict(_)))
}

/// A missing class, for which the nodes of its build wait, unless the API server refuses it.
fn missing(pool: &Pool, desired: &DesiredClass, known: Option<&ClassMemory>) -> Option<LaggingClass> {
    let postponed = known.and_then(|known| known.postponed.as_ref());
    let is_denied = postponed.is_some_and(|postponed| postponed.problem.reason != reason::WRITE_FAILED);
    let build = desired.hosts.build().filter(|_| desired.isolation == Isolation::Process && !is_denied)?;
    let mut selector = desired.node_selector.clone();
    selector.remove(&capability_labels::key(build));
    selector.insert(names::WINDOWS_BUILD.to_owned(), build.to_string());
    Some(LaggingClass { name: desired.name.clone(), selector, taints: pool.spec.wanted_taints(), is_missing: true })
}

pub(crate) fn contested(name: &str, class: Option<&Arc<RuntimeClass>>) -> Problem {
    let mut managers = class.iter().flat_map(|class| class.managed_fields()).filter_map(|e| e.manager.as_deref());
    let writer = managers.rfind(|manager| *manager != names::FIELD_MANAGER).unwrap_or("unknown");
    let message = format!(
        "another writer keeps reverting winpool's changes (field manager: {writer}); correct the class at its source, or \
         give this pool's classes other names with runtimeClassNameFormat"
    );
    Problem::new(reason::CONTESTED, ObjectReference::runtime_class(name), message)
}

/// The problem of a class that pods use and that selects no node. `builds` are those of the pool's nodes.
fn not_served(pool: &Pool, class: &str, hosts: Hosts, builds: &BTreeMap<Build, usize>, users: &ClassUsers) -> Problem {
    let compatible = || Some(pool.spec.exact_host_match(class)?.command(&pool.spec.name));
    let runs_images = |host: &&Build| hosts.build().is_some_and(|image| can_run(image, **host));
    let remedy = match builds.keys().find(runs_images) {
        Some(host) if hosts.is_by_label() => {
            format!("nodes with {host} run its images if they have containerd 1.7.19 or later and its handler")
        }
        Some(host) if let Some(command) = compatible() => {
            format!("nodes with {host} can run its images: {command}, and then delete the pods that wait")
        }
        _ => "add a node that it selects, or let the workloads use another class".to_owned(),
    };
    let message = format!("selects no node and is {}; {remedy}", users.describe());
    Problem::new(reason::CLASS_WITHOUT_NODES, ObjectReference::runtime_class(class), message)
}

pub(crate) fn needs_other_builds(name: &str, users: &Result<ClassUsers, String>) -> Problem {
    let why = describe_users(users.as_ref().map_err(String::as_str));
    let message = format!("keeps selecting its capability label, because no node has its build; {why}");
    Problem::new(reason::CLASS_IN_USE, ObjectReference::runtime_class(name), message)
}

pub(crate) fn not_recorded(name: &str) -> Problem {
    let message = "carries winpool's labels, but winpool has no record that it created this class and no pool wants \
     it, so winpool does not change it; remove its labels, or delete it";
    Problem::new(reason::CLASS_NOT_RECORDED, ObjectReference::runtime_class(name), message.to_owned())
}

/// True if the class is deleted as soon as its finalizers are removed. winpool adds none.
pub(crate) fn is_being_deleted(class: &RuntimeClass) -> bool {
    class.metadata.deletion_timestamp.is_some()
}

pub(crate) fn being_deleted(class: &RuntimeClass) -> Problem {
    let message =
        format!("is being deleted, and stays until these finalizers are removed: {}", class.finalizers().join(", "));
    Problem::new(reason::IN_PROGRESS, ObjectReference::runtime_class(&class.name_any()), message)
}
