//! What the RuntimeClasses of a pool should be.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::Toleration,
        node::v1::{Overhead, RuntimeClass, Scheduling},
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    api::{
        ClassState, DEFAULT_ARCHITECTURE, PROCESS_ISOLATION_HANDLER, Problem, RuntimeClassSpec, Taint,
        names::{self, reason},
        validation::is_dns_subdomain,
    },
    windows::{Build, product},
};

use super::{FieldChange, Policy, Pool, quantity};

/// Classes of builds that have no name, at most: a node can report any number as its build.
const UNNAMED_BUILDS: usize = 8;
/// Taints of others that a class tolerates, at most: a node can be registered with any.
const FOREIGN_TAINTS: usize = 16;

/// What a pool's nodes show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Number of nodes by build.
    pub builds: BTreeMap<Build, usize>,
    /// Taints on them that the pool's classes have to tolerate besides the pool's own.
    pub tolerate: BTreeSet<Taint>,
}

/// A RuntimeClass as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredClass {
    /// `metadata.name`.
    pub name: String,
    /// The pool that owns it.
    pub pool: String,
    /// The build that it selects.
    pub build: Build,
    /// `handler`.
    pub handler: String,
    /// `overhead.podFixed`.
    pub overhead: BTreeMap<String, Quantity>,
    /// `scheduling.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `scheduling.tolerations`, sorted, without repeats.
    pub tolerations: Vec<Toleration>,
}

/// What has to be done about one class.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassAction {
    /// Nothing: it is right, or it is someone else's and does what the pool needs.
    Nothing,
    /// It is not there: create it.
    Create(Box<RuntimeClass>),
    /// It is winpool's and differs.
    Change {
        /// What to write.
        changes: Vec<FieldChange>,
        /// Whether the tolerations change: the API server's admission reads classes from a cache, so nodes have to
        /// wait until it has seen them.
        tolerations: bool,
    },
    /// It cannot be made right; the problem says why.
    Conflict(Problem),
}

/// A class and what has to be done about it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedClass {
    /// The class as it should be.
    pub desired: DesiredClass,
    /// What to do.
    pub action: ClassAction,
    /// Its state before anything is done.
    pub state: ClassState,
}

/// The classes of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassesPlan {
    /// By name.
    pub classes: Vec<PlannedClass>,
    /// What needs attention and belongs to no class above.
    pub problems: Vec<Problem>,
}

/// Plans the classes of `pool`, whose nodes show `seen`. `existing` are all RuntimeClasses of the cluster.
#[must_use]
pub fn plan_classes(pool: &Pool, policy: &Policy, seen: &Seen, existing: &[Arc<RuntimeClass>]) -> ClassesPlan {
    let (mut problems, owned) = (Vec::new(), owned_classes(pool, existing));
    let mut desired: BTreeMap<String, DesiredClass> = BTreeMap::new();
    for (build, spec) in &pool.declared {
        desired.insert(spec.name.clone(), declared_class(pool, *build, spec, seen));
    }
    if pool.discover {
        for build in discovered_builds(pool, seen, &owned, &mut problems) {
            let name = pool.class_name(build);
            if name.len() > 63 || !is_dns_subdomain(&name) {
                problems.push(name_problem(&name, pool, build));
                continue;
            }
            desired.entry(name.clone()).or_insert_with(|| discovered_class(pool, build, &name, seen));
        }
    }
    // Classes that were made earlier stay and are kept in step: workloads name them.
    for (build, class) in owned {
        let name = class.name_any();
        desired.entry(name.clone()).or_insert_with(|| {
            let discovered = discovered_class(pool, build, &name, seen);
            if name == pool.class_name(build) { discovered } else { kept_class(class, discovered) }
        });
    }
    let find = |name: &str| existing.iter().find(|class| class.metadata.name.as_deref() == Some(name));
    let classes = desired
        .into_values()
        .map(|class| plan_class(class.clone(), find(&class.name).map(AsRef::as_ref), policy))
        .collect();
    ClassesPlan { classes, problems }
}

