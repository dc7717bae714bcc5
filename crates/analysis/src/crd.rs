//! The CRD, generated from the types of the core.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;
use winpool_core::api::WindowsPool;

/// The CRD, as in `crds/`.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = WindowsPool::crd();
    // A pool without a spec is the normal case, but the derive makes `spec` required and without a default.
    for version in &mut crd.spec.versions {
        let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) else { continue };
        root.required = None;
        if let Some(spec) = root.properties.as_mut().and_then(|p| p.get_mut("spec")) {
            spec.default = Some(JSON(json!({})));
        }
        simplify(root);
        if let Some(spec) = property(root, "spec") {
            bound_tolerations(spec);
            default_retired_value(spec);
        }
    }
    crd
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}

fn items<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    match property(schema, name)?.items.as_mut()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// The value is a key of this list, and keys need a default.
fn default_retired_value(spec: &mut JSONSchemaProps) {
    if let Some(value) = items(spec, "retiredTaints").and_then(|taint| property(taint, "value")) {
        value.default = Some(JSON(json!("")));
    }
}

/// Kubernetes' own type has no limits, and without them the API server refuses rules about it as too costly.
fn bound_tolerations(spec: &mut JSONSchemaProps) {
    let Some(toleration) = items(spec, "runtimeClasses").and_then(|class| items(class, "tolerations")) else { return };
    for (name, limit) in [("key", 317), ("value", 63), ("effect", 32), ("operator", 32)] {
        if let Some(property) = property(toleration, name) {
            property.max_length = Some(limit);
        }
    }
}

/// Makes the API server drop fields that are null instead of storing the null. Null means omitted everywhere, and CEL
/// rules then see no field. Writes each description on one line, because `kubectl explain` wraps lines itself.
fn simplify(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(description) = &mut schema.description {
        *description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    schema.properties.iter_mut().flatten().for_each(|(_, property)| simplify(property));
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        simplify(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        simplify(values);
    }
}
