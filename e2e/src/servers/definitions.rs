//! CRDs, installed until the API server serves their objects.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::runtime::conditions;
use kube::runtime::wait::Condition;
use kube::{Api, Client, ResourceExt};

use crate::error::Result;
use crate::machine::wait::{LIMIT, wait_for};

/// Installs a CRD and waits until the API server serves its objects.
pub async fn define(client: &Client, definition: &CustomResourceDefinition) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), definition).await?;
    let (name, established) = (definition.name_any(), conditions::is_crd_established());
    wait_for(&format!("CustomResourceDefinition {name} is established"), LIMIT, async || {
        Ok(established.matches_object(definitions.get_opt(&name).await?.as_ref()).then_some(()))
    })
    .await?;
    for version in definition.spec.versions.iter().filter(|version| version.served) {
        let kind = GroupVersionKind::gvk(&definition.spec.group, &version.name, &definition.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &definition.spec.names.plural);
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        // Established comes before the API server can list: for a moment it answers 404, then 429.
        let served = async || Ok(objects.list(&ListParams::default()).await.ok());
        wait_for(&format!("{name} of {} is served", version.name), LIMIT, served).await?;
    }
    Ok(())
}
