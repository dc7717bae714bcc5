//! What winpool records on a node of what it added, and what this process knows of the node besides its object.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    api::names,
    node::{change::MetadataChange, object::NodeFields},
    windows::Build,
};

/// The annotation `winpool.dev/applied`: the pool that manages the node, and the taints that winpool added.
///
/// A kubelet can write it on its own node, so it is only a hint: see `Policy::may_remove`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    pub pool: String,
    /// The taints that winpool added, as `key=value:effect`.
    #[serde(default)]
    pub taints: Vec<String>,
}

impl Applied {
    /// Parses the annotation. One that does not parse names no pool and no taint.
    pub fn parse(annotation: &str) -> Option<Self> {
        serde_json::from_str(annotation).ok()
    }

    /// The annotation's value, as compact JSON.
    pub fn to_annotation(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// The label `winpool.dev/pool` and the annotation `winpool.dev/applied` of a node.
pub(crate) struct NodeRecord<'n> {
    label: Option<&'n str>,
    annotation: Option<&'n str>,
    pub(crate) applied: Option<Applied>,
}

impl<'n> NodeRecord<'n> {
    pub(crate) fn of(node: &'n NodeFields) -> Self {
        let annotation = node.applied.as_deref();
        Self { label: node.labels.get(names::POOL), annotation, applied: annotation.and_then(Applied::parse) }
    }

    /// The record, or the one that this process knows of, if somebody removed the annotation and left the label.
    pub(crate) fn or_known(self, watched: Option<&Watched>) -> Self {
        if self.annotation.is_some() || self.label.is_none() {
            return self;
        }
        Self { applied: watched.and_then(|watched| Applied::parse(watched.applied.as_deref()?)), ..self }
    }

    pub(crate) fn exists(&self) -> bool {
        self.label.is_some() || self.annotation.is_some()
    }

    pub(crate) fn pool(&self) -> Option<&str> {
        self.applied.as_ref().map(|applied| applied.pool.as_str()).or(self.label)
    }

    pub(crate) fn label_change(&self, pool: Option<&str>) -> Option<MetadataChange> {
        MetadataChange::between(names::POOL, self.label, pool)
    }

    pub(crate) fn annotation_change(&self, wanted: Option<&Applied>) -> Option<MetadataChange> {
        if self.annotation.is_some() && wanted.is_some() && self.applied.as_ref() == wanted {
            return None;
        }
        let to = wanted.map(Applied::to_annotation);
        MetadataChange::between(names::APPLIED, self.annotation, to.as_deref())
    }
}

/// The time for which winpool does not correct a build label that contradicts the node's report. After an in-place
/// upgrade the kubelet writes the label of the new build first, and reports that build 0.2 seconds later, or some
/// seconds later if the API server is busy.
pub const LABEL_SETTLES: Duration = Duration::from_secs(5);

/// What this process knows of a node besides its object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watched {
    /// The time until which winpool leaves the build label alone although the node reports another build.
    pub label_settles: Option<Instant>,
    /// The last annotation `winpool.dev/applied` that was seen or written.
    pub(crate) applied: Option<Arc<str>>,
    /// True while pods that run on the node are to get tolerations before it gets taints.
    pub(crate) awaits_pods: bool,
}

impl Watched {
    /// Takes in the node as it was seen.
    pub fn see(&mut self, node: &NodeFields, now: Instant) {
        let label = node.labels.get(names::WINDOWS_BUILD).and_then(|text| text.parse::<Build>().ok());
        let contradicts = label.zip(node.reported_build()).is_some_and(|(label, reported)| label != reported);
        self.label_settles = contradicts.then(|| self.label_settles.unwrap_or(now + LABEL_SETTLES));
        self.applied = node.applied.clone().or(self.applied.take());
    }
}
