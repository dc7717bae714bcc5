//! The limits that only the schema has: sizes and enumerations. The operator refuses what they refuse.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{SCHEMA, pool, refused_by_operator, refused_by_rules};

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

fn text(length: usize) -> String {
    "a".repeat(length)
}

fn map(size: usize, value: &str) -> Value {
    (0..size).map(|n| (format!("k{n}"), json!(value))).collect::<Map<_, _>>().into()
}

fn list(size: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..size).map(item).collect()
}

/// A name with as long a prefix as `length` allows, which is 253 characters, and a slash.
fn key(length: usize) -> String {
    if length <= 63 {
        text(length)
    } else {
        format!("{}/{}", text((length - 2).min(253)), text(length - 254.min(length - 1)))
    }
}

/// A spec in which the bounded thing at `path` has this size.
fn of_size(path: &str, size: usize) -> Value {
    let taint = |n: usize| json!({"key": format!("k{n}"), "effect": "NoSchedule"});
    let class = |part: &str, value: Value| {
        let mut class = json!({"name": "a", "version": "2019", part: value});
        if part == "build" {
            class.as_object_mut().unwrap().remove("version");
        }
        json!({"runtimeClasses": [class]})
    };
    let part = path.rsplit('.').next().unwrap();
    match path {
        "spec.taints" | "spec.retiredTaints" => json!({"taintPolicy": "TaintOnly", part: list(size, taint)}),
        "spec.buildNames" => {
            json!({part: list(size, |n| json!({"build": format!("10.0.{}", n + 1), "version": format!("v{n}")}))})
        }
        "spec.runtimeClasses" => json!({part: list(size, |n| json!({"name": format!("c{n}"), "version": "2019"}))}),
        "spec.nodeSelector" => json!({part: map(size, "x")}),
        "spec.podDefaults.runtimeClassName" => json!({"podDefaults": {part: text(size)}}),
        "spec.nodeSelector{}" => json!({"nodeSelector": {"a": text(size)}}),
        "spec.runtimeClassNameFormat" if size < 9 => json!({part: "{version"}),
        "spec.runtimeClassNameFormat" => json!({part: format!("{}{{version}}", text(size - 9))}),
        "spec.taints[].key" => {
            json!({"taintPolicy": "TaintOnly", "taints": [{"key": key(size), "effect": "NoSchedule"}]})
        }
        "spec.taints[].value" => {
            json!({"taintPolicy": "TaintOnly", "taints": [{"key": "a", "value": text(size), "effect": "NoSchedule"}]})
        }
        "spec.taints[].effect" => json!({"taintPolicy": "TaintOnly", "taints": [{"key": "a", "effect": text(size)}]}),
        "spec.retiredTaints[].key" => json!({"retiredTaints": [{"key": key(size), "effect": "NoSchedule"}]}),
        "spec.retiredTaints[].value" => {
            json!({"retiredTaints": [{"key": "a", "value": text(size), "effect": "NoSchedule"}]})
        }
        "spec.retiredTaints[].effect" => json!({"retiredTaints": [{"key": "a", "effect": text(size)}]}),
        "spec.buildNames[].build" => {
            json!({"buildNames": [{"build": format!("10.0.{}", "1".repeat(size - 5)), "version": "a"}]})
        }
        "spec.buildNames[].version" => json!({"buildNames": [{"build": "10.0.29000", "version": text(size)}]}),
        "spec.runtimeClasses[].build" => class(part, json!(format!("10.0.{}", "1".repeat(size - 5)))),
        "spec.runtimeClasses[].version" => {
            json!({"buildNames": [{"build": "10.0.1", "version": text(size)}], "runtimeClasses": [{"name": "a", "version": text(size)}]})
        }
        "spec.runtimeClasses[].name" | "spec.runtimeClasses[].handler" | "spec.runtimeClasses[].architecture" => {
            class(part, json!(text(size)))
        }
        "spec.runtimeClasses[].nodeSelector" => class(part, map(size, "x")),
        "spec.runtimeClasses[].nodeSelector{}" => class("nodeSelector", json!({"a": text(size)})),
        "spec.runtimeClasses[].tolerations" => class(part, list(size, |_| json!({"operator": "Exists"}))),
        "spec.runtimeClasses[].tolerations[].key" => class("tolerations", json!([{"key": key(size)}])),
        "spec.runtimeClasses[].tolerations[].value" => class("tolerations", json!([{"key": "a", "value": text(size)}])),
        "spec.runtimeClasses[].tolerations[].effect" => {
            class("tolerations", json!([{"key": "a", "effect": text(size)}]))
        }
        "spec.runtimeClasses[].tolerations[].operator" => {
            class("tolerations", json!([{"key": "a", "operator": text(size)}]))
        }
        "spec.runtimeClasses[].overhead.podFixed" => {
            let amounts = (0..size).map(|n| (format!("example.com/k{n}"), json!("1"))).collect::<Map<_, _>>();
            class("overhead", json!({"podFixed": amounts}))
        }
        "spec.runtimeClasses[].overhead.podFixed{}" => {
            class("overhead", json!({"podFixed": {"memory": "0".repeat(size)}}))
        }
        _ => panic!("no pool for the bound of {path}"),
    }
}

