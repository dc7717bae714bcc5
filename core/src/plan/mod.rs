//! What should be: for each Node and RuntimeClass, what to change and why. A plan that is empty sends nothing.

mod admission;
mod classes;
mod cleanup;
mod contest;
mod deletion;
pub mod forecast;
mod labels;
pub mod landing;
pub mod lease;
mod node;
pub mod node_story;
mod patch;
mod pools;
pub mod render;
mod runtime_class;
pub mod scheduling;
mod stamps;
mod status;
mod taints;
mod tolerations;
mod workloads;

pub use admission::{Admission, COMPONENTS, Component, texts_of};
pub use classes::{ClassesPlan, Seen, classes_of_others, plan_classes};
pub use cleanup::{Cleanup, Extent, NodeParting};
pub use contest::Contest;
pub use deletion::Remains;
pub use labels::{LabelPair, Labels};
pub use node::{
    AnnotationChange, Gist, LabelChange, Node, NodePlan, Standing, State, assess, assess_as, is_to_be_taken_over,
};
pub use patch::{FieldChange, finalizer_patch, node_patch, runtime_class_patch, status_patch};
pub use pools::{Entry, Hosts, InvalidPool, Policy, Pool, WantedTaints};
pub use runtime_class::{
    ClassAction, DesiredClass, PlannedClass, Retirement, describe, is_made_by_winpool, lacks_tolerations, owner,
    plan_class, retire_class, who_uses_it,
};
pub use status::{Held, Observation, Overlap, ever_applied, invalid_status, number, status, suspended_status};
pub use taints::{Applied, TaintChange, TaintList};
pub use tolerations::tolerate;
pub use workloads::{
    Pod, PodProgress, created_too_early, held_back, silent, stranded, tells_the_system, users_of_class,
};
