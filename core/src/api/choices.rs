//! The values of the pool's fields that offer a choice.

use schemars::JsonSchema;
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
    /// A taint is added unless a DaemonSet objects, and pods for Windows get its toleration.
    #[default]
    TaintAndTolerate,
    /// Taints are added at once, and no pod gets a toleration.
    TaintOnly,
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

/// The rule for the deletion of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeletionPolicy {
    /// winpool removes its labels, annotations and taints, and deletes classes that no pod uses.
    #[default]
    Delete,
    /// Everything stays.
    Retain,
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
