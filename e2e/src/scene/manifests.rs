//! The manifests in `examples/` and `config/`, applied as users apply them.

use crate::error::{Error, FileContext, Result};
use crate::servers::cluster::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, ValidationDirective};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::path::Path;

/// The directory with the examples.
pub const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");

const COMPONENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/components");

const CRD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/winpool.dev_windowspools.yaml");

const RBAC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/rbac");

/// The namespace of objects that do not name one.
const NAMESPACE: &str = "default";

/// Reads all objects of a file in `examples/`.
pub fn example(file: &str) -> Result<Vec<DynamicObject>> {
    read(&Path::new(EXAMPLES).join(file))
}

/// Reads all objects that a component in `config/components/` adds to an installation.
pub fn component(name: &str) -> Result<Vec<DynamicObject>> {
    let directory = Path::new(COMPONENTS).join(name);
    let kustomization: Vec<Kustomization> = read(&directory.join("kustomization.yaml"))?;
    let files = kustomization.iter().flat_map(|kustomization| &kustomization.resources);
    Ok(files.map(|file| read(&directory.join(file))).collect::<Result<Vec<_>>>()?.concat())
}

/// Reads the CRD of WindowsPools.
pub fn crd() -> Result<CustomResourceDefinition> {
    let mut definitions = read(Path::new(CRD))?;
    definitions.pop().ok_or_else(|| Error::Manifest { path: CRD.into(), why: "no object".to_owned() })
}

/// Reads all objects of a file in `config/rbac/`.
pub fn rbac(file: &str) -> Result<Vec<DynamicObject>> {
    read(&Path::new(RBAC).join(file))
}

/// The fields of a kustomization that matter here.
#[derive(Deserialize)]
struct Kustomization {
    resources: Vec<String>,
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let text = std::fs::read_to_string(path).when("read", path)?;
    serde_yaml::from_multiple(&text).map_err(|error| Error::Manifest { path: path.to_owned(), why: error.to_string() })
}

/// Applies objects as `kubectl apply --server-side --validate=strict` does: a field that the API server does not
/// know is an error.
pub async fn apply(client: &Client, objects: &[DynamicObject]) -> Result<()> {
    let strictly =
        PatchParams { field_validation: Some(ValidationDirective::Strict), ..PatchParams::apply("winpool-e2e") };
    for object in objects {
        let api = api_of(client, object).await?;
        api.patch(&object.name_any(), &strictly, &Patch::Apply(object)).await?;
    }
    Ok(())
}

async fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let types = object.types.clone().unwrap_or_default();
    let kind = GroupVersionKind::try_from(&types).map_err(|error| Error::Manifest {
        path: object.name_any().into(),
        why: format!("apiVersion is not one: {error}"),
    })?;
    let (resource, capabilities) = pinned_kind(client, &kind).await?;
    let namespace = object.namespace().unwrap_or_else(|| NAMESPACE.to_owned());
    Ok(match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    })
}

/// Waits until a Deployment of the examples has all its replicas running, and nothing else, and returns its pods.
pub async fn rolled_out(cluster: &Cluster, name: &str) -> Result<Vec<Pod>> {
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), NAMESPACE);
    let wanted = ListParams::default().labels(&format!("app={name}"));
    let pods = async || Ok::<_, Error>(Api::<Pod>::namespaced(cluster.client(), NAMESPACE).list(&wanted).await?.items);
    let is_done = async || Ok(deployments.get_opt(name).await?.filter(is_rolled_out));
    match cluster.wait_for(&format!("all pods of Deployment {name} run"), is_done).await {
        Err(Error::Timeout { what, limit, .. }) => {
            return Err(Error::Timeout { what, limit, seen: format!("Its pods: {:#}", json!(pods().await?)) });
        }
        result => drop(result?),
    }
    let mut pods = pods().await?;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(pods)
}

/// The rule of `kubectl rollout status`.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let Some(status) = &deployment.status else {
        return false;
    };
    status.observed_generation >= deployment.metadata.generation
        && [status.updated_replicas, status.replicas, status.available_replicas] == [wanted; 3]
}
