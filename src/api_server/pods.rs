//! Lists pods and workloads. They are read only to see who uses a RuntimeClass or who could not be scheduled any more;
//! they are never watched or cached.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, GroupVersionKind, ListParams},
    core::DynamicResourceScope,
};
use serde::Deserialize;
use winpool_core::{
    api::Taint,
    plan::ClassUsers,
    pod::{self, Workload, WorkloadKind},
};

use crate::api_server::error::RequestError;

use super::pages;

/// A Pod as winpool reads it; serde skips all other fields.
#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Pod)]
#[serde(from = "pod::Pod")]
pub struct ListedPod {
    metadata: ObjectMeta,
    pub pod: pod::Pod,
}

impl From<pod::Pod> for ListedPod {
    fn from(pod: pod::Pod) -> Self {
        Self { metadata: ObjectMeta::default(), pod }
    }
}

/// Selects pods that have not finished.
pub(crate) fn unfinished() -> ListParams {
    ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed")
}

/// Counts the users of these RuntimeClasses, page by page: no pod is kept. `taints` are those that a pod of the classes
/// has to tolerate. The inner error is the API server's message if pods may not be listed.
pub(crate) async fn users(
    pods: &Api<ListedPod>,
    classes: &BTreeSet<String>,
    taints: &[Taint],
) -> Result<Result<BTreeMap<String, ClassUsers>, String>, RequestError> {
    let mut users = ClassUsers::count([], classes, taints);
    let add = |listed: ListedPod| ClassUsers::add(&mut users, &listed.pod, taints);
    match pages::each(pods, unfinished(), add).await {
        Ok(()) => Ok(Ok(users)),
        Err(RequestError::Denied(words)) => Ok(Err(words)),
        Err(error) => Err(error),
    }
}

/// A workload as winpool reads it: an object that creates pods from a template.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Workload")]
pub struct ListedWorkload {
    metadata: ObjectMeta,
    pub workload: Workload,
}

impl From<Workload> for ListedWorkload {
    fn from(workload: Workload) -> Self {
        Self { metadata: ObjectMeta::default(), workload }
    }
}

impl Resource for ListedWorkload {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The API of a workload kind, in one namespace or in all.
pub(crate) fn workloads(client: &Client, kind: WorkloadKind, namespace: Option<&str>) -> Api<ListedWorkload> {
    let (group, plural) = kind.resource();
    let kind = GroupVersionKind::gvk(group, "v1", kind.as_str());
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Selects the objects of a kind that count. A Deployment stands for its `ReplicaSets`.
pub(crate) fn of_kind(kind: WorkloadKind) -> ListParams {
    match kind {
        WorkloadKind::ReplicaSet => ListParams::default().labels("!pod-template-hash"),
        _ => ListParams::default(),
    }
}
