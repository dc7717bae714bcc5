//! The values of the pool's fields that offer a choice.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The mode of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// winpool writes.
    #[default]
    Enforce,
    /// winpool reports what it would change, and writes only the pool's status.
    DryRun,
}

/// The rule by which winpool adds taints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintPolicy {
    /// A taint is added only if no workload would become unschedulable.
    #[default]
    WhenTolerated,
    /// Taints are added at once.
    Always,
    /// Taints are not added.
    Never,
}

/// The choice to create RuntimeClasses for the builds of the pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuntimeClassDiscovery {
    /// One RuntimeClass for each build.
    #[default]
    Enabled,
    /// Only the RuntimeClasses in `spec.runtimeClasses`.
    Disabled,
}

/// The rule for a RuntimeClass that winpool did not create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptionPolicy {
    /// winpool manages it if no other owner is recorded on it and it meets the pool's needs.
    #[default]
    IfCompatible,
    /// winpool manages it and corrects its scheduling.
    Always,
    /// winpool does not change it.
    Never,
}

/// The rule for the deletion of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// winpool removes its labels, annotations and taints, and deletes classes that no pod uses.
    #[default]
    Delete,
    /// Everything stays.
    Retain,
}

// Unlike schemars' own schema of an enum, these keep the documentation of the field.
pub(super) fn mode_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Enforce", "DryRun"], "default": "Enforce"})
}

pub(super) fn taint_policy_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["WhenTolerated", "Always", "Never"], "default": "WhenTolerated"})
}

pub(super) fn runtime_class_discovery_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Enabled", "Disabled"], "default": "Enabled"})
}

pub(super) fn adoption_policy_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["IfCompatible", "Always", "Never"], "default": "IfCompatible"})
}

pub(super) fn deletion_policy_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Delete", "Retain"], "default": "Delete"})
}

pub(super) fn isolation_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Process", "HyperV"], "default": "Process"})
}

pub(super) fn host_match_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["Exact", "Compatible"], "default": "Exact"})
}

/// The isolation of a container from its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Isolation {
    /// Containers share the host's kernel.
    #[default]
    Process,
    /// Each pod has its own kernel in a utility VM.
    HyperV,
}

/// The hosts that a RuntimeClass selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostMatch {
    /// Hosts of its own build.
    #[default]
    Exact,
    /// Every host that runs images of its build.
    Compatible,
}
