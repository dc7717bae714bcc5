//! Metadata of pods, workloads and templates.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::Deserialize;

use crate::api::names;

use super::workload_kind::WorkloadKind;

/// Metadata without managedFields, which are larger than the rest.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireMetadata {
    pub namespace: Option<String>,
    name: Option<String>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    generate_name: Option<String>,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub labels: Option<BTreeMap<String, String>>,
    pub annotations: Option<BTreeMap<String, String>>,
    pub owner_references: Option<Vec<OwnerReference>>,
}

impl WireMetadata {
    /// True if it has the annotation `winpool.dev/ignore`.
    pub fn is_ignored(&self) -> bool {
        self.annotations.as_ref().and_then(|all| all.get(names::IGNORE)).is_some_and(|value| value == "true")
    }

    /// Returns the name or, if the API server makes it, its prefix.
    pub fn take_name(&mut self) -> String {
        self.name.take().or(self.generate_name.take()).unwrap_or_default()
    }

    /// Kind and name of the controller. A foreign kind with the name of a listed one is written with its group:
    /// `StatefulSet.apps.kruise.io`.
    pub fn controller(&self) -> Option<(String, String)> {
        let owner = self.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let listed = WorkloadKind::by_name(&owner.kind);
        let is_foreign = listed.is_some_and(|kind| kind.resource().0 != group);
        let kind = if is_foreign { format!("{}.{group}", owner.kind) } else { owner.kind.clone() };
        Some((kind, owner.name.clone()))
    }
}
