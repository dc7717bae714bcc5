//! Warnings about pods, as a watch decodes them.

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::Deserialize;
use winpool_core::plan::pods::PodEvent;

/// An Event of a kubelet, with the metadata that kube needs. Kubelets write core Events with these fields.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Event)]
#[serde(from = "WireEvent")]
pub struct ListedEvent {
    /// Only namespace, name and resourceVersion.
    metadata: ObjectMeta,
    pub event: PodEvent,
}

/// Selects the Warnings about pods with this reason. No field selector has a list of values.
pub fn warnings(reason: &str) -> String {
    format!("involvedObject.kind=Pod,type=Warning,reason={reason}")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEvent {
    metadata: ObjectMeta,
    #[serde(default)]
    involved_object: ObjectReference,
    reason: Option<String>,
    message: Option<String>,
    source: Option<EventSource>,
    first_timestamp: Option<Time>,
    last_timestamp: Option<Time>,
}

impl From<WireEvent> for ListedEvent {
    fn from(wire: WireEvent) -> Self {
        let ObjectMeta { name, namespace, resource_version, .. } = wire.metadata;
        let event = PodEvent {
            namespace: wire.involved_object.namespace.unwrap_or_default(),
            pod: wire.involved_object.name.unwrap_or_default(),
            node: wire.source.and_then(|source| source.host).unwrap_or_default(),
            reason: wire.reason.unwrap_or_default(),
            message: wire.message.unwrap_or_default(),
            first: wire.first_timestamp.map(|time| time.0),
            last: wire.last_timestamp.map(|time| time.0),
        };
        Self { metadata: ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() }, event }
    }
}
