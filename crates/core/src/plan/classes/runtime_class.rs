//! The plan for one RuntimeClass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::{Overhead, RuntimeClass, Scheduling};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::api::names::{self, reason};
use crate::api::{ClassState, Isolation, ObjectReference, Problem, Taint, quantity};
use crate::plan::patch::FieldChange;
use crate::plan::pools::pool::{Hosts, Policy};
use crate::plan::taints::KeptTaints;
use crate::pod::tolerations::{Tolerance, covers, normalised, tolerance, tolerations_of, written};
use crate::pod::{Class, selector_of};
use crate::windows::{Build, builds};
use crate::words::{count, joined, yaml};

/// The planned state of a RuntimeClass.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredClass {
    pub name: String,
    /// The pool that owns it.
    pub pool: String,
    pub hosts: Hosts,
    pub isolation: Isolation,
    pub handler: String,
    /// `overhead.podFixed`.
    pub overhead: BTreeMap<String, Quantity>,
    /// `scheduling.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `scheduling.tolerations`, sorted and unique.
    pub tolerations: Vec<Toleration>,
}

/// The action that one class needs.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassAction {
    /// Nothing: it is up to date, or another owner manages it and it meets the pool's needs. With its state.
    Nothing(ClassState),
    Create(Box<RuntimeClass>),
    /// It is winpool's and differs: change it.
    Change {
        changes: Vec<FieldChange>,
        /// True if it gets new tolerations. Admission reads classes from a cache, so nodes have to wait until the
        /// cache has them.
        tolerations: bool,
    },
    /// It is winpool's and up to date but for its handler, which cannot be changed.
    OtherHandler(Problem),
    /// It conflicts with the plan, and the problem says why.
    Conflict(Problem),
}

impl ClassAction {
    pub(crate) fn writes(&self) -> bool {
        matches!(self, Self::Create(_) | Self::Change { .. })
    }

    /// The state of the class before the action.
    pub fn state(&self) -> ClassState {
        match self {
            Self::Nothing(state) => *state,
            Self::Create(_) | Self::Change { .. } => ClassState::Pending,
            Self::OtherHandler(_) | Self::Conflict(_) => ClassState::Conflict,
        }
    }
}

/// A planned class with its action.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedClass {
    /// The planned state.
    pub desired: DesiredClass,
    pub action: ClassAction,
}

/// True if winpool created the class and may delete it, even if another writer removed the pool's label.
pub fn is_made_by_winpool(class: &RuntimeClass) -> bool {
    class.labels().get(names::MANAGED_BY).is_some_and(|manager| manager == names::FIELD_MANAGER)
}

/// The pool that owns the class.
pub fn owner(class: &RuntimeClass) -> Option<&str> {
    class.labels().get(names::POOL).map(String::as_str)
}

/// Plans one class; `existing` is the present object with its name. An older pool in `taken_by` wants a class with this
/// name, and alone may write it. `selects_nodes` returns true if a node of the pool has all these labels.
pub fn plan_class(
    desired: DesiredClass,
    taken_by: Option<&str>,
    existing: Option<&RuntimeClass>,
    policy: &Policy,
    selects_nodes: &dyn Fn(&BTreeMap<String, String>) -> bool,
) -> PlannedClass {
    let older = |pool: &str| pool != desired.pool && policy.exists(pool) && !policy.is_older(&desired.pool, pool);
    let action = match existing.map(|existing| (existing, owner(existing))) {
        None => ClassAction::Create(Box::new(desired.to_object())),
        Some((_, Some(pool))) if older(pool) => belongs_to(pool, &desired),
        Some((existing, _)) if is_made_by_winpool(existing) => plan_own(&desired, existing),
        // An administrator handed it over, or winpool adopted it. Its pool is this one, a younger one, or gone.
        Some((existing, Some(_))) => plan_adopted(&desired, existing),
        Some((existing, None)) => plan_foreign(&desired, existing, selects_nodes),
    };
    let action = match taken_by {
        Some(pool) if action.writes() => belongs_to(pool, &desired),
        _ => action,
    };
    PlannedClass { desired, action }
}

fn belongs_to(older: &str, desired: &DesiredClass) -> ClassAction {
    ClassAction::Conflict(conflict_problem(
        desired,
        format!(
            "belongs to the older WindowsPool {older}; give this pool's classes names of their own, such as \
             runtimeClassNameFormat: \"windows-{{version}}-{{pool}}\""
        ),
    ))
}

