//! Remedies of rules, applied: the rule is kept, and no other is broken that was kept before.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::{Value, json};
use winpool_analysis::explain::pod::answer_template;
use winpool_analysis::finding::Finding;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::lint::{Facts, rules};
use winpool_analysis::remedy::Rank;
use winpool_analysis::view::Node;
use winpool_core::pod::Class;

use super::example_remedies::{Case, cases};
use super::examples::{Examples, examples, windows};
use super::placement::{CLUSTER_TAINT, class};
use super::{findings, workload};

use crate::cluster;

/// Rules whose remedy is no change of the workload, or none that is always the same.
const ELSEWHERE: [&str; 31] = [
    // On the nodes, or in another object.
    "node-name-unsuitable",
    "secret-volume",
    "termination-grace-period",
    "gmsa-credential-spec-missing",
    "gmsa-use-not-allowed",
    "gmsa-webhook-missing",
    "gmsa-object-malformed",
    "service-session-affinity",
    "service-ip-family",
    "service-local-traffic",
    "node-version-skew",
    "node-reserved-memory",
    "node-pause-image",
    "runtime-handler-missing",
    "namespace-selector-conflict",
    "pod-security-refused",
    "host-process-user",
    "queue-starts-none",
    "queue-unknown",
    "volume-file-system",
    // In the image or its registry.
    "image-for-another-os",
    "image-without-variant",
    "image-variant-for-some-nodes",
    "image-newer-than-node",
    "image-platforms-unknown",
    // In what the API server does not decode.
    "api-version-removed",
    "field-type",
    "pod-template-missing",
    // In a cluster of EKS, tested with the rule.
    "eks-address-missing",
    // Annotations beside the pod spec.
    "isolation-annotation",
    "linux-sidecar-injected",
];

fn classes() -> [Value; 2] {
    [class("windows-2019", "10.0.17763"), class("windows-2022", "10.0.20348")]
}

/// The same cluster for `why`.
fn machines(case: &Case) -> Vec<Node> {
    let taint = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let node = |name: &str, system: &str, build: Option<&str>| {
        let labels = json!({"kubernetes.io/os": system, "kubernetes.io/arch": "amd64"});
        let mut node = json!({"metadata": {"name": name, "labels": labels}, "spec": {}});
        if let Some(build) = build {
            node["metadata"]["labels"]["node.kubernetes.io/windows-build"] = json!(build);
            node["spec"]["taints"] = if case.cluster == "open" { json!([]) } else { taint.clone() };
        }
        crate::machine(&node)
    };
    vec![
        node("linux-1", "linux", None),
        node("win-2019", "windows", Some("10.0.17763")),
        node("win-2022", "windows", Some("10.0.20348")),
    ]
}

/// The cluster of a case: nodes of two builds.
pub fn facts(name: &str) -> Facts {
    let taints: &[&str] = if name == "open" { &[] } else { CLUSTER_TAINT };
    let nodes = [("10.0.17763", taints), ("10.0.20348", taints)];
    match name {
        "none" => Facts::none(),
        "open" => super::cluster(&nodes, &[], &[]),
        _ => super::cluster(&nodes, &[json!({})], &classes()),
    }
}

fn found(kind: &str, spec: &Value, facts: &Facts) -> Vec<Finding> {
    findings(&workload(kind, &windows(spec)), facts)
}

fn names(found: &[Finding]) -> BTreeSet<&str> {
    found.iter().map(|finding| finding.rule.as_str()).collect()
}

#[test]
fn each_remedy_of_the_table_helps_and_breaks_no_other_rule() {
    for case in cases() {
        let facts = facts(&case.cluster);
        let before = found(&case.kind, &case.before, &facts);
        let told: Vec<&str> = before.iter().filter(|f| f.rule == case.rule).map(|f| f.remedy.text.as_str()).collect();
        assert!(told.iter().any(|remedy| remedy.starts_with(&case.remedy)), "{case:?}: {before:#?}");
        let after = found(&case.kind, &case.after, &facts);
        assert!(!names(&after).contains(case.rule.as_str()), "{case:?}: {after:#?}");
        let new: Vec<_> = names(&after).difference(&names(&before)).copied().map(str::to_owned).collect();
        assert!(new.is_empty(), "{case:?}: {new:?}");
        assert_eq!(case.refused, names(&after).contains("class-not-found"), "{case:?}: {after:#?}");
    }
}