/// The classes that winpool made for this pool, with the build of each: the one that its name stands for, because
/// somebody may have edited its selector, or else the one that it selects.
fn owned_classes<'a>(pool: &Pool, existing: &'a [Arc<RuntimeClass>]) -> Vec<(Build, &'a RuntimeClass)> {
    let known = || product::PRODUCTS.iter().map(|product| product.build).chain(pool.named_builds.keys().copied());
    let build = |class: &RuntimeClass| {
        let selected = || class.scheduling.as_ref()?.node_selector.as_ref()?.get(names::WINDOWS_BUILD)?.parse().ok();
        let name = class.name_any();
        known().chain(numbers_in(&name)).find(|build| pool.class_name(*build) == name).or_else(selected)
    };
    existing
        .iter()
        .filter(|class| owner(class) == Some(&pool.name))
        .filter_map(|class| Some((build(class)?, class.as_ref())))
        .collect()
}

/// The builds that `build-<number>` may stand for in a class's name.
fn numbers_in(name: &str) -> impl Iterator<Item = Build> {
    name.split("build-").skip(1).filter_map(|rest| {
        let number = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        format!("10.0.{number}").parse().ok()
    })
}

fn owner(class: &RuntimeClass) -> Option<&str> {
    class.metadata.labels.as_ref()?.get(names::POOL).map(String::as_str)
}

/// The builds that get a class: every one with a name, and a few without.
fn discovered_builds(
    pool: &Pool,
    seen: &Seen,
    owned: &[(Build, &RuntimeClass)],
    problems: &mut Vec<Problem>,
) -> Vec<Build> {
    let (named, unnamed): (Vec<Build>, Vec<Build>) =
        seen.builds.keys().partition(|build| pool.version_of(**build).is_some());
    let Some(example) = unnamed.first() else { return named };
    problems.push(Problem {
        reason: reason::BUILD_NOT_NAMED.to_owned(),
        object: format!("WindowsPool/{}", pool.name),
        message: format!(
            "{} build(s) have no name in this release, such as {example}; their RuntimeClasses are called \
             build-<number>, at most {UNNAMED_BUILDS} of them. Name a build in spec.builds, such as \
             {{build: {example}, version: \"2028\"}}",
            unnamed.len()
        ),
    });
    let has_class = |build: &Build| owned.iter().any(|(owned, _)| owned == build);
    let existing = owned.iter().filter(|(build, _)| pool.version_of(*build).is_none()).count();
    let (with_class, without): (Vec<Build>, Vec<Build>) = unnamed.into_iter().partition(has_class);
    let room = UNNAMED_BUILDS.saturating_sub(existing);
    named.into_iter().chain(with_class).chain(without.into_iter().take(room)).collect()
}

fn name_problem(name: &str, pool: &Pool, build: Build) -> Problem {
    Problem {
        reason: reason::CLASS_NAME_INVALID.to_owned(),
        object: format!("WindowsPool/{}", pool.name),
        message: format!(
            "the RuntimeClass of build {build} would be called {name:?}, which is no DNS subdomain of at most 63 \
             characters; choose a shorter spec.classNameFormat"
        ),
    }
}

fn discovered_class(pool: &Pool, build: Build, name: &str, seen: &Seen) -> DesiredClass {
    DesiredClass {
        name: name.to_owned(),
        pool: pool.name.clone(),
        build,
        handler: PROCESS_ISOLATION_HANDLER.to_owned(),
        overhead: BTreeMap::new(),
        node_selector: selector(pool, build, DEFAULT_ARCHITECTURE, &BTreeMap::new()),
        tolerations: tolerations(pool, seen, &[]),
    }
}

fn declared_class(pool: &Pool, build: Build, spec: &RuntimeClassSpec, seen: &Seen) -> DesiredClass {
    DesiredClass {
        handler: spec.handler.clone(),
        overhead: spec.overhead.clone().unwrap_or_default().pod_fixed,
        node_selector: selector(pool, build, &spec.architecture, &spec.node_selector),
        tolerations: tolerations(pool, seen, &spec.tolerations),
        ..discovered_class(pool, build, &spec.name, seen)
    }
}

/// A class that this spec no longer describes: all of it stays, and it tolerates what the pool's other classes do.
fn kept_class(class: &RuntimeClass, pool: DesiredClass) -> DesiredClass {
    let scheduling = class.scheduling.clone().unwrap_or_default();
    DesiredClass {
        handler: class.handler.clone(),
        overhead: overhead_of(class),
        node_selector: scheduling.node_selector.unwrap_or_default(),
        tolerations: normalised(tolerations_of(class).into_iter().chain(pool.tolerations.clone())),
        ..pool
    }
}

