//! The result of a check.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use winpool_analysis::finding::{Finding, Severity};

use crate::print::located::Located;

/// The result of a check.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CheckReport {
    /// What the findings are grouped by: `namespace`, or `label:` and a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<String>,
    /// The problems that were found.
    pub(super) findings: Vec<Located<Finding>>,
    /// The number of objects that were not checked because winpool finds no pod template in them, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) skipped: BTreeMap<String, usize>,
    /// Resources of the cluster that you may not list. winpool did not check them, or what depends on them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) unlisted: BTreeSet<String>,
    /// What the answer assumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    /// The number of findings that are not shown, by severity.
    #[serde(skip)]
    pub(super) hidden: BTreeMap<Severity, usize>,
    #[serde(skip)]
    pub(super) workloads: usize,
    /// True if a registry did not answer for an image.
    #[serde(skip)]
    pub(super) has_unknown_images: bool,
    /// The highest severity found, shown or not.
    #[serde(skip)]
    pub(super) worst: Option<Severity>,
}
