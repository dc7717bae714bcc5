//! `DaemonSets`: their names and the template of their pods.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{metadata::WireMetadata, spec::PodSpec};

/// The fields of a `DaemonSet` that winpool reads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaemonSet {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub created: Option<Timestamp>,
    /// True if it creates no more pods, because it is being deleted.
    pub is_over: bool,
    /// True if it or its template has the annotation `winpool.dev/ignore`.
    pub is_ignored: bool,
    /// The pod spec of the template.
    pub template: PodSpec,
}

impl DaemonSet {
    /// Reads an object.
    ///
    /// # Errors
    /// Fails if the metadata or the template cannot be decoded.
    pub fn read(object: &Value) -> Result<Self, serde_json::Error> {
        let mut metadata = WireMetadata::deserialize(&object["metadata"])?;
        let template = &object["spec"]["template"];
        let of_pods: Option<WireMetadata> = Option::deserialize(&template["metadata"])?;
        let spec: Option<PodSpec> = Option::deserialize(&template["spec"])?;
        Ok(Self {
            is_over: metadata.deletion_timestamp.is_some(),
            is_ignored: metadata.is_ignored() || of_pods.is_some_and(|of_pods| of_pods.is_ignored()),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
            name: metadata.take_name(),
            namespace: metadata.namespace.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            template: spec.unwrap_or_default(),
        })
    }
}
