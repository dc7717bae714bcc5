//! Lists pods and workloads. They are read only to see who uses a RuntimeClass or who could not be scheduled any more;
//! they are never watched or cached.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use winpool_core::{
    api::Taint,
    plan::ClassUsers,
    pod::{self, WorkloadKind},
};

use crate::api_server::error::RequestError;

use super::pages;

/// Selects pods that have not finished.
pub(crate) fn unfinished() -> ListParams {
    ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed")
}

/// Counts the users of these RuntimeClasses, page by page: no pod is kept. `taints` are those that a pod of the classes
/// has to tolerate. The inner error is the API server's message if pods may not be listed.
pub(crate) async fn users(
    pods: &Api<Pod>,
    classes: &BTreeSet<String>,
    taints: &[Taint],
) -> Result<Result<BTreeMap<String, ClassUsers>, String>, RequestError> {
    let mut users = ClassUsers::count([], classes, taints);
    let add = |pod: pod::Pod| ClassUsers::add(&mut users, &pod, taints);
    match pages::each(pods, unfinished(), add).await {
        Ok(()) => Ok(Ok(users)),
        Err(RequestError::Denied(words)) => Ok(Err(words)),
        Err(error) => Err(error),
    }
}

/// The API of a workload kind, in one namespace or in all.
pub(crate) fn workloads(client: &Client, kind: WorkloadKind, namespace: Option<&str>) -> Api<DynamicObject> {
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
