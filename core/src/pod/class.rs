//! The part of a RuntimeClass that places pods.

use std::collections::BTreeMap;

use k8s_openapi::api::{core::v1::Toleration, node::v1::RuntimeClass};

use super::tolerations::tolerations_of;

/// The fields of an existing or planned RuntimeClass that winpool reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Class {
    pub handler: String,
    /// `scheduling.nodeSelector`.
    pub selector: BTreeMap<String, String>,
    /// `scheduling.tolerations`, normalised.
    pub tolerations: Vec<Toleration>,
}

impl From<&RuntimeClass> for Class {
    fn from(class: &RuntimeClass) -> Self {
        Self { handler: class.handler.clone(), selector: selector_of(class), tolerations: tolerations_of(class) }
    }
}

/// The labels that a class selects.
pub(crate) fn selector_of(class: &RuntimeClass) -> BTreeMap<String, String> {
    class.scheduling.as_ref().and_then(|scheduling| scheduling.node_selector.clone()).unwrap_or_default()
}
