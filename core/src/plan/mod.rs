//! Decisions: the changes that each Node and RuntimeClass needs, and why. An empty plan sends nothing.

pub mod classes;
pub mod nodes;
pub mod patch;
pub mod pods;
pub mod pools;
pub mod reconcile;
pub mod taints;

pub use self::{
    classes::{
        ClassesPlan, NodeSummary, plan_classes,
        runtime_class::{
            ClassAction, ClassRetirement, DesiredClass, KeptTaints, PlannedClass, describe, is_made_by_winpool,
            lacks_tolerations, owner, retire_class, selected_build,
        },
    },
    nodes::{
        assessment::{Assessment, assess, assess_as},
        capability_labels::{LabelUsers, build_of as capability_of, key as capability_label},
        node::{
            Applied, LABEL_SETTLES, MetadataChange, NodeFields, NodePlan, NodeState, Sighting, TaintChange, TaintList,
            Watched,
        },
        numbers::{NodeShare, Overlap, Tally},
    },
    patch::{FieldChange, finalizer_patch, finalizers, node_patch, runtime_class_patch, status_patch},
    pools::{
        cleanup::{Cleanup, NodeRelease},
        pool::{
            GuardedPool, HostMatchField, Hosts, InvalidPool, Policy, Pool, PoolEntry, PoolSpec, WantedTaints,
            has_finalizer, policy_of, read_all,
        },
        status::{HeldBecause, HeldTaints, Observation, ever_applied, status, suspended_status},
    },
    taints::{Consent, LaggingClass, PoolConsent},
};
