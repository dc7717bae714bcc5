//! Reads Karpenter's objects without typed structs, because winpool does not depend on Karpenter's API.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::{Value, json};
use winpool_core::plan::Autoscalers;

use super::{error::RequestError, pages};

/// The kinds to read, as (group, kind, plural). An EC2NodeClass sets the Windows version of a NodePool's nodes on AWS.
const KINDS: [(&str, &str, &str); 2] =
    [("karpenter.sh", "NodePool", "nodepools"), ("karpenter.k8s.aws", "EC2NodeClass", "ec2nodeclasses")];

/// Reads Karpenter's descriptions of nodes that do not exist yet. The result is empty if Karpenter is not installed.
///
/// # Errors
/// Fails if the API server does not answer. A missing permission is no error: it stands in the result.
pub(crate) async fn read(client: &Client) -> Result<Autoscalers, RequestError> {
    let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
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
            objects.push(object);
        };
        match pages::each(&api, ListParams::default(), keep).await {
            Ok(()) | Err(RequestError::Gone) => {}
            Err(RequestError::Denied(words)) => {
                unreadable.push(format!("{plural}.{group} cannot be listed: {words}"));
            }
            Err(error) => return Err(error),
        }
        if objects.is_empty() {
            break;
        }
    }
    Ok(Autoscalers::read(&objects, unreadable))
}