fn selector(pool: &Pool, build: Build, architecture: &str, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut selector = pool.node_selector.clone();
    selector.extend(own.clone());
    selector.insert(names::OS.to_owned(), names::WINDOWS.to_owned());
    selector.insert(names::ARCH.to_owned(), architecture.to_owned());
    selector.insert(names::WINDOWS_BUILD.to_owned(), build.to_string());
    selector
}

fn tolerations(pool: &Pool, seen: &Seen, own: &[Toleration]) -> Vec<Toleration> {
    let wanted = pool.wanted_taints();
    let taints = wanted.iter().chain(&pool.retired_taints).chain(seen.tolerate.iter().take(FOREIGN_TAINTS));
    normalised(taints.map(toleration).chain(own.iter().cloned()))
}

fn toleration(taint: &Taint) -> Toleration {
    Toleration {
        key: Some(taint.key.clone()),
        operator: Some("Equal".to_owned()),
        value: Some(taint.value.clone()),
        effect: Some(taint.effect.clone()),
        toleration_seconds: None,
    }
}

/// As the API server keeps them: empty fields are absent, `Equal` is the default operator; sorted, without repeats.
fn normalised(tolerations: impl IntoIterator<Item = Toleration>) -> Vec<Toleration> {
    let absent_if_empty = |field: Option<String>| field.filter(|text| !text.is_empty());
    let mut tolerations: Vec<_> = tolerations
        .into_iter()
        .map(|t| Toleration {
            key: absent_if_empty(t.key),
            operator: absent_if_empty(t.operator).or_else(|| Some("Equal".to_owned())),
            value: absent_if_empty(t.value),
            effect: absent_if_empty(t.effect),
            toleration_seconds: t.toleration_seconds,
        })
        .collect();
    let key =
        |t: &Toleration| (t.key.clone(), t.value.clone(), t.effect.clone(), t.operator.clone(), t.toleration_seconds);
    tolerations.sort_by_key(key);
    tolerations.dedup();
    tolerations
}

/// Plans one class, where `existing` is what stands under its name.
#[must_use]
pub fn plan_class(desired: DesiredClass, existing: Option<&RuntimeClass>, policy: &Policy) -> PlannedClass {
    let Some(existing) = existing else {
        let class = Box::new(desired.to_object());
        return PlannedClass { desired, action: ClassAction::Create(class), state: ClassState::Pending };
    };
    let (action, state) = match owner(existing) {
        // A class of a pool that is no more is taken over: another pool wants it now.
        Some(pool) if pool == desired.pool || !policy.exists(pool) => plan_owned(&desired, existing),
        Some(pool) => conflict(
            &desired,
            format!(
                "belongs to WindowsPool {pool}; give this pool's classes names of their own, such as \
                 classNameFormat: \"windows-{{version}}-{{pool}}\""
            ),
        ),
        None => plan_foreign(&desired, existing),
    };
    PlannedClass { desired, action, state }
}

fn plan_owned(desired: &DesiredClass, existing: &RuntimeClass) -> (ClassAction, ClassState) {
    if existing.handler != desired.handler {
        return conflict(
            desired,
            format!(
                "has handler {} and should have {}; Kubernetes never changes a handler. Delete the class once no pod \
                 uses it, and winpool makes it again",
                existing.handler, desired.handler
            ),
        );
    }
    let changes = desired.changes(existing);
    if changes.is_empty() {
        return (ClassAction::Nothing, ClassState::Applied);
    }
    let tolerations = tolerations_of(existing) != desired.tolerations;
    (ClassAction::Change { changes, tolerations }, ClassState::Pending)
}

