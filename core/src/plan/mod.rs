//! What should be: for each Node and RuntimeClass, what to change and why. A plan that is empty sends nothing.

mod admission;
mod classes;
mod cleanup;
mod consent;
mod contest;
mod deletion;
pub mod forecast;
mod guarded;
mod labels;
pub mod landing;
pub mod lease;
mod node;
pub mod node_story;
mod patch;
mod pod_spec;
mod pools;
pub mod reconcile;
pub mod render;
mod runtime_class;
pub mod scheduling;
mod stamps;
mod status;
mod taints;
mod tally;
mod tolerations;
mod workload_check;
mod workloads;

pub use admission::{Admission, COMPONENTS, Component, texts_of};
pub use classes::{ClassesPlan, Seen, classes_of_others, plan_classes};
pub use cleanup::{Cleanup, Extent, NodeParting};
pub use consent::{AT_ONCE, CHECK_GOOD_FOR, CleanCheck, Consent, LABEL_SETTLES, LaggingClass, Sighting, Watched};
pub use contest::Contest;
pub use deletion::PendingCleanup;
pub use guarded::GuardedPool;
pub use labels::{LabelPair, Labels};
pub use node::{
    AnnotationChange, ChangeFingerprint, LabelChange, Node, NodePlan, Standing, State, assess, assess_as,
    is_to_be_taken_over,
};
pub use patch::{FieldChange, finalizer_patch, node_patch, runtime_class_patch, status_patch};
pub use pod_spec::{LISTED_KINDS, Pod, PodProgress, PodSpec, Workload, WorkloadKind, tells_the_system};
pub use pools::{ApprovedTaint, Entry, Hosts, InvalidPool, Policy, Pool, WantedTaints};
pub use runtime_class::{
    ClassAction, DesiredClass, PlannedClass, Retirement, describe, is_made_by_winpool, lacks_tolerations, owner,
    plan_class, release_class, retire_class,
};
pub use status::{
    Held, HeldBecause, Observation, Overlap, ever_applied, invalid_status, number, status, suspended_status,
};
pub use taints::{Applied, TaintChange, TaintList};
pub use tally::{Contribution, NodeShare, Tally};
pub use tolerations::tolerate;
pub use workload_check::{CheckAnswer, CheckScope, KnownNode, PODS, Question, Scheduling, WorkloadCheck};
pub use workloads::{ClassUsers, silent};
