//! Reads Karpenter's objects without typed structs, because winpool does not depend on Karpenter's API.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use winpool_analysis::autoscalers::Autoscalers;
use winpool_client::causes::shortened;
use winpool_client::error::RequestError;
use winpool_client::pages;

/// The kinds to read, as (group, version, kind, plural). A node class sets the Windows version of a NodePool's nodes.
const KINDS: [(&str, &str, &str, &str); 3] = [
    ("karpenter.sh", "v1", "NodePool", "nodepools"),
    ("karpenter.k8s.aws", "v1", "EC2NodeClass", "ec2nodeclasses"),
    ("karpenter.azure.com", "v1beta1", "AKSNodeClass", "aksnodeclasses"),
];

/// The size of all objects together that are kept, as JSON. Usual ones have a few kilobytes each.
const LARGEST: usize = 4 << 20;

/// Reads Karpenter's descriptions of nodes that do not exist yet, and names those that cannot be read. The result is empty if
/// Karpenter is not installed.
pub async fn read(client: &Client) -> Autoscalers {
    let (mut objects, mut unreadable, mut size) = (Vec::new(), Vec::new(), 0);
    for (group, version, kind, plural) in KINDS {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let refers = |object: &Value| object.to_string().contains(group);
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

    /// Reads from a server that answers every list with this status and body.
    async fn read_from(code: u16, body: &Value) -> Autoscalers {
        let body = body.to_string();
        let answer = move |_: Request<Body>| {
            let answer = Response::builder().status(code).body(Body::from(body.clone().into_bytes()));
            async { Ok::<_, kube::Error>(answer.unwrap()) }
        };
        read(&Client::new(service_fn(answer), "default")).await
    }

    #[tokio::test]
    async fn only_a_limited_size_of_objects_is_kept() {
        // 20 NodePools with an annotation and a label of these sizes.
        let list = |annotation: usize, label: usize| {
            let annotations = json!({"a": "x".repeat(annotation)});
            let template = json!({"metadata": {"labels": {"b": "x".repeat(label)}}});
            let items: Vec<_> = (0..20)
                .map(|n| json!({"metadata": {"name": format!("p-{n}"), "annotations": annotations}, "spec": {"template": template}}))
                .collect();
            json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items})
        };
        let found = read_from(200, &list(500_000, 10)).await;
        assert_eq!((found.templates.len(), found.unreadable), (20, Vec::new()), "annotations are not kept");
        let found = read_from(200, &list(0, 500_000)).await;
        assert_eq!(found.templates.len(), 8);
        assert_eq!(
            found.unreadable,
            ["some of nodepools.karpenter.sh are left out, because all together are too large"]
        );
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_named_and_a_cluster_without_karpenter_has_nothing_to_name() {
        for (code, unreadable) in [
            (404, &[][..]),
            (403, &["nodepools.karpenter.sh cannot be listed: no"]),
            (500, &["nodepools.karpenter.sh cannot be read: the request to the API server failed"]),
        ] {
            let body =
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": code});
            let found = read_from(code, &body).await;
            assert_eq!(found.templates, []);
            let is_named = |(found, expected): (&String, &&str)| found.starts_with(expected);
            let all_named = found.unreadable.iter().zip(unreadable).all(is_named);
            assert!(found.unreadable.len() == unreadable.len() && all_named, "{code}: {:?}", found.unreadable);
        }
    }
}