fn refusals(path: &str, size: usize) -> Vec<String> {
    refused_by_operator(&pool(&json!({"spec": of_size(path, size)}).to_string()))
}

#[test]
fn the_operator_refuses_what_is_larger_than_the_schema_allows() {
    // Nothing that long is valid: their rules are narrower than their bounds.
    let never_valid = [
        "spec.taints[].effect",
        "spec.retiredTaints[].effect",
        "spec.buildNames[].build",
        "spec.runtimeClasses[].build",
        "spec.runtimeClasses[].tolerations[].effect",
        "spec.runtimeClasses[].tolerations[].operator",
    ];
    let bounds = bounds();
    assert!(bounds.len() > 30, "{bounds:#?}");
    for ((path, keyword), limit) in bounds {
        let beyond = if keyword == "minLength" { limit - 1 } else { limit + 1 };
        assert!(!refusals(&path, beyond).is_empty(), "{path}: {keyword} {limit}");
        if !never_valid.contains(&path.as_str()) {
            assert_eq!(refusals(&path, limit), Vec::<String>::new(), "{path}: {keyword} {limit}");
            let pool = pool(&json!({"spec": of_size(&path, limit)}).to_string());
            assert_eq!(refused_by_rules(&pool), Vec::<String>::new(), "{path}: {keyword} {limit}");
        }
    }
}

#[test]
fn a_prefix_of_a_key_has_at_most_253_characters() {
    for (length, valid) in [(253, true), (254, false)] {
        let key = format!("{}/a", text(length));
        for spec in [
            json!({"taintPolicy": "TaintOnly", "taints": [{"key": key, "effect": "NoSchedule"}]}),
            json!({"retiredTaints": [{"key": key, "effect": "NoSchedule"}]}),
            json!({"nodeSelector": {(key.as_str()): "a"}}),
            json!({"runtimeClasses": [{"name": "a", "version": "2019", "nodeSelector": {(key.as_str()): "a"}}]}),
        ] {
            let pool = pool(&json!({"spec": spec}).to_string());
            assert_eq!(refused_by_rules(&pool).is_empty(), valid, "{length}: {spec}");
            assert_eq!(refused_by_operator(&pool).is_empty(), valid, "{length}: {spec}");
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
fn values_outside_an_enumeration_or_type_are_refused() {
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
        "spec: {runtimeClasses: [{name: a, version: '2019', overhead: {podFixed: {memory: lots}}}]}",
        "spec: {runtimeClasses: [{name: a, version: '2019', overhead: {podFixed: {memory: -1Gi}}}]}",
        "spec: {runtimeClasses: [{name: a, version: '2019', overhead: {podFixed: {memory: -1}}}]}",
        "spec: {runtimeClasses: [{name: a, version: '2019', overhead: {podFixed: {example.com/gpu: 500m}}}]}",
    ];
    for text in refused {
        assert!(!refused_by_operator(&pool(text)).is_empty(), "{text}");
    }
    assert_eq!(SCHEMA["properties"]["spec"]["properties"]["mode"]["enum"], json!(["Enforce", "DryRun"]));
}
