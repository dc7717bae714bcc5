//! Findings with the positions and groups of their objects.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use winpool_analysis::explain::blockers::Blocker;
use winpool_analysis::explain::groups::{Groups, order};
use winpool_analysis::explain::report::{MovableWorkload, UnclearWorkload};
use winpool_analysis::finding::Finding;
use winpool_analysis::view::Position;
use winpool_core::api::ObjectReference;

/// A finding with the position of its object.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Located<T> {
    #[serde(flatten)]
    pub item: T,
    /// The file; `None` in a live cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The namespace, or the value of the label, with `--by`; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl<T: About> Located<T> {
    /// Adds the position of the object to the finding, and its group if groups were asked for.
    pub fn new(item: T, source: Option<&Position>, groups: Option<&Groups>) -> Self {
        let (file, line) = source.map(|source| (source.file.to_string(), source.line)).unzip();
        let group = groups.and_then(|groups| groups.group(item.object()));
        Self { item, file, line, group }
    }

    /// Returns a row for CSV: the group, `what`, the object, the `rest`, and the position.
    pub fn row<const M: usize, const N: usize>(&self, what: [&str; M], rest: [&str; N]) -> Vec<String> {
        let ObjectReference { kind, namespace, name } = self.item.object();
        let group = [self.group.as_deref().unwrap_or_default()];
        let object = [kind, namespace.as_deref().unwrap_or_default(), name];
        let line = self.line.map(|line| line.to_string()).unwrap_or_default();
        let place = [self.file.as_deref().unwrap_or_default(), &line];
        group.into_iter().chain(what).chain(object).chain(rest).chain(place).map(str::to_owned).collect()
    }
}

/// Returns the groups of these, by name, and what has no group last.
pub fn groups<'a>(groups: impl Iterator<Item = &'a Option<String>>) -> Vec<Option<&'a str>> {
    let keys: BTreeMap<_, _> = groups.map(|group| (order(group.as_deref()), group.as_deref())).collect();
    keys.into_values().collect()
}

/// Something about an object.
pub trait About {
    fn object(&self) -> &ObjectReference;
}

impl About for Blocker {
    fn object(&self) -> &ObjectReference {
        &self.object
    }
}

impl About for UnclearWorkload {
    fn object(&self) -> &ObjectReference {
        &self.object
    }
}

impl About for MovableWorkload {
    fn object(&self) -> &ObjectReference {
        &self.object
    }
}

impl About for Finding {
    fn object(&self) -> &ObjectReference {
        &self.object
    }
}
