//! Pods and `DaemonSets`, as lists and watches show them.

use k8s_openapi::{
    api::{apps::v1::DaemonSet, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::api::ListParams;
use serde::Deserialize;
use serde_json::Value;
use winpool_core::pod;

/// Selects pods that have not finished.
pub fn unfinished() -> ListParams {
    ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed")
}

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
