//! Patches: their tests and changes, and their failure if the object has changed.

use crate::common::{self, UID, apply, assess, marked, node, policy, pool, read, tainted};
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};
use winpool_core::api::names;
use winpool_core::node::NodePlan;
use winpool_core::plan::patch::{FieldChange, node_patch, runtime_class_patch};
use winpool_core::plan::pools::pool::Policy;

fn patch_of(node: &Value, policy: &Policy) -> Patch {
    let seen = read(node);
    let plan = assess(&seen, policy).plan;
    assert!(!plan.is_empty());
    node_patch(UID, &seen, &plan, policy)
}

/// One operation a line: verb, path, value.
fn text(patch: &Patch) -> String {
    let line = |operation: &PatchOperation| match operation {
        PatchOperation::Test(o) => format!("test    {} {}", o.path, o.value),
        PatchOperation::Add(o) => format!("add     {} {}", o.path, o.value),
        PatchOperation::Replace(o) => format!("replace {} {}", o.path, o.value),
        PatchOperation::Remove(o) => format!("remove  {}", o.path),
        other => panic!("unexpected: {other}"),
    };
    patch.0.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn tested(patch: &Patch) -> Vec<(String, Value)> {
    let test = |operation: &PatchOperation| match operation {
        PatchOperation::Test(o) => Some((o.path.to_string(), o.value.clone())),
        _ => None,
    };
    patch.0.iter().filter_map(test).collect()
}

#[test]
fn a_bare_node() {
    let bare = node("metadata: {labels: {node.kubernetes.io/windows-build: null}}");
    insta::assert_snapshot!(text(&patch_of(&bare, &policy([pool("{}")]))));
}

#[test]
fn a_node_without_annotations() {
    let bare = node("metadata: {annotations: null}");
    insta::assert_snapshot!(text(&patch_of(&bare, &policy([pool("{}")]))));
}

#[test]
fn a_wrong_label_on_a_node_whose_taints_are_right() {
    let taints = json!([
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "os", "value": "Windows", "effect": "NoSchedule"},
    ]);
    let mut wrong = node(&json!({"spec": {"taints": taints}}).to_string());
    wrong["metadata"]["labels"][names::WINDOWS_BUILD] = "10.0.17763".into();
    insta::assert_snapshot!(text(&patch_of(&wrong, &policy([pool("{}")]))));
}

#[test]
fn keys_with_slashes() {
    let pool = pool("spec: {nodeSelector: {kubernetes.azure.com/agentpool: poolws}}");
    let policy = policy([pool, common::pool("{metadata: {name: other}, spec: {nodeSelector: {example.com/team: x}}}")]);
    insta::assert_snapshot!(text(&patch_of(&node("{}"), &policy)));
}

#[test]
fn removal_of_all_marks() {
    let marked = marked(tainted(&["a=b:NoSchedule", "os=windows:NoSchedule"]), "default", &["os=windows:NoSchedule"]);
    insta::assert_snapshot!(text(&patch_of(&marked, &policy([pool("spec: {nodeSelector: {team: nobody}}")]))));
}

#[test]
fn a_migration_from_one_taint_to_another() {
    let old = marked(tainted(&["os=windows:NoSchedule", "a=b:NoSchedule"]), "default", &["os=windows:NoSchedule"]);
    let pool = pool(
        "{spec: {taints: [{key: node.kubernetes.io/os, value: windows, effect: NoSchedule}]}, \
          status: {taints: [{taint: 'os=windows:NoSchedule'}]}}",
    );
    insta::assert_snapshot!(text(&patch_of(&old, &policy([pool]))));
}

