//! Decisions: the changes that each Node and RuntimeClass needs, and why. An empty plan sends nothing.

mod admission;
mod assessment;
mod capability_labels;
pub(crate) mod classes;
mod cleanup;
mod conflict;
mod consent;
mod deletion;
mod guarded;
mod marks;
mod node;
mod patch;
mod pools;
pub mod reconcile;
mod runtime_class;
mod scale;
mod status;
mod taints;
mod tally;
mod workload_check;
mod workloads;

pub use admission::{Admission, COMPONENTS, Component, InstalledPolicy};
pub use assessment::{Assessment, assess, assess_as};
pub use capability_labels::key as capability_label;
pub use classes::{ClassesPlan, SeenNodes, classes_of_others, plan_classes};
pub use cleanup::{Cleanup, Extent, NodeParting};
pub use conflict::WriteConflict;
pub use consent::{AT_ONCE, CHECK_GOOD_FOR, CleanCheck, Consent, LABEL_SETTLES, LaggingClass, Sighting, Watched};
pub use deletion::PendingCleanup;
pub use guarded::GuardedPool;
pub(crate) use guarded::read_all;
pub use node::{ChangeFingerprint, MetadataChange, Node, NodePlan, State};
pub use patch::{FieldChange, finalizer_patch, node_patch, runtime_class_patch, status_patch};
pub use pools::{Approval, Hosts, InvalidPool, Policy, Pool, PoolEntry, WantedTaints};
pub use runtime_class::{
    ClassAction, ClassRetirement, DesiredClass, PlannedClass, describe, is_made_by_winpool, lacks_tolerations, owner,
    plan_class, release_class, retire_class,
};
pub use scale::{Autoscalers, ScaleStory, Template, TemplateStory};
pub use status::{HeldBecause, HeldTaints, Observation, Overlap, ever_applied, number, status, suspended_status};
pub use taints::{Applied, TaintChange, TaintList};
pub use tally::{Contribution, NodeShare, Tally};
pub use workload_check::{AssignClass, CheckAnswer, CheckScope, KnownNode, PODS, Question, WorkloadCheck};
pub use workloads::{ClassUsers, silent};

pub(crate) use patch::finalizers;
pub(crate) use runtime_class::selected_build;

use crate::api::{ObjectReference, Problem};

fn problem(reason: &str, object: ObjectReference, message: impl Into<String>) -> Problem {
    Problem { reason: reason.to_owned(), object, message: message.into() }
}
