//! One RuntimeClass: what it should be, and what has to be done about it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        core::v1::Toleration,
        node::v1::{Overhead, RuntimeClass, Scheduling},
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde_json::json;

use crate::{
    api::{
        ClassState, Problem,
        names::{self, reason},
        quantity,
    },
    windows::Build,
};

use super::{
    FieldChange, Policy,
    tolerations::{covers, tolerations_of},
};

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
        /// Whether it gets tolerations that it lacked: the API server's admission reads classes from a cache, so nodes
        /// have to wait until it has seen them.
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

/// A class that winpool created stays its own when somebody takes the pool's label off.
fn is_made_by_winpool(class: &RuntimeClass) -> bool {
    let labels = class.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(names::MANAGED_BY)).is_some_and(|manager| manager == names::FIELD_MANAGER)
}

/// The pool that owns the class.
pub(super) fn owner(class: &RuntimeClass) -> Option<&str> {
    class.metadata.labels.as_ref()?.get(names::POOL).map(String::as_str)
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
        None if is_made_by_winpool(existing) => plan_owned(&desired, existing),
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
    let tolerations = !untolerated(desired, existing).is_empty();
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
    let missing: Vec<String> = untolerated(desired, existing).iter().map(|t| json!(t).to_string()).collect();
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

/// The tolerations that `existing` lacks.
fn untolerated<'a>(desired: &'a DesiredClass, existing: &RuntimeClass) -> Vec<&'a Toleration> {
    let standing = tolerations_of(existing);
    desired.tolerations.iter().filter(|wanted| !standing.iter().any(|toleration| covers(toleration, wanted))).collect()
}

fn conflict(desired: &DesiredClass, message: String) -> (ClassAction, ClassState) {
    let object = format!("RuntimeClass/{}", desired.name);
    let problem = Problem { reason: reason::CLASS_CONFLICT.to_owned(), object, message };
    (ClassAction::Conflict(problem), ClassState::Conflict)
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

pub(super) fn overhead_of(class: &RuntimeClass) -> BTreeMap<String, Quantity> {
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
