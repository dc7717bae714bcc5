//! Rules about the pod spec alone.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use winpool_analysis::finding::{Consequence, Severity};
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::{Facts, rule, rules};
use winpool_analysis::view::View;

use super::examples::{examples, windows};
use super::{broken, findings, workload};

/// Rules that are always broken together.
const TOGETHER: [(&str, &[&str]); 3] = [
    ("secret-volume-mode", &["secret-volume"]),
    ("huge-pages", &["resources-missing"]),
    ("memory-limit-missing", &["resources-missing"]),
];

#[test]
fn each_rule_finds_its_examples_and_nothing_similar() {
    let facts = Facts::none();
    for (id, examples) in examples() {
        let beside = TOGETHER.iter().find(|(rule, _)| *rule == id).map_or(&[][..], |(_, beside)| *beside);
        for spec in examples.breaks {
            let mut found: BTreeSet<String> = broken("Pod", &windows(&spec), &facts).into_iter().collect();
            assert!(found.remove(&id), "{id}: {spec} breaks {found:?}");
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
fn every_rule_has_an_example() {
    let examples = examples();
    let elsewhere = super::placement::TESTED.into_iter().chain(super::images::TESTED).chain(super::objects::TESTED);
    let elsewhere = elsewhere.chain(super::wellformed::TESTED).chain(super::linux::TESTED);
    let elsewhere = elsewhere.chain(super::gmsa::TESTED).chain(super::admission::TESTED).chain(super::related::TESTED);
    let tested: BTreeSet<&str> = examples.keys().map(String::as_str).chain(elsewhere).collect();
    let all: BTreeSet<&str> = rules().map(|rule| rule.id).collect();
    assert_eq!(all.difference(&tested).collect::<Vec<_>>(), [&""; 0], "add them to examples.yaml");
    assert_eq!(tested.difference(&all).collect::<Vec<_>>(), [&""; 0], "there are no such rules");
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
    for (id, examples) in examples() {
        let Some(rule) = rule(&id).filter(|rule| rule.without_os.is_some()) else { continue };
        for spec in examples.breaks {
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
