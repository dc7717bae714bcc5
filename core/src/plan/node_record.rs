//! The label and the annotation by which winpool records on a node what it added.

use crate::api::{Mode, names};

use super::{
    node::{MetadataChange, NodeFields},
    pools::Policy,
    taint_list::Applied,
};

/// The label `winpool.dev/pool` and the annotation `winpool.dev/applied` of a node.
pub(super) struct NodeRecord<'n> {
    label: Option<&'n str>,
    annotation: Option<&'n str>,
    pub(super) applied: Option<Applied>,
}

impl<'n> NodeRecord<'n> {
    pub(super) fn of(node: &'n NodeFields) -> Self {
        let annotation = node.applied.as_deref();
        Self { label: node.labels.get(names::POOL), annotation, applied: annotation.and_then(Applied::parse) }
    }

    pub(super) fn exists(&self) -> bool {
        self.label.is_some() || self.annotation.is_some()
    }

    pub(super) fn pool(&self) -> Option<&str> {
        self.applied.as_ref().map(|applied| applied.pool.as_str()).or(self.label)
    }

    pub(super) fn belongs_to_a_live_pool(&self, policy: &Policy) -> bool {
        let pool = self.pool().and_then(|name| policy.pool(name));
        pool.is_some_and(|pool| pool.spec.mode == Mode::Enforce && (!pool.spec.deleting || pool.spec.needs_cleanup()))
    }

    pub(super) fn belongs_to_a_suspended_pool(&self, policy: &Policy) -> bool {
        self.pool().is_some_and(|name| policy.is_suspended(name))
    }

    pub(super) fn label_change(&self, pool: Option<&str>) -> Option<MetadataChange> {
        MetadataChange::between(names::POOL, self.label, pool)
    }

    pub(super) fn annotation_change(&self, wanted: Option<&Applied>) -> Option<MetadataChange> {
        if wanted.is_some() && self.applied.as_ref() == wanted {
            return None;
        }
        let to = wanted.map(Applied::to_annotation);
        MetadataChange::between(names::APPLIED, self.annotation, to.as_deref())
    }
}
