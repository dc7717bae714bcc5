//! Decisions: the changes that each Node and RuntimeClass needs, and why. An empty plan sends nothing.

mod assessment;
mod capability_labels;
mod class_retirement;
pub mod classes;
mod cleanup;
mod conflict;
mod consent;
mod contribution;
mod deletion;
mod guarded;
mod node;
mod node_record;
pub mod nodes;
mod now;
mod patch;
pub mod pods;
mod pool_consent;
mod pool_spec;
mod pools;
pub mod reconcile;
mod runtime_class;
mod status;
mod taint_list;
mod taints;
mod tally;
mod watched;

pub use assessment::{Assessment, assess, assess_as};
pub use capability_labels::{LabelUsers, build_of as capability_of, key as capability_label};
pub use class_retirement::{ClassRetirement, KeptTaints, retire_class};
pub use classes::{ClassesPlan, NodeSummary, plan_classes};
pub use cleanup::{Cleanup, Extent, NodeRelease};
pub use consent::Consent;
pub use contribution::NodeShare;
pub use guarded::GuardedPool;
pub use guarded::{policy_of, read_all};
pub use node::{MetadataChange, NodeFields, NodePlan, NodeState};
pub use patch::{FieldChange, finalizer_patch, node_patch, runtime_class_patch, status_patch};
pub use pool_consent::{LaggingClass, PoolConsent};
pub use pool_spec::{HostMatchField, Hosts, InvalidPool, PoolSpec, WantedTaints};
pub use pools::{Policy, Pool, PoolEntry};
pub use runtime_class::{
    ClassAction, DesiredClass, PlannedClass, describe, is_made_by_winpool, lacks_tolerations, owner,
};
pub use status::{HeldBecause, HeldTaints, Observation, ever_applied, status, suspended_status};
pub use taint_list::{Applied, TaintChange, TaintList};
pub use tally::{Overlap, Tally};
pub use watched::{LABEL_SETTLES, Sighting, Watched};

pub use patch::finalizers;
pub use runtime_class::selected_build;
