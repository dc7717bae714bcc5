//! The choices that a pool offers.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Whether winpool writes or only reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Mode {
    /// Write what the pool wants.
    #[default]
    Enforce,
    /// Report what would change; write nothing but the pool's status.
    DryRun,
}

/// When taints are put on nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintPolicy {
    /// A new taint waits until every pod on the nodes tolerates it.
    #[default]
    WhenTolerated,
    /// At once.
    Always,
    /// Not at all.
    Never,
}

/// Whether winpool creates RuntimeClasses for the builds of the pool's nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RuntimeClassDiscovery {
    /// One RuntimeClass for each build.
    #[default]
    Enabled,
    /// Only the RuntimeClasses that the pool declares.
    Disabled,
}

/// What happens to a RuntimeClass that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AdoptionPolicy {
    /// It becomes winpool's if it is nobody's and does what the pool needs.
    #[default]
    IfCompatible,
    /// It becomes winpool's, and its scheduling is corrected.
    Always,
    /// It is left alone.
    Never,
}

/// What happens to marks and RuntimeClasses when their pool is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// Marks are taken off, and classes that no pod uses are deleted.
    #[default]
    Delete,
    /// Everything stays.
    Retain,
}

// Plain enums keep the fields' documentation in the schema, which schemars would otherwise replace.
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

/// How a container is kept apart from its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Isolation {
    /// It shares the host's kernel.
    #[default]
    Process,
    /// It has a kernel of its own in a utility VM.
    HyperV,
}

/// Which hosts a RuntimeClass selects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HostMatch {
    /// Those of its own build.
    #[default]
    Exact,
    /// All that run images of its build.
    Compatible,
}