/// Plans a class that winpool created: every difference but another handler is repaired.
fn plan_own(desired: &DesiredClass, existing: &RuntimeClass) -> ClassAction {
    if existing.handler == desired.handler {
        return plan_change(desired, existing, ClassAction::Nothing(ClassState::Applied));
    }
    let message = format!(
        "has the handler {} instead of {}, which cannot be changed; when no pod uses the class, delete \
         it, and winpool creates it again: kubectl delete runtimeclass {}",
        existing.handler, desired.handler, desired.name
    );
    plan_change(desired, existing, ClassAction::OtherHandler(conflict_problem(desired, message)))
}

/// Plans the changes of a class that winpool manages; `done` is its plan if there are none.
fn plan_change(desired: &DesiredClass, existing: &RuntimeClass, done: ClassAction) -> ClassAction {
    let changes = desired.changes(existing);
    if changes.is_empty() {
        return done;
    }
    let tolerations = !untolerated(desired, existing).is_empty();
    ClassAction::Change { changes, tolerations }
}

/// Plans an adopted class: it gets the selector and tolerations that the pool needs. Its handler, its overhead, and
/// its other selectors and tolerations stay.
fn plan_adopted(desired: &DesiredClass, existing: &RuntimeClass) -> ClassAction {
    let mut node_selector = selector_of(existing);
    // It selects nodes by its build or by a capability label.
    node_selector.retain(|key, _| {
        !key.starts_with(names::CAPABILITY_LABEL_PREFIX)
            && (*key != names::WINDOWS_BUILD || !desired.hosts.is_by_label())
    });
    node_selector.extend(desired.node_selector.clone());
    let lacking = untolerated(desired, existing).into_iter().cloned();
    let kept = DesiredClass {
        overhead: overhead_of(existing),
        node_selector,
        tolerations: normalised(tolerations_of(existing).into_iter().chain(lacking)),
        ..desired.clone()
    };
    plan_change(&kept, existing, ClassAction::Nothing(ClassState::Adopted))
}

/// Plans a class without winpool's labels.
fn plan_foreign(
    desired: &DesiredClass,
    existing: &RuntimeClass,
    selects_nodes: &dyn Fn(&BTreeMap<String, String>) -> bool,
) -> ClassAction {
    let manager = other_manager(existing);
    if manager.is_none() && covers_all(desired, existing) {
        return plan_adopted(desired, existing);
    }
    let problems = incompatibilities(desired, existing, selects_nodes);
    if problems.is_empty() {
        return ClassAction::Nothing(ClassState::Satisfied);
    }
    let whose =
        manager.map_or_else(|| "is not managed by winpool".to_owned(), |manager| format!("is managed by {manager}"));
    let scheduling = yaml(&json!(desired.to_object().scheduling));
    ClassAction::Conflict(conflict_problem(
        desired,
        format!(
            "{whose} and {}; correct it at its source: scheduling: {scheduling}; or let winpool correct its scheduling: \
             kubectl label runtimeclass {} {}={}; or choose another runtimeClassNameFormat",
            problems.join(", and "),
            desired.name,
            names::POOL,
            desired.pool,
        ),
    ))
}

