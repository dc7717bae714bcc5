//! What should be: for each Node and RuntimeClass, what to change and why. A plan that is empty sends nothing.

mod classes;
mod labels;
mod node;
mod patch;
mod pools;
mod runtime_class;
mod status;
mod taints;
mod tolerations;

pub use classes::{ClassesPlan, Seen, plan_classes};
pub use labels::{LabelPair, Labels};
pub use node::{AnnotationChange, LabelChange, Node, NodePlan, Standing, State, assess, assess_as};
pub use patch::{FieldChange, node_patch, runtime_class_patch, status_patch};
pub use pools::{Entry, InvalidPool, Policy, Pool, WantedTaints};
pub use runtime_class::{ClassAction, DesiredClass, PlannedClass, describe, plan_class};
pub use status::{Observation, ever_applied, invalid_status, number, status};
pub use taints::{Applied, TaintChange, TaintList};
