//! Pods, Events about them and `DaemonSets`, as lists and watches show them.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use winpool_core::plan::pods::PodEvent;
use winpool_core::pod::{self, WireMetadata};

/// A Pod as a watch decodes it, with the metadata that kube needs.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Pod)]
#[serde(from = "pod::Pod")]
pub struct ListedPod {
    /// Only namespace, name and resourceVersion.
    metadata: ObjectMeta,
    pub pod: pod::Pod,
}

impl From<pod::Pod> for ListedPod {
    fn from(pod: pod::Pod) -> Self {
        Self { metadata: identity([&pod.namespace, &pod.name, &pod.resource_version]), pod }
    }
}

/// A DaemonSet as a watch decodes it, with the metadata that kube needs.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = DaemonSet)]
#[serde(from = "pod::DaemonSet")]
pub struct ListedDaemonSet {
    /// Only namespace, name and resourceVersion.
    metadata: ObjectMeta,
    pub set: pod::DaemonSet,
}

impl From<pod::DaemonSet> for ListedDaemonSet {
    fn from(set: pod::DaemonSet) -> Self {
        Self { metadata: identity([&set.namespace, &set.name, &set.resource_version]), set }
    }
}

fn identity(texts: [&String; 3]) -> ObjectMeta {
    let [namespace, name, resource_version] = texts.map(|text| Some(text.clone()));
    ObjectMeta { namespace, name, resource_version, ..ObjectMeta::default() }
}

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
    metadata: WireMetadata,
    #[serde(default)]
    involved_object: ObjectReference,
    reason: Option<String>,
    message: Option<String>,
    source: Option<EventSource>,
    /// Kept as text, because a user can write an Event with a time that winpool cannot decode.
    first_timestamp: Option<String>,
    last_timestamp: Option<String>,
}

impl From<WireEvent> for ListedEvent {
    fn from(wire: WireEvent) -> Self {
        let mut metadata = wire.metadata;
        let (namespace, name, version) = (metadata.namespace.take(), metadata.take_name(), metadata.resource_version);
        let event = PodEvent {
            namespace: wire.involved_object.namespace.unwrap_or_default(),
            pod: wire.involved_object.name.unwrap_or_default(),
            node: wire.source.and_then(|source| source.host).unwrap_or_default(),
            reason: wire.reason.unwrap_or_default(),
            message: wire.message.unwrap_or_default(),
            first: wire.first_timestamp.and_then(|time| time.parse().ok()),
            last: wire.last_timestamp.and_then(|time| time.parse().ok()),
        };
        Self { metadata: identity([&namespace.unwrap_or_default(), &name, &version.unwrap_or_default()]), event }
    }
}