/// The reasons why another owner's class does not meet the pool's needs: it selects other nodes, or keeps pods off.
fn incompatibilities(
    desired: &DesiredClass,
    existing: &RuntimeClass,
    selects_nodes: &dyn Fn(&BTreeMap<String, String>) -> bool,
) -> Vec<String> {
    let selector = selector_of(existing);
    let mut problems = Vec::new();
    let wanted = desired.node_selector.get(names::WINDOWS_BUILD);
    match (selector.get(names::WINDOWS_BUILD), wanted) {
        (selected, wanted) if selected == wanted => {}
        (None, Some(wanted)) => problems.push(format!("selects no build instead of {wanted}")),
        (Some(build), wanted) => {
            // The example of the Kubernetes 1.35 documentation is named windows-2019 and selects the build of 2022.
            let product = build.parse().ok().and_then(builds::by_build);
            let product = product.map_or_else(String::new, |product| format!(" ({})", product.name));
            let wanted = wanted.map_or("no build", String::as_str);
            problems.push(format!("selects {build}{product} instead of {wanted}"));
        }
        (None, None) => {}
    }
    for (key, wanted) in desired.node_selector.iter().filter(|(key, _)| *key != names::WINDOWS_BUILD) {
        if let Some(selected) = selector.get(key).filter(|selected| *selected != wanted) {
            problems.push(format!("selects {key}={selected} instead of {wanted}"));
        }
    }
    let others: BTreeMap<String, String> =
        selector.into_iter().filter(|(key, _)| !desired.node_selector.contains_key(key)).collect();
    if !others.is_empty() && !selects_nodes(&others) {
        let pairs: Vec<String> = others.iter().map(|(key, value)| format!("{key}={value}")).collect();
        problems.push(format!("selects {}, which no node of the pool has", pairs.join(",")));
    }
    let missing = untolerated(desired, existing);
    if !missing.is_empty() {
        let missing = joined(missing.iter().map(|toleration| written(toleration)));
        problems.push(format!("does not tolerate its nodes' taints: {missing}"));
    }
    problems
}

/// True if adopting the class changes nothing for its users: it has everything that the pool needs.
fn covers_all(desired: &DesiredClass, existing: &RuntimeClass) -> bool {
    let selector = selector_of(existing);
    existing.handler == desired.handler
        && desired.node_selector.iter().all(|(key, value)| selector.get(key) == Some(value))
        && untolerated(desired, existing).is_empty()
}

/// The build that the class selects by its label; `None` if it selects none, or something else.
pub fn selected_build(class: &RuntimeClass) -> Option<Build> {
    class.scheduling.as_ref()?.node_selector.as_ref()?.get(names::WINDOWS_BUILD)?.parse().ok()
}

/// The tool that manages this class, from the labels and annotations that such tools add.
fn other_manager(class: &RuntimeClass) -> Option<&'static str> {
    let label = |key: &str| class.labels().contains_key(key);
    let annotation = |key: &str| class.annotations().contains_key(key);
    let managed_by = class.labels().get(names::MANAGED_BY);
    if annotation("meta.helm.sh/release-name") || managed_by.is_some_and(|manager| manager == "Helm") {
        Some("Helm")
    } else if annotation("argocd.argoproj.io/tracking-id") || label("argocd.argoproj.io/instance") {
        Some("Argo CD")
    } else if label("kustomize.toolkit.fluxcd.io/name") || label("helm.toolkit.fluxcd.io/name") {
        Some("Flux")
    } else if !class.owner_references().is_empty() {
        Some("the object in its ownerReferences")
    } else {
        None
    }
}

/// True if `taints` include one that keeps pods of this class off.
pub fn lacks_tolerations<'a>(class: &RuntimeClass, taints: impl IntoIterator<Item = &'a Taint>) -> bool {
    tolerance(&tolerations_of(class), taints) != Tolerance::Yes
}

/// The tolerations that `existing` lacks.
fn untolerated<'a>(desired: &'a DesiredClass, existing: &RuntimeClass) -> Vec<&'a Toleration> {
    let existing = tolerations_of(existing);
    desired.tolerations.iter().filter(|wanted| !existing.iter().any(|toleration| covers(toleration, wanted))).collect()
}

fn conflict_problem(desired: &DesiredClass, message: String) -> Problem {
    Problem::new(reason::CLASS_CONFLICT, ObjectReference::runtime_class(&desired.name), message)
}

impl DesiredClass {
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

    /// The fields of `existing` that differ, including changes by other writers; empty if it is up to date.
    fn changes(&self, existing: &RuntimeClass) -> Vec<FieldChange> {
        let wanted = self.to_object();
        let mut changes = Vec::new();
        if selector_of(existing) != self.node_selector || tolerations_of(existing) != self.tolerations {
            changes.push(FieldChange::new(&["scheduling"], &wanted.scheduling));
        }
        if !same_amounts(&overhead_of(existing), &self.overhead) {
            changes.push(FieldChange::new(&["overhead"], &wanted.overhead));
        }
        if existing.metadata.labels.is_none() {
            changes.push(FieldChange::new(&["metadata", "labels"], &json!({ names::POOL: self.pool })));
        } else if owner(existing) != Some(&self.pool) {
            changes.push(FieldChange::new(&["metadata", "labels", names::POOL], &self.pool));
        }
        changes
    }
}

