//! Lists pods and workloads. They are read only to see who uses a RuntimeClass or who could not be scheduled any more;
//! they are never watched or cached.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use winpool_core::{
    plan::{ClassScheduling, ClassUsers, LabelUsers},
    pod::{self, LISTED_KINDS, WorkloadKind},
};

use crate::error::RequestError;

use super::pages;

/// Selects pods that have not finished.
pub fn unfinished() -> ListParams {
    ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed")
}

/// Counts the users of these RuntimeClasses, page by page: no pod is kept. The inner error is the API server's message if pods may
/// not be listed. Kinds of workloads that may not be listed are left out.
pub async fn users(
    client: &Client,
    classes: &BTreeMap<String, ClassScheduling>,
) -> Result<Result<BTreeMap<String, ClassUsers>, String>, RequestError> {
    let mut users = ClassUsers::count([], [], classes);
    let add = |pod: pod::Pod| ClassUsers::add(&mut users, &pod, classes);
    match pages::each(&Api::<Pod>::all(client.clone()), unfinished(), add).await {
        Ok(()) => {}
        Err(RequestError::Denied(message)) => return Ok(Err(message)),
        Err(error) => return Err(error),
    }
    if classes.values().any(|scheduling| scheduling.is_unserved) {
        for (kind, ..) in LISTED_KINDS {
            let add = |workload| ClassUsers::add_workload(&mut users, kind, &workload, classes);
            match pages::each_patiently(&workloads(client, kind, None), of_kind(kind), add).await {
                Ok(()) | Err(RequestError::Denied(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(Ok(users))
}

/// Adds the unfinished pods that select capability labels.
pub async fn that_select_labels(client: &Client, users: &mut LabelUsers) -> Result<(), RequestError> {
    let add = |pod: pod::Pod| users.add_pod(&pod);
    match pages::each(&Api::<Pod>::all(client.clone()), unfinished(), add).await {
        Err(RequestError::Denied(message)) => {
            users.add_unknown(&message);
            Ok(())
        }
        listed => listed,
    }
}

/// The API of a workload kind, in one namespace or in all.
pub fn workloads(client: &Client, kind: WorkloadKind, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, plural) = kind.resource();
    let kind = GroupVersionKind::gvk(group, "v1", kind.as_str());
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Selects the objects of a kind that count. A Deployment stands for its `ReplicaSets`.
pub fn of_kind(kind: WorkloadKind) -> ListParams {
    match kind {
        WorkloadKind::ReplicaSet => ListParams::default().labels("!pod-template-hash"),
        _ => ListParams::default(),
    }
}
