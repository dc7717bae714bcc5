//! The CRD, generated from the types of the core, and its rules.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use kube_cel::{CompiledSchema, ErrorKind, Validator, compile_schema};
use serde_json::{Value, json};
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

/// Returns what the API server would say about this WindowsPool by the rules of the CRD, with the fields that break them. Bounds
/// are left to the API server, and so are rules that cannot be evaluated here, such as that for a name it has yet to make.
pub fn broken_rules(pool: &Value) -> Vec<String> {
    static SCHEMA: LazyLock<Value> =
        LazyLock::new(|| json!(crd())["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone());
    static RULES: LazyLock<CompiledSchema> = LazyLock::new(|| compile_schema(&SCHEMA));
    let errors = Validator::new().validate_compiled(&RULES, pool, None).err();
    let broken = errors.into_iter().flatten().filter(|error| error.kind == ErrorKind::ValidationFailure);
    let list = list_for_object("spec", &pool["spec"], &SCHEMA["properties"]["spec"]);
    list.into_iter().chain(broken.map(|error| error.to_string())).collect()
}

/// Returns the first list in place of an object: serde would decode the object from it.
fn list_for_object(path: &str, value: &Value, schema: &Value) -> Option<String> {
    match value {
        Value::Array(_) if schema["type"] == "object" => Some(format!("{path}: is a list; write an object")),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| list_for_object(&format!("{path}[{index}]"), item, &schema["items"]))
        }
        Value::Object(members) => members
            .iter()
            .find_map(|(key, member)| list_for_object(&format!("{path}.{key}"), member, &schema["properties"][key])),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_breaks_rules_by_what_it_says_and_not_by_what_the_api_server_fills_in() {
        let pool = |spec: Value| json!({"metadata": {"generateName": "a"}, "spec": spec});
        assert_eq!(broken_rules(&pool(json!({}))), Vec::<String>::new());
        let broken =
            pool(json!({"retiredTaints": [{"key": "os", "effect": "NoExecute"}], "runtimeClasses": [{"name": "a"}]}));
        let broken = broken_rules(&broken);
        let begins =
            ["spec.retiredTaints[0]: effect must be NoSchedule", "spec.runtimeClasses[0]: write exactly one of"];
        assert!(begins.iter().all(|begin| broken.iter().any(|error| error.starts_with(begin))), "{broken:#?}");
        assert_eq!(broken.len(), 2, "{broken:#?}");
    }

    #[test]
    fn a_list_is_no_object() {
        let taint = json!({"key": "os", "value": "windows", "effect": "NoSchedule"});
        for (spec, path) in [
            (json!([]), "spec"),
            (json!({"podDefaults": []}), "spec.podDefaults"),
            (json!({"taints": [taint, ["os", "windows", "NoSchedule"]]}), "spec.taints[1]"),
            (json!({"buildNames": [["10.0.29000", "preview"]]}), "spec.buildNames[0]"),
        ] {
            let broken = broken_rules(&json!({"metadata": {"name": "a"}, "spec": spec}));
            assert_eq!(broken.first(), Some(&format!("{path}: is a list; write an object")), "{broken:#?}");
        }
        let spec = json!({"podDefaults": {}, "taints": [taint], "nodeSelector": {"a": "b"}});
        assert_eq!(broken_rules(&json!({"metadata": {"name": "a"}, "spec": spec})), Vec::<String>::new());
    }
}