#[test]
fn a_patch_tests_all_that_it_was_computed_from() {
    let selectors = policy([
        pool("spec: {nodeSelector: {kubernetes.azure.com/agentpool: poolws}}"),
        pool("{metadata: {name: other}, spec: {nodeSelector: {example.com/team: x}}}"),
    ]);
    let mut wrong = tainted(&["os=windows:NoSchedule"]);
    wrong["metadata"]["labels"][names::WINDOWS_BUILD] = "10.0.17763".into();
    let nodes = [node("{}"), wrong, marked(tainted(&[]), "default", &[])];
    for node in nodes {
        let patch = patch_of(&node, &selectors);
        let label = |key: &str| node["metadata"]["labels"][key].clone();
        let mut expected = vec![
            ("/metadata/uid", json!(UID)),
            ("/spec/taints", node["spec"]["taints"].clone()),
            ("/status/nodeInfo/kernelVersion", json!("10.0.20348.825")),
            ("/metadata/labels/kubernetes.io~1os", json!("windows")),
            ("/metadata/labels/node.kubernetes.io~1windows-build", label(names::WINDOWS_BUILD)),
            ("/metadata/labels/winpool.dev~1pool", label(names::POOL)),
            ("/metadata/labels/example.com~1team", Value::Null),
            ("/metadata/labels/kubernetes.azure.com~1agentpool", json!("poolws")),
            ("/metadata/annotations/winpool.dev~1applied", node["metadata"]["annotations"][names::APPLIED].clone()),
            ("/metadata/annotations/winpool.dev~1ignore", Value::Null),
        ];
        if label(names::WINDOWS_BUILD) == "10.0.20348" {
            expected.remove(2);
        }
        let expected: Vec<_> = expected.into_iter().map(|(path, value)| (path.to_owned(), value)).collect();
        assert_eq!(tested(&patch), expected);
        assert!(!text(&patch).contains("resourceVersion"));
        let first_write = patch.0.iter().position(|o| !matches!(o, PatchOperation::Test(_))).unwrap();
        assert_eq!(first_write, tested(&patch).len(), "tests come first");
    }
}

