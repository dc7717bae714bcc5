//! The limits that only the schema has: sizes and enumerations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{SCHEMA, pool, refused_by_rules};
use crate::api::WindowsPool;

/// The largest lists, maps and texts that a spec may have, by path and keyword.
fn bounds() -> BTreeMap<(String, &'static str), usize> {
    let mut found = BTreeMap::new();
    collect("spec", &SCHEMA["properties"]["spec"], &mut found);
    found
}

fn collect(path: &str, schema: &Value, found: &mut BTreeMap<(String, &'static str), usize>) {
    for keyword in ["maxItems", "maxLength", "minLength", "maxProperties"] {
        if let Some(limit) = schema[keyword].as_u64() {
            found.insert((path.to_owned(), keyword), usize::try_from(limit).unwrap());
        }
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        collect(&format!("{path}.{name}"), property, found);
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[part].is_object() {
            collect(&format!("{path}{mark}"), &schema[part], found);
        }
    }
}

#[test]
fn a_prefix_of_a_key_has_at_most_253_characters() {
    for (length, valid) in [(253, true), (254, false)] {
        let key = format!("{}/a", "a".repeat(length));
        for spec in [
            json!({"taintPolicy": "TaintOnly", "taints": [{"key": key, "effect": "NoSchedule"}]}),
            json!({"retiredTaints": [{"key": key, "effect": "NoSchedule"}]}),
            json!({"nodeSelector": {(key.as_str()): "a"}}),
            json!({"runtimeClasses": [{"name": "a", "version": "2019", "nodeSelector": {(key.as_str()): "a"}}]}),
        ] {
            let pool = pool(&json!({"spec": spec}).to_string());
            assert_eq!(refused_by_rules(&pool).is_empty(), valid, "{length}: {spec}");
        }
    }
}

/// The API server refuses a schema whose rules might cost too much, and counts what has no bound as endless.
fn is_enum(path: &str) -> bool {
    [
        "spec.mode",
        "spec.taintPolicy",
        "spec.runtimeClassDiscovery",
        "spec.runtimeClassHostMatch",
        "spec.deletionPolicy",
        "spec.runtimeClasses[].isolation",
        "spec.runtimeClasses[].hostMatch",
    ]
    .contains(&path)
}

#[test]
fn everything_that_rules_read_is_bounded() {
    let bounds = bounds();
    let mut open = Vec::new();
    walk("spec", &SCHEMA["properties"]["spec"], &mut |path, schema| {
        let keyword = match schema["type"].as_str() {
            Some("string") => "maxLength",
            _ if schema["x-kubernetes-int-or-string"] == true => "maxLength",
            Some("array") => "maxItems",
            Some("object") if schema["additionalProperties"].is_object() => "maxProperties",
            _ => return,
        };
        if !is_enum(path) && !bounds.contains_key(&(path.to_owned(), keyword)) {
            open.push(path.to_owned());
        }
    });
    assert_eq!(open, Vec::<String>::new());
    assert!(bounds.len() > 30, "{bounds:#?}");
}

fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, visit);
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[part].is_object() {
            walk(&format!("{path}{mark}"), &schema[part], visit);
        }
    }
}

#[test]
fn values_outside_an_enumeration_or_type_cannot_be_read() {
    let refused = [
        "spec: {mode: Maybe}",
        "spec: {mode: enforce}",
        "spec: {runtimeClassDiscovery: 'yes'}",
        "spec: {runtimeClassHostMatch: exact}",
        "spec: {taints: [{key: a}]}",
        "spec: {taints: [{effect: NoSchedule}]}",
        "spec: {buildNames: [{build: 10.0.1}]}",
        "spec: {runtimeClasses: [{version: '2019'}]}",
        "spec: {nodeSelector: {a: 1}}",
    ];
    for text in refused {
        assert!(serde_json::from_value::<WindowsPool>(pool(text)).is_err(), "{text}");
    }
    assert_eq!(SCHEMA["properties"]["spec"]["properties"]["mode"]["enum"], json!(["Enforce", "DryRun"]));
}
