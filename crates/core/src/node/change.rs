//! Changes of a node.

use std::iter;

use serde_json::Value;

use crate::api::Taint;

/// A label or annotation to set, or to remove when `to` is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetadataChange {
    pub key: String,
    /// The value that the node has.
    pub from: Option<String>,
    /// The value that it should have.
    pub to: Option<String>,
}

impl MetadataChange {
    /// Returns the change; `None` if the values are equal.
    pub(crate) fn between(key: &str, from: Option<&str>, to: Option<&str>) -> Option<Self> {
        let change = || Self { key: key.to_owned(), from: from.map(str::to_owned), to: to.map(str::to_owned) };
        (from != to).then(change)
    }
}

/// The changes that a node needs. They are sent in one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodePlan {
    /// `node.kubernetes.io/windows-build`.
    pub windows_build: Option<MetadataChange>,
    /// Labels under `runs.winpool.dev/`.
    pub capability_labels: Vec<MetadataChange>,
    pub taints: Option<TaintChange>,
    /// The label `winpool.dev/pool`.
    pub pool: Option<MetadataChange>,
    /// The annotation `winpool.dev/applied`.
    pub applied: Option<MetadataChange>,
}

impl NodePlan {
    /// True if only the record that the plan writes is missing on a node with this label `winpool.dev/pool` and this annotation
    /// `winpool.dev/applied`. If the label is missing as well, another writer reverts everything.
    pub fn is_stripped(&self, label: Option<&str>, annotation: Option<&str>) -> bool {
        let record = self.applied.as_ref().and_then(|change| change.to.as_deref());
        label.is_some() && record.is_some() && record != annotation
    }

    /// True if the node needs no change.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub fn labels(&self) -> impl Iterator<Item = &MetadataChange> {
        self.windows_build.iter().chain(&self.capability_labels).chain(&self.pool)
    }

    /// The labels, and everything else. Each part can be sent if the other one is refused.
    pub fn parts(&self) -> [Self; 2] {
        let labels = Self {
            windows_build: self.windows_build.clone(),
            capability_labels: self.capability_labels.clone(),
            ..Self::default()
        };
        let rest = Self { windows_build: None, capability_labels: Vec::new(), ..self.clone() };
        [labels, rest]
    }

    /// The plan as it is tried to be sent: as a whole and then, if it has two parts, each of them.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = Self> {
        let parts = move || self.parts().into_iter().filter(move |part| !part.is_empty() && part != self);
        let whole = (!self.is_empty()).then(|| self.clone());
        whole.into_iter().chain(iter::once_with(parts).flatten())
    }
}

/// A change of the taint list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaintChange {
    /// The whole list to write.
    pub to: Vec<Value>,
    /// Taints that the new list adds.
    pub added: Vec<Taint>,
    /// Taints that the new list lacks.
    pub removed: Vec<Taint>,
}