#[test]
fn the_reported_version_is_tested_only_if_a_label_follows_from_it_or_no_label_tells_it() {
    let label = |node: &Value, build: &str| {
        let mut node = node.clone();
        json_patch::merge(
            &mut node,
            &json!({"metadata": {"labels": {names::WINDOWS_BUILD: serde_json::from_str::<Value>(build).unwrap()}}}),
        );
        node
    };
    let (bare, done) = (node("{}"), marked(tainted(&["os=windows:NoSchedule"]), "default", &["os=windows:NoSchedule"]));
    let (plain, other) = ("{}", "spec: {nodeSelector: {team: nobody}}");
    let compatible = "spec: {runtimeClasses: [{name: apps, version: '2022', hostMatch: Compatible}]}";
    let cases = [
        ("a taint", false, bare.clone(), plain),
        ("a taint, and a report that is no version", false, node("status: {nodeInfo: {kernelVersion: x}}"), plain),
        ("the removal of a taint", false, done.clone(), other),
        ("the removal of a taint from a node with another label", true, label(&done, r#""10.0.1""#), other),
        ("a taint and a build label", true, label(&bare, "null"), plain),
        ("a build label", true, label(&done, "null"), plain),
        ("another build label", true, label(&done, r#""10.0.17763""#), plain),
        ("a capability label", true, done, compatible),
    ];
    for (case, expected, node, spec) in cases {
        let paths: Vec<_> = tested(&patch_of(&node, &policy([pool(spec)]))).into_iter().map(|(path, _)| path).collect();
        let in_status: Vec<_> = paths.iter().filter(|path| path.starts_with("/status")).collect();
        assert_eq!(in_status, if expected { vec!["/status/nodeInfo/kernelVersion"] } else { Vec::new() }, "{case}");
    }
}

#[test]
fn nothing_is_tested_twice() {
    let selects = "spec: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.20348}}";
    let patch = patch_of(&node("{}"), &policy([pool(selects), pool("metadata: {name: other}")]));
    let paths: Vec<_> = tested(&patch).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths.len(), paths.iter().collect::<std::collections::BTreeSet<_>>().len(), "{paths:?}");
}

#[test]
fn a_concurrent_change_to_anything_tested_makes_the_patch_fail() {
    let changes = [
        ("the node was made anew", "metadata: {uid: another}"),
        ("a taint came", "spec: {taints: [{key: a, effect: NoSchedule}, {key: b, effect: NoSchedule}]}"),
        ("a taint went", "spec: {taints: []}"),
        ("all taints went", "spec: {taints: null}"),
        ("a taint got a value", "spec: {taints: [{key: a, value: x, effect: NoSchedule}]}"),
        ("a taint got a time", "spec: {taints: [{key: a, effect: NoSchedule, timeAdded: '2026-01-01T00:00:00Z'}]}"),
        ("Windows was updated", "status: {nodeInfo: {kernelVersion: 10.0.20348.2655}}"),
        ("the system changed", "metadata: {labels: {kubernetes.io/os: linux}}"),
        ("the system label went", "metadata: {labels: {kubernetes.io/os: null}}"),
        ("the build label changed", "metadata: {labels: {node.kubernetes.io/windows-build: 10.0.1}}"),
        ("the pool label came", "metadata: {labels: {winpool.dev/pool: other}}"),
        ("a label that selects changed", "metadata: {labels: {kubernetes.azure.com/agentpool: other}}"),
        ("a label that selects went", "metadata: {labels: {kubernetes.azure.com/agentpool: null}}"),
        ("a label that selects for another pool came", "metadata: {labels: {example.com/team: x}}"),
        ("the ownership annotation came", "metadata: {annotations: {winpool.dev/applied: '{}'}}"),
        ("hands off was said", "metadata: {annotations: {winpool.dev/ignore: 'true'}}"),
        ("all annotations went", "metadata: {annotations: null}"),
    ];
    let policy = policy([
        pool("spec: {nodeSelector: {kubernetes.azure.com/agentpool: poolws}}"),
        pool("{metadata: {name: other}, spec: {nodeSelector: {example.com/team: x}}}"),
    ]);
    let before = node(
        "{spec: {taints: [{key: a, effect: NoSchedule}]}, metadata: {labels: {node.kubernetes.io/windows-build: 10.0.2}}}",
    );
    let patch = patch_of(&before, &policy);
    assert!(apply(&before, &patch).is_ok());
    for (case, change) in changes {
        let mut altered = before.clone();
        json_patch::merge(&mut altered, &common::yaml(change));
        assert!(apply(&altered, &patch).is_err(), "{case}");
    }
    for unrelated in
        ["metadata: {resourceVersion: '7', labels: {x: y}, annotations: {x: y}}", "status: {conditions: []}"]
    {
        let mut altered = before.clone();
        json_patch::merge(&mut altered, &common::yaml(unrelated));
        assert!(apply(&altered, &patch).is_ok(), "{unrelated}");
    }
}

#[test]
fn annotations_that_came_meanwhile_are_not_overwritten() {
    let patch = patch_of(&node("metadata: {annotations: null}"), &policy([pool("{}")]));
    assert!(apply(&node("metadata: {annotations: {other: x}}"), &patch).is_err());
    assert!(apply(&node("{}"), &patch).is_err());
}

#[test]
fn either_part_of_a_plan_can_be_sent_alone() {
    let bare = node("metadata: {labels: {node.kubernetes.io/windows-build: null}}");
    let policy = policy([pool("{}")]);
    let seen = read(&bare);
    let whole = assess(&seen, &policy).plan;
    let [label, rest] = whole.parts();
    assert_eq!(NodePlan { windows_build: label.windows_build.clone(), ..rest.clone() }, whole);
    for part in [label, rest] {
        let after = apply(&bare, &node_patch(UID, &seen, &part, &policy)).unwrap();
        let left = assess(&read(&after), &policy).plan;
        assert!(!left.is_empty() && left != whole);
        let done = apply(&after, &node_patch(UID, &read(&after), &left, &policy)).unwrap();
        assert!(assess(&read(&done), &policy).plan.is_empty());
        assert_eq!(done, common::converge(&bare, &policy));
    }
}

#[test]
fn a_class_patch_tests_the_uid_and_replaces_the_resource_version() {
    let changes = [
        FieldChange { path: vec!["scheduling"], to: json!({"nodeSelector": {"a": "b"}}) },
        FieldChange { path: vec!["overhead"], to: Value::Null },
        FieldChange { path: vec!["metadata", "labels", names::POOL], to: json!("default") },
    ];
    insta::assert_snapshot!(text(&runtime_class_patch("class-uid", "77", &changes)));
}
