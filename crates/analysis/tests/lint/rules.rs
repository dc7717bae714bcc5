//! Rules about the pod spec alone.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use winpool_analysis::finding::{Consequence, Severity};
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::{Facts, rule, rules};
use winpool_analysis::view::View;

use super::examples::{Examples, examples, of, windows};
use super::{broken, findings, remedies, workload};

/// Rules that are always broken together.
const TOGETHER: [(&str, &[&str]); 3] = [
    ("secret-volume-mode", &["secret-volume"]),
    ("huge-pages", &["resources-missing"]),
    ("memory-limit-missing", &["resources-missing"]),
];

/// Rules about what registries, nodes and queues say, which no pod shows.
const BESIDE_THE_POD: [&str; 7] = [
    "node-name-unsuitable",
    "image-for-another-os",
    "image-without-variant",
    "image-variant-for-some-nodes",
    "image-newer-than-node",
    "image-platforms-unknown",
    "queue-unknown",
];

#[test]
fn each_rule_finds_its_examples_and_nothing_similar() {
    let facts = Facts::none();
    for examples in examples() {
        let id = examples.rule.id;
        let beside = TOGETHER.iter().find(|(rule, _)| *rule == id).map_or(&[][..], |(_, beside)| *beside);
        for spec in examples.breaks {
            let mut found: BTreeSet<String> = broken("Pod", &windows(&spec), &facts).into_iter().collect();
            assert!(found.remove(id), "{id}: {spec} breaks {found:?}");
            found.retain(|other| !beside.contains(&other.as_str()));
            assert_eq!(found, BTreeSet::new(), "{id}: {spec}");
        }
        for spec in examples.keeps {
            let found = broken("Pod", &windows(&spec), &facts);
            assert!(found.is_empty(), "{id}: {spec} breaks {found:?}");
        }
    }
}

#[test]
fn each_rule_about_nodes_or_classes_finds_its_examples_in_a_cluster() {
    let clusters = ["cluster", "open"].map(remedies::facts);
    for rule in rules() {
        for spec in of(rule, "Breaks in a known cluster") {
            let pod = windows(&spec);
            let broken =
                clusters.iter().flat_map(|facts| ["Deployment", "DaemonSet"].map(|kind| broken(kind, &pod, facts)));
            let broken: Vec<_> = broken.collect();
            assert!(broken.iter().any(|broken| broken == &[rule.id]), "{}: {spec} breaks {broken:?}", rule.id);
        }
    }
}

#[test]
fn every_rule_has_an_example() {
    let without = rules().filter(|rule| !rule.examples().any(|(label, _)| label.starts_with("Breaks")));
    assert_eq!(without.map(|rule| rule.id).collect::<Vec<_>>(), BESIDE_THE_POD);
    for rule in rules() {
        let is_label = |label: &str| label.starts_with("Breaks") || label.starts_with("Keeps");
        let read = rule.examples().filter(|(label, _)| is_label(label)).count();
        assert!(!rule.comment.contains('|'), "{}: it ends a cell", rule.id);
        assert_eq!(read, rule.comment.matches("\n - ").count(), "{}", rule.id);
    }
}

#[test]
fn names_are_unique_and_in_kebab_case() {
    let names: Vec<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    for rule in rules() {
        assert!(rule.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", rule.id);
        for text in [rule.field, rule.reason, rule.remedy] {
            let is_plain = !text.is_empty() && !text.ends_with('.') && !text.contains("  ") && !text.contains('|');
            assert!(is_plain, "{}: {text}", rule.id);
        }
    }
    assert_eq!(rule("host-pid").map(|rule| rule.id), Some("host-pid"));
    assert!(rule("").is_none());
}

#[test]
fn without_os_name_nothing_is_refused_and_the_fields_do_nothing() {
    for Examples { rule, breaks, .. } in examples().filter(|examples| examples.rule.without_os.is_some()) {
        let id = rule.id;
        for spec in breaks {
            let named = windows(&spec);
            let mut unnamed = named.clone();
            unnamed["os"] = Value::Null;
            for (spec, verdict) in [(named, rule.verdict), (unnamed, rule.verdict_without_os())] {
                let found = findings(&workload("Deployment", &spec), &Facts::none());
                let finding = found.iter().find(|finding| finding.rule == id).unwrap();
                assert_eq!((finding.severity, finding.consequence), (verdict.0, verdict.1), "{id}");
            }
            assert_eq!((rule.verdict.0, rule.verdict.1), (Severity::Error, Consequence::Rejected), "{id}");
        }
    }
}

#[test]
fn a_rule_holds_for_its_kubernetes_versions() {
    let spec = windows(&json!({"resources": {}, "hostPID": true}));
    let of = |minor| {
        broken(
            "Pod",
            &spec,
            &Facts::of(&View { kubernetes: Some(KubernetesVersion { major: 1, minor }), ..View::default() }),
        )
    };
    assert_eq!(of(33), ["host-pid"]);
    assert_eq!(of(34), ["host-pid", "pod-resources"]);
}

#[test]
fn a_finding_names_object_field_and_remedy() {
    let spec = windows(&json!({"initContainers": [{"name": "i", "securityContext": {"runAsUser": 0}}]}));
    insta::assert_yaml_snapshot!(findings(&workload("Deployment", &spec), &Facts::none()), @r#"
    - rule: container-run-as-user
      severity: error
      consequence: Rejected
      object:
        kind: Deployment
        namespace: shop
        name: web
      field: "spec.template.spec.initContainers[0].securityContext.runAsUser"
      message: "runAsUser cannot be set for a Windows pod, not even to its default value"
      remedy:
        text: "remove it: Windows has user names: use securityContext.windowsOptions.runAsUserName"
        rank: Certain
        edits:
          - op: remove
            path: /spec/initContainers/0/securityContext/runAsUser
    "#);
}

#[test]
fn pods_for_linux_are_left_alone() {
    let spec = json!({
        "os": {"name": "linux"}, "hostPID": true, "securityContext": {"runAsUser": 0, "seLinuxOptions": {}},
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
    });
    assert_eq!(broken("DaemonSet", &spec, &Facts::none()), [""; 0]);
}