#[test]
fn why_puts_a_remedied_pod_where_the_table_says() {
    let class = |class: Value| {
        let class: RuntimeClass = serde_json::from_value(class).unwrap();
        (class.metadata.name.clone().unwrap(), Class::from(&class))
    };
    let classes: BTreeMap<String, Class> = classes().map(class).into();
    for case in cases().iter().filter(|case| !case.lands.is_empty()) {
        let object = workload("Deployment", &windows(&case.after));
        let kind = WorkloadKind::own("Deployment").unwrap();
        let read = crate::workload_of(kind, object);
        let machines = machines(case);
        let told = answer_template(kind, &read, &[], &cluster(&machines, &classes));
        let possible = told.nodes.iter().filter(|node| node.possible).map(|node| node.name.as_str());
        assert_eq!(possible.collect::<Vec<_>>(), case.lands, "{case:?}: {told:#?}");
        assert!(told.nodes.iter().all(|node| !node.possible || node.starts != Some(false)), "{case:?}: {told:#?}");
        assert_eq!(told.remedy, None, "{case:?}");
    }
}

/// Makes the change.
fn fix(object: &mut Value, finding: &Finding, template: &str) {
    let patch = finding.remedy.json_patch(object, template);
    json_patch::patch(object, &patch).unwrap();
}

#[test]
fn the_edits_of_a_workload_help_and_break_no_other_rule() {
    let mut applied = BTreeSet::new();
    for case in cases() {
        let (facts, mut object) = (facts(&case.cluster), workload(&case.kind, &windows(&case.before)));
        let template = if object["spec"]["template"].is_object() { "/spec/template" } else { "" };
        let before = findings(&object, &facts);
        let is_certain = |finding: &&Finding| finding.remedy.rank == Rank::Certain;
        let fixed: Vec<&Finding> = before.iter().filter(is_certain).collect();
        for finding in &fixed {
            fix(&mut object, finding, template);
        }
        let after = findings(&object, &facts);
        let names = |found: Vec<&Finding>| found.into_iter().map(|f| f.rule.clone()).collect::<BTreeSet<_>>();
        let (before, after, fixed) = (names(before.iter().collect()), names(after.iter().collect()), names(fixed));
        assert!(after.is_disjoint(&fixed), "{case:?} {object:#}: {after:?}");
        assert!(after.is_subset(&before), "{case:?} {object:#}: {after:?}");
        applied.extend(fixed);
    }
    assert!(applied.len() > 12, "{applied:?}");
}

#[test]
fn a_field_that_has_to_be_removed_is_the_only_one() {
    let (facts, in_table) = (Facts::none(), cases().into_iter().map(|case| case.rule).collect::<BTreeSet<_>>());
    let mut applied = BTreeSet::new();
    for Examples { rule, breaks, .. } in examples() {
        let id = rule.id.to_owned();
        if in_table.contains(&id) || !rule.remedy.starts_with("remove it") {
            continue;
        }
        for spec in breaks {
            let mut object = workload("Pod", &windows(&spec));
            let before = findings(&object, &facts);
            for finding in before.iter().filter(|finding| finding.rule == id) {
                assert!(!finding.remedy.edits.is_empty(), "{finding:?}");
                fix(&mut object, finding, "");
            }
            let after = findings(&object, &facts);
            assert!(!names(&after).contains(id.as_str()), "{id}: {after:#?}");
            assert!(names(&after).is_subset(&names(&before)), "{id}: {spec} {after:#?}");
            applied.insert(id.clone());
        }
    }
    let all: BTreeSet<String> = rules().map(|rule| rule.id.to_owned()).collect();
    let elsewhere = ELSEWHERE.into_iter().map(str::to_owned).collect();
    let covered: BTreeSet<String> = &(&applied | &in_table) | &elsewhere;
    assert_eq!(all.difference(&covered).collect::<Vec<_>>(), Vec::<&String>::new(), "add them to remedies.yaml");
    assert_eq!(covered.difference(&all).collect::<Vec<_>>(), Vec::<&String>::new(), "there are no such rules");
    assert!(elsewhere.is_disjoint(&(&applied | &in_table)));
}
