//! The CRD: the schema of the types in [`winpool_core::api`], and what the API server checks beyond types.

mod rules;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;
use serde_json::json;
use winpool_core::api::WindowsPool;

use rules::{KEYS, RULES, SIZES};

/// The columns of `kubectl get`: name, type, path, and 1 for those that only `--output wide` shows.
const COLUMNS: [(&str, &str, &str, i32); 9] = [
    ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", 0),
    ("Nodes", "integer", ".status.nodes.selected", 0),
    ("Converged", "integer", ".status.nodes.converged", 0),
    ("Mode", "string", ".spec.mode", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Reason", "string", ".status.conditions[?(@.type=='Ready')].reason", 1),
    ("Classes", "string", ".status.summary.runtimeClasses", 1),
    ("Builds", "string", ".status.summary.builds", 1),
    ("Message", "string", ".status.conditions[?(@.type=='Ready')].message", 1),
];

/// The CRD, as in `crds/`.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = WindowsPool::crd();
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(COLUMNS.map(column).to_vec());
        if let Some(root) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            simplify(root);
            restrict(root);
        }
    }
    crd
}

fn column((name, type_, path, priority): (&str, &str, &str, i32)) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        priority: (priority > 0).then_some(priority),
        ..CustomResourceColumnDefinition::default()
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

fn restrict(root: &mut JSONSchemaProps) {
    // A pool without a spec is the normal case, but the derive makes `spec` required and without a default.
    root.required = None;
    change(root, "spec", |spec| spec.default = Some(JSON(json!({}))));
    // The value is a key of this list, and keys need a default.
    change(root, "spec.retiredTaints[].value", |value| value.default = Some(JSON(json!(""))));
    change(root, "spec.runtimeClasses[].version", |version| {
        let description = version.description.take();
        *version = JSONSchemaProps { description, ..int_or_string() };
    });
    // No rule may read these values: Kubernetes 1.33 takes each to be as long as a request may be, whatever maxLength says, and
    // then refuses the rule as too costly. That extended resources come in whole numbers is left to the operator.
    change(root, "spec.runtimeClasses[].overhead.podFixed{}", |amount| {
        let pattern = "^[+]?([0-9]+([.][0-9]*)?|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$".to_owned();
        *amount = JSONSchemaProps { minimum: Some(0.0), pattern: Some(pattern), ..int_or_string() };
    });
    for (path, least, most) in SIZES {
        change(root, path, |schema| set_size(schema, *least, *most));
    }
    for (path, keys) in KEYS {
        change(root, path, |list| {
            list.x_kubernetes_list_type = Some(if keys.is_empty() { "set" } else { "map" }.to_owned());
            list.x_kubernetes_list_map_keys = Some(keys.iter().map(|key| (*key).to_owned()).collect());
            list.x_kubernetes_list_map_keys.take_if(|keys| keys.is_empty());
        });
    }
    for rule in RULES {
        let add = |schema: &mut JSONSchemaProps| {
            let (rule, message) = (rule.rule(), Some(rule.message()));
            let validation = ValidationRule { rule, message, ..ValidationRule::default() };
            schema.x_kubernetes_validations.get_or_insert_default().push(validation);
        };
        change(root, rule.path, add);
        if rule.path == "spec.taints[]" {
            change(root, "spec.retiredTaints[]", add);
        }
    }
}

fn int_or_string() -> JSONSchemaProps {
    let x_kubernetes_int_or_string = Some(true);
    JSONSchemaProps { x_kubernetes_int_or_string, max_length: Some(32), ..JSONSchemaProps::default() }
}

fn set_size(schema: &mut JSONSchemaProps, least: Option<i64>, most: i64) {
    match schema.type_.as_deref() {
        Some("array") => schema.max_items = Some(most),
        Some("object") => schema.max_properties = Some(most),
        _ => (schema.min_length, schema.max_length) = (least, Some(most)),
    }
}

/// Changes the schema at this path, such as `spec.taints[].key`: `[]` are the items of a list, `{}` the values of a map.
fn change(root: &mut JSONSchemaProps, path: &str, change: impl FnOnce(&mut JSONSchemaProps)) {
    let mut schema = Some(root);
    for name in path.split('.').filter(|name| !name.is_empty()) {
        let field = name.trim_end_matches(['[', ']', '{', '}']);
        schema = schema.and_then(|schema| schema.properties.as_mut()?.get_mut(field));
        if name.ends_with("[]") {
            schema = schema.and_then(|schema| match schema.items.as_mut()? {
                JSONSchemaPropsOrArray::Schema(items) => Some(items.as_mut()),
                JSONSchemaPropsOrArray::Schemas(_) => None,
            });
        } else if name.ends_with("{}") {
            schema = schema.and_then(|schema| match schema.additional_properties.as_mut()? {
                JSONSchemaPropsOrBool::Schema(values) => Some(values.as_mut()),
                JSONSchemaPropsOrBool::Bool(_) => None,
            });
        }
    }
    if let Some(schema) = schema {
        change(schema);
    }
}
