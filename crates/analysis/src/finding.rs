//! Violations of the rules.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use winpool_core::api::ObjectReference;

use crate::remedy::Remedy;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information; no change is necessary.
    Info,
    /// The workload probably does not do what its author wants.
    Warning,
    /// The workload does not work.
    Error,
}

impl Severity {
    /// Returns the lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The consequence for the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Consequence {
    /// The API server refuses the workload or its pods.
    Rejected,
    /// The containers do not start or do not work.
    Fails,
    /// The pods cannot be scheduled, or a DaemonSet creates no pods.
    Pending,
    /// The field has no effect.
    Ignored,
    /// No consequence; for information only.
    Note,
}

impl fmt::Display for Consequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The name of the rule.
    pub rule: String,
    /// The severity.
    pub severity: Severity,
    /// The consequence for the workload.
    pub consequence: Consequence,
    /// The object.
    pub object: ObjectReference,
    /// The path of the field in the object: `spec.template.spec.containers[0].securityContext.privileged`.
    pub field: String,
    /// The problem and its reason.
    pub message: String,
    /// The remedy.
    pub remedy: Remedy,
}
