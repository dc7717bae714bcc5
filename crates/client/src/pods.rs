//! Pods, Events about them and `DaemonSets`, as lists and watches show them.

use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{Event, EventSource, ObjectReference, Pod},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use serde::Deserialize;
use serde_json::Value;
use winpool_core::{plan::pods::PodEvent, pod};

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
        let [namespace, name, resource_version] =
            [&pod.namespace, &pod.name, &pod.resource_version].map(|text| Some(text.clone()));
        Self { metadata: ObjectMeta { namespace, name, resource_version, ..ObjectMeta::default() }, pod }
    }
}

/// A DaemonSet as a watch decodes it, with the metadata that kube needs.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = DaemonSet)]
#[serde(from = "Value")]
pub struct ListedDaemonSet {
    /// Only namespace, name and resourceVersion.
    metadata: ObjectMeta,
    pub set: pod::DaemonSet,
}

impl From<Value> for ListedDaemonSet {
    fn from(object: Value) -> Self {
        let text = |key: &str| object["metadata"][key].as_str().map(str::to_owned);
        let (namespace, name, resource_version) = (text("namespace"), text("name"), text("resourceVersion"));
        // One that cannot be decoded has no placement, and so objects to nothing.
        let set = pod::DaemonSet::read(&object).unwrap_or_default();
        Self { metadata: ObjectMeta { namespace, name, resource_version, ..ObjectMeta::default() }, set }
    }
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