fn overhead_of(class: &RuntimeClass) -> BTreeMap<String, Quantity> {
    class.overhead.as_ref().and_then(|overhead| overhead.pod_fixed.clone()).unwrap_or_default()
}

fn same_amounts(a: &BTreeMap<String, Quantity>, b: &BTreeMap<String, Quantity>) -> bool {
    a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| quantity::equal(a, b)))
}

/// A dry run's message about a class that it would write.
pub fn describe(action: &ClassAction) -> Option<String> {
    match action {
        ClassAction::Nothing(_) | ClassAction::OtherHandler(_) | ClassAction::Conflict(_) => None,
        ClassAction::Create(_) => Some("would be created".to_owned()),
        ClassAction::Change { changes, .. } => {
            Some(format!("would be changed: {}", joined(changes.iter().map(|change| change.path.join(".")))))
        }
    }
}

// Pods that use a RuntimeClass.

/// The number of pods or workloads that are named as examples.
pub(crate) const NAMED: usize = 5;

/// The unfinished pods of one RuntimeClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassUsers {
    /// Their number. A terminating pod still needs its handler.
    pub count: usize,
    /// A few of them, as `namespace/name`.
    pub examples: Vec<Arc<str>>,
}

impl ClassUsers {
    /// The users with these names.
    pub(crate) fn of(names: &BTreeSet<Arc<str>>) -> Self {
        Self { count: names.len(), examples: names.iter().take(NAMED).cloned().collect() }
    }

    /// Describes the users: their number and a few names.
    pub fn describe(&self) -> String {
        format!("used by {}, such as {}", count(self.count, "pod"), self.examples.join(", "))
    }
}

/// Describes the users of a class, or says that pods cannot be listed.
pub(crate) fn describe_users(users: Result<&ClassUsers, &str>) -> String {
    users.map_or_else(|message| format!("pods cannot be listed: {message}"), ClassUsers::describe)
}

/// The end of a class that is winpool's and that no pool wants any more.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRetirement {
    /// Delete it: winpool created it, and no unfinished pod uses it.
    Delete,
    /// Keep it, without winpool's labels.
    Release {
        changes: Vec<FieldChange>,
        /// The reason why it is not deleted.
        why: String,
    },
}

/// Decides about a class that no pool wants any more. `users` are its unfinished pods, or the reason why pods cannot
/// be listed.
pub fn retire_class(class: &RuntimeClass, users: Result<&ClassUsers, &str>) -> ClassRetirement {
    let why = match users {
        _ if !is_made_by_winpool(class) => "winpool did not create it".to_owned(),
        Ok(ClassUsers { count: 0, .. }) => return ClassRetirement::Delete,
        users => describe_users(users),
    };
    release_class(class, why)
}

/// Releases a class: removes winpool's labels and keeps everything else.
pub fn release_class(class: &RuntimeClass, why: String) -> ClassRetirement {
    let remove = |key| FieldChange::new(&["metadata", "labels", key], &Value::Null);
    let pool = owner(class).map(|_| remove(names::POOL));
    let managed_by = is_made_by_winpool(class).then(|| remove(names::MANAGED_BY));
    ClassRetirement::Release { changes: pool.into_iter().chain(managed_by).collect(), why }
}

/// True if a node that the class selects keeps a taint that the class tolerates, so that its pods still need the class.
pub(crate) fn is_needed_by<'a>(class: &RuntimeClass, kept: impl IntoIterator<Item = &'a KeptTaints>) -> bool {
    let mut selector = Class::from(class).selector;
    // The same cleanup may remove these labels.
    selector.retain(|key, _| !key.starts_with(names::CAPABILITY_LABEL_PREFIX));
    let mut selected = kept.into_iter().filter(|(labels, _)| labels.matches(&selector));
    selected.any(|(_, taints)| taints.iter().any(|taint| !lacks_tolerations(class, [taint])))
}

/// The reason why a class with winpool's labels that winpool may not have created is not deleted.
pub(crate) const COPY: &str = "winpool has no record that it created this class";
/// The reason why a class that is needed is not deleted.
pub(crate) const KEPT_TAINT: &str = "nodes keep a taint that it tolerates";
