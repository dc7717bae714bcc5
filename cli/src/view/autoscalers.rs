//! Reads Karpenter's objects without typed structs, because winpool does not depend on Karpenter's API.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use winpool_answers::autoscalers::Autoscalers;
use winpool_client::{causes::shortened, error::RequestError, pages};

/// The kinds to read, as (group, kind, plural). An EC2NodeClass sets the Windows version of a NodePool's nodes on AWS.
const KINDS: [(&str, &str, &str); 2] =
    [("karpenter.sh", "NodePool", "nodepools"), ("karpenter.k8s.aws", "EC2NodeClass", "ec2nodeclasses")];

/// The size of all objects together that are kept, as JSON. Usual ones have a few kilobytes each.
const LARGEST: usize = 4 << 20;

/// Reads Karpenter's descriptions of nodes that do not exist yet. The result is empty if Karpenter is not installed. It names
/// what cannot be read.
pub(super) async fn read(client: &Client) -> Autoscalers {
    let (mut objects, mut unreadable, mut size) = (Vec::new(), Vec::new(), 0);
    for (group, kind, plural) in KINDS {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let refers = |pool: &Value| pool.to_string().contains(group);
        if !objects.is_empty() && !objects.iter().any(refers) {
            continue;
        }
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let keep = |mut object: Value| {
            // Objects in a list do not say what they are.
            object["apiVersion"] = json!(resource.api_version);
            object["kind"] = json!(kind);
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.retain(|field, _| !matches!(field.as_str(), "annotations" | "managedFields"));
            }
            size += object.to_string().len();
            if size <= LARGEST {
                objects.push(object);
            }
        };
        match pages::each(&api, ListParams::default(), keep).await {
            Ok(()) | Err(RequestError::Gone) => {}
            Err(RequestError::Denied(message)) => {
                unreadable.push(format!("{plural}.{group} cannot be listed: {message}"));
            }
            Err(error) => unreadable.push(format!("{plural}.{group} cannot be read: {}", shortened(&error))),
        }
        if size > LARGEST {
            unreadable.push(format!("some of {plural}.{group} are left out, because all together are too large"));
        }
        if objects.is_empty() {
            break;
        }
    }
    Autoscalers::read(&objects, unreadable)
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// Reads from a server with this many NodePools, with an annotation and a label of these sizes.
    async fn read_from(pools: usize, annotation: usize, label: usize) -> Autoscalers {
        let answer = move |request: Request<Body>| async move {
            let is_pool = request.uri().path().ends_with("/nodepools");
            let annotations = json!({"a": "x".repeat(annotation)});
            let template = json!({"metadata": {"labels": {"b": "x".repeat(label)}}});
            let items: Vec<_> = (0..if is_pool { pools } else { 0 })
                .map(|n| json!({"metadata": {"name": format!("p-{n}"), "annotations": annotations}, "spec": {"template": template}}))
                .collect();
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            Ok::<_, kube::Error>(Response::new(Body::from(list.to_string().into_bytes())))
        };
        read(&Client::new(service_fn(answer), "default")).await
    }

    #[tokio::test]
    async fn only_a_limited_size_of_objects_is_kept() {
        let found = read_from(20, 500_000, 10).await;
        assert_eq!((found.templates.len(), found.unreadable), (20, Vec::new()), "annotations are not kept");
        let found = read_from(20, 0, 500_000).await;
        assert_eq!(found.templates.len(), 8);
        assert_eq!(
            found.unreadable,
            ["some of nodepools.karpenter.sh are left out, because all together are too large"]
        );
    }
}
