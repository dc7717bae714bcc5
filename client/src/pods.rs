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

/// Finds the unfinished pods that select capability labels: those without a node and those on this node, or all pods. A
/// pod that gets the node meanwhile is in the second list, if not in the first.
pub async fn that_need_labels(pods: &Api<Pod>, node: Option<&str>) -> Result<LabelUsers, RequestError> {
    let mut users = LabelUsers::default();
    let lists = match node {
        Some(node) => vec![unfinished_on(""), unfinished_on(node)],
        None => vec![unfinished()],
    };
    for list in lists {
        match pages::each(pods, list, |pod: pod::Pod| users.add(&pod)).await {
            Err(RequestError::Denied(message)) => return Ok(LabelUsers::unreadable(&message)),
            listed => listed?,
        }
    }
    Ok(users)
}

/// Selects unfinished pods on this node, or on none.
fn unfinished_on(node: &str) -> ListParams {
    ListParams::default().fields(&format!("spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tower::service_fn;

    use super::*;

    #[tokio::test]
    async fn a_pod_that_is_bound_between_two_lists_is_found() {
        const LABEL: &str = "runtimeclass.winpool.dev/windows-2022";
        let is_bound = AtomicBool::new(false);
        // The scheduler binds the pod as soon as one list has ended.
        let answer = move |request: Request<Body>| {
            let node = if is_bound.swap(true, Ordering::Relaxed) { "win-1" } else { "" };
            let asked = request.uri().query().unwrap_or_default().contains(&format!("spec.nodeName%3D{node}%2C"));
            let pod = json!({
                "metadata": {"namespace": "shop", "name": "web"},
                "spec": {"containers": [], "nodeName": node, "nodeSelector": {LABEL: "true"}},
            });
            let items = Vec::from_iter(asked.then_some(pod));
            let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items});
            async move { Ok::<_, kube::Error>(Response::new(Body::from(list.to_string().into_bytes()))) }
        };
        let pods = Api::<Pod>::all(Client::new(service_fn(answer), "default"));
        let users = that_need_labels(&pods, Some("win-1")).await.unwrap();
        assert_eq!(users.of("win-1", LABEL).as_deref(), Some("shop/web"));
    }
}
