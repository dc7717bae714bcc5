//! The schema of WindowsPools without its rules: for pools that were stored before the rules existed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;

use crate::machine::wait::{LIMIT, wait_for};
use crate::scene::manifests::crd;

/// Pools as JSON: some cannot be decoded.
pub fn untyped(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::erase::<WindowsPool>(&()))
}

/// A pool with any spec.
pub fn object(name: &str, spec: &Value) -> DynamicObject {
    let mut pool = DynamicObject::new(name, &ApiResource::erase::<WindowsPool>(&()));
    pool.data = json!({"spec": spec});
    pool
}

/// Makes the API server accept any spec.
pub async fn loosen_schema(client: &Client) {
    with_schema(client, &json!({"taints": "x"}), true, |schema| {
        without_rules(schema);
        without_any_shape(schema);
    })
    .await;
}

/// Creates a pool with any spec.
pub async fn create(client: &Client, name: &str, spec: &Value) {
    untyped(client).create(&PostParams::default(), &object(name, spec)).await.unwrap();
}

/// Changes the schema of WindowsPools, starting from the real one, and waits until the API server uses it, which
/// shows in whether this spec is accepted.
pub async fn with_schema(client: &Client, spec: &Value, accepted: bool, change: impl Fn(&mut Value)) {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definition = json!(crd().unwrap());
    change(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    // The API server writes its own status into it at the same time.
    let patch = Patch::Merge(json!({"spec": {"versions": definition["spec"]["versions"]}}));
    crds.patch(&crd().unwrap().name_any(), &PatchParams::default(), &patch).await.unwrap();
    let (pools, probe) = (untyped(client), object("probe", spec));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let in_force = async || Ok((pools.create(&dry_run, &probe).await.is_ok() == accepted).then_some(()));
    wait_for("the schema is in force", LIMIT, in_force).await.unwrap();
}

pub fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("x-kubernetes-validations");
            members.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

/// Allows any object as a spec.
pub fn without_any_shape(schema: &mut Value) {
    schema["properties"]["spec"] = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
}
