//! The CRD in `crds/`, which is generated from the code.

use std::collections::BTreeSet;

use kube_cel::{apply_defaults, compile_schema};
use serde_json::{Value, json};

use super::rules::rules;
use super::{CRD, SCHEMA, pool};
use crate::api::{WindowsPool, WindowsPoolSpec};

#[test]
fn names_and_scope() {
    assert_eq!(CRD["metadata"]["name"], "windowspools.winpool.dev");
    assert_eq!(CRD["spec"]["scope"], "Cluster");
    let names = json!({
        "kind": "WindowsPool", "plural": "windowspools", "singular": "windowspool", "shortNames": ["winpool", "wp"],
    });
    assert_eq!(CRD["spec"]["names"], names);
    let version = &CRD["spec"]["versions"][0];
    assert_eq!(
        (&version["name"], &version["served"], &version["storage"]),
        (&json!("v1alpha1"), &json!(true), &json!(true))
    );
    assert_eq!(version["subresources"], json!({"status": {}}));
}

#[test]
fn printer_columns() {
    let columns: Vec<String> = CRD["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            format!(
                "{} {} {}",
                c["name"].as_str().unwrap(),
                c["type"].as_str().unwrap(),
                c["priority"].as_i64().unwrap_or(0)
            )
        })
        .collect();
    let expected = [
        "Ready string 0",
        "Nodes integer 0",
        "Converged integer 0",
        "Taints string 0",
        "Problem string 0",
        "Mode string 0",
        "Seen date 0",
        "Age date 0",
        "Reason string 1",
        "Classes string 1",
        "Builds string 1",
        "Message string 1",
    ];
    assert_eq!(columns, expected);
}

#[test]
fn a_pool_without_a_spec_gets_the_defaults_of_the_code() {
    assert_eq!(SCHEMA.get("required"), None);
    assert_eq!(SCHEMA["properties"]["spec"]["default"], json!({}));
    let mut bare = pool("{}");
    bare.as_object_mut().unwrap().remove("spec");
    // The API server fills in a default and then the defaults inside it.
    let defaulted = apply_defaults(&SCHEMA, &apply_defaults(&SCHEMA, &bare));
    let read: WindowsPool = serde_json::from_value(defaulted.clone()).unwrap();
    assert_eq!(read.spec, WindowsPoolSpec::default());
    assert_eq!(defaulted["spec"], serde_json::to_value(WindowsPoolSpec::default()).unwrap());
    let undefaulted: WindowsPool = serde_json::from_value(pool("{}")).unwrap();
    assert_eq!(undefaulted.spec, read.spec);
}

#[test]
fn a_class_gets_the_same_defaults_from_the_server_and_from_the_code() {
    let text = "spec: {runtimeClasses: [{name: a, version: '2019'}]}";
    let read = |pool: Value| serde_json::from_value::<WindowsPool>(pool).unwrap().spec;
    assert_eq!(read(apply_defaults(&SCHEMA, &pool(text))), read(pool(text)));
}

#[test]
fn taints_have_no_default_because_omitted_and_written_differ() {
    assert_eq!(SCHEMA["properties"]["spec"]["properties"]["taints"].get("default"), None);
}

#[test]
fn every_field_is_documented() {
    let mut undocumented = Vec::new();
    undocumented_fields("", &SCHEMA, &mut undocumented);
    assert_eq!(undocumented, Vec::<String>::new());
    assert!(SCHEMA["description"].as_str().is_some_and(|text| text.contains("WindowsPool")));
}

fn undocumented_fields(path: &str, schema: &Value, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        undocumented_fields(&path, field, found);
    }
    for part in ["items", "additionalProperties"] {
        if schema[part].is_object() {
            undocumented_fields(&format!("{path}[]"), &schema[part], found);
        }
    }
}

#[test]
fn formats_are_those_that_kubernetes_knows() {
    let mut formats = BTreeSet::new();
    collect_formats(&SCHEMA, &mut formats);
    assert_eq!(formats, ["date-time", "int64"].into());
}

fn collect_formats<'s>(schema: &'s Value, found: &mut BTreeSet<&'s str>) {
    match schema {
        Value::Object(map) => {
            found.extend(map.get("format").and_then(Value::as_str));
            map.values().for_each(|part| collect_formats(part, found));
        }
        Value::Array(list) => list.iter().for_each(|part| collect_formats(part, found)),
        _ => {}
    }
}

#[test]
fn every_rule_compiles_and_has_a_message() {
    assert!(!compile_schema(&SCHEMA).has_errors(), "{:?}", compile_schema(&SCHEMA).compilation_errors());
    let rules = rules(&SCHEMA);
    assert!(rules.len() > 20);
    for (rule, message) in rules {
        assert!(!rule.is_empty() && message.len() > 20, "{rule}: {message:?}");
    }
}

#[test]
fn a_status_fits_its_own_schema() {
    let status = &SCHEMA["properties"]["status"]["properties"];
    let limits = [("taints", 32), ("builds", 32), ("runtimeClasses", 80), ("problems", 10)];
    for (field, limit) in limits {
        assert_eq!(status[field]["maxItems"], limit, "{field}");
    }
    assert_eq!(status["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
}