/// A class that nobody marked as winpool's is never touched.
fn plan_foreign(desired: &DesiredClass, existing: &RuntimeClass) -> (ClassAction, ClassState) {
    let selector = existing.scheduling.as_ref().and_then(|s| s.node_selector.as_ref());
    let build = selector.and_then(|s| s.get(names::WINDOWS_BUILD)).map_or("no build", String::as_str);
    if build != desired.build.to_string() {
        return conflict(
            desired,
            format!(
                "is not winpool's and selects {build} instead of {}; rename it, correct its scheduling, or choose \
                 another classNameFormat",
                desired.build
            ),
        );
    }
    let standing = tolerations_of(existing);
    let missing: Vec<String> = desired
        .tolerations
        .iter()
        .filter(|wanted| !standing.iter().any(|toleration| covers(toleration, wanted)))
        .map(|t| json!(t).to_string())
        .collect();
    if missing.is_empty() {
        return (ClassAction::Nothing, ClassState::Satisfied);
    }
    conflict(
        desired,
        format!(
            "is not winpool's and does not tolerate its nodes' taints; add to scheduling.tolerations: {}",
            missing.join(", ")
        ),
    )
}

fn conflict(desired: &DesiredClass, message: String) -> (ClassAction, ClassState) {
    let object = format!("RuntimeClass/{}", desired.name);
    let problem = Problem { reason: reason::CLASS_CONFLICT.to_owned(), object, message };
    (ClassAction::Conflict(problem), ClassState::Conflict)
}

fn tolerations_of(class: &RuntimeClass) -> Vec<Toleration> {
    normalised(class.scheduling.iter().flat_map(|s| s.tolerations.iter().flatten()).cloned())
}

/// Whether everything that `wanted` tolerates is tolerated by `toleration` too.
fn covers(toleration: &Toleration, wanted: &Toleration) -> bool {
    let any_key = toleration.key.is_none();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (any_key && exists || toleration.key == wanted.key)
        && (toleration.effect.is_none() || toleration.effect == wanted.effect)
        && (exists || (toleration.operator == wanted.operator && toleration.value == wanted.value))
}

impl DesiredClass {
    /// The object to create.
    #[must_use]
    pub fn to_object(&self) -> RuntimeClass {
        let labels = [(names::MANAGED_BY, names::FIELD_MANAGER), (names::POOL, self.pool.as_str())];
        RuntimeClass {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
                ..ObjectMeta::default()
            },
            handler: self.handler.clone(),
            overhead: (!self.overhead.is_empty()).then(|| Overhead { pod_fixed: Some(self.overhead.clone()) }),
            scheduling: Some(Scheduling {
                node_selector: Some(self.node_selector.clone()),
                tolerations: Some(self.tolerations.clone()),
            }),
        }
    }

    /// What differs in `existing`, drift by others included; nothing when it is right.
    fn changes(&self, existing: &RuntimeClass) -> Vec<FieldChange> {
        let wanted = self.to_object();
        let mut changes = Vec::new();
        let selector = existing.scheduling.as_ref().and_then(|s| s.node_selector.clone()).unwrap_or_default();
        if selector != self.node_selector || tolerations_of(existing) != self.tolerations {
            changes.push(change(&["scheduling"], &existing.scheduling, &wanted.scheduling));
        }
        if !same_amounts(&overhead_of(existing), &self.overhead) {
            changes.push(change(&["overhead"], &existing.overhead, &wanted.overhead));
        }
        let labels = existing.metadata.labels.as_ref();
        if labels.and_then(|l| l.get(names::POOL)) != Some(&self.pool) {
            let from = labels.and_then(|l| l.get(names::POOL));
            changes.push(change(&["metadata", "labels", names::POOL], &from, &Some(&self.pool)));
        }
        changes
    }
}

fn overhead_of(class: &RuntimeClass) -> BTreeMap<String, Quantity> {
    class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.clone()).unwrap_or_default()
}

fn change<A: serde::Serialize, B: serde::Serialize>(path: &[&'static str], from: &A, to: &B) -> FieldChange {
    FieldChange { path: path.to_vec(), from: json!(from), to: json!(to) }
}

fn same_amounts(a: &BTreeMap<String, Quantity>, b: &BTreeMap<String, Quantity>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| quantity::equal(a, b)))
}

/// What a dry run says about a class that it would write.
#[must_use]
pub fn describe(action: &ClassAction) -> Option<String> {
    match action {
        ClassAction::Nothing | ClassAction::Conflict(_) => None,
        ClassAction::Create(_) => Some("would be created".to_owned()),
        ClassAction::Change { changes, .. } => {
            let fields: Vec<String> = changes.iter().map(|c| c.path.join(".")).collect();
            Some(format!("would be changed: {}", fields.join(", ")))
        }
    }
}
