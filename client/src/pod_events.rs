//! Warnings about pods, as a watch decodes them.

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};
use serde::Deserialize;
use winpool_core::plan::pods::{PodEvent, SANDBOX_FAILED};

/// An Event with the metadata that kube needs.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Event)]
#[serde(from = "WireEvent")]
pub struct ListedEvent {
    /// Only namespace, name and resourceVersion.
    metadata: ObjectMeta,
    pub event: PodEvent,
}

/// Selects the Warnings about pods whose sandbox cannot be created.
pub fn warnings() -> String {
    format!("involvedObject.kind=Pod,type=Warning,reason={SANDBOX_FAILED}")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEvent {
    metadata: ObjectMeta,
    #[serde(default)]
    involved_object: ObjectReference,
    message: Option<String>,
    source: Option<EventSource>,
    reporting_instance: Option<String>,
    first_timestamp: Option<Time>,
    event_time: Option<MicroTime>,
}

impl From<WireEvent> for ListedEvent {
    fn from(wire: WireEvent) -> Self {
        let ObjectMeta { name, namespace, resource_version, .. } = wire.metadata;
        let host =
            wire.source.and_then(|source| source.host).filter(|host| !host.is_empty()).or(wire.reporting_instance);
        let event = PodEvent {
            namespace: wire.involved_object.namespace.unwrap_or_default(),
            pod: wire.involved_object.name.unwrap_or_default(),
            node: host.unwrap_or_default(),
            message: wire.message.unwrap_or_default(),
            first: wire.first_timestamp.map(|time| time.0).or(wire.event_time.map(|time| time.0)),
        };
        Self { metadata: ObjectMeta { name, namespace, resource_version, ..ObjectMeta::default() }, event }
    }
}
