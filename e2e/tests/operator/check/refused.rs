//! `check` reports Rejected exactly where the API server refuses a field.

use std::collections::BTreeSet;

use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use winpool_analysis::finding::Consequence;
use winpool_analysis::lint::Facts;
use winpool_e2e::servers::lending::lend;
use winpool_e2e::servers::version::Feature;

use super::generated::{self, FIELDS};
use super::{Answer, create, create_all, examples, facts, findings, set, workload};

const PODS: usize = 1500;

/// Before, their template is not looked at, and only their pods are refused.
const STATEFUL_SETS: Feature<'_> = Feature { name: "the validation of a StatefulSet's template", since: 34 };

/// The fields that the API server says are not for this system, names of credential specs, and its rules for
/// host-process containers.
pub(super) fn refused(answer: &Answer) -> BTreeSet<String> {
    let causes = answer.body["details"]["causes"].as_array().into_iter().flatten();
    let known = causes.filter_map(|cause| {
        let (message, field) = (cause["message"].as_str()?, cause["field"].as_str()?);
        let is_about = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
        if is_about(&["hostProcess value must be identical"]) {
            Some("host-process-contradicts-pod".to_owned())
        } else if is_about(&["all containers must be HostProcess containers"]) {
            Some("host-process-mixed".to_owned())
        } else if is_about(&["hostNetwork must be true"]) {
            Some("host-process-without-host-network".to_owned())
        } else if field.ends_with("gmsaCredentialSpecName") {
            is_about(&["RFC 1123 subdomain"]).then(|| field.to_owned())
        } else {
            is_about(&["for a windows pod", "for a linux pod"]).then(|| field.to_owned())
        }
    });
    known.collect()
}

fn expected(object: &Value, facts: &Facts) -> BTreeSet<String> {
    let rejected = findings(object, facts).into_iter().filter(|finding| finding.consequence == Consequence::Rejected);
    set(rejected.map(|finding| if finding.rule.starts_with("host-process") { finding.rule } else { finding.field }))
}

fn agrees(object: &Value, answer: &Answer, facts: &Facts) {
    assert_ne!(answer.code, 400, "{object}: {}", answer.body);
    assert_eq!(refused(answer), expected(object, facts), "{object}: {}", answer.body);
}

#[tokio::test]
async fn each_field_and_example_is_refused_for_windows_exactly_when_check_says_so() {
    let server = lend().await.unwrap();
    let client = server.client();
    let facts = facts().await;
    let mut kinds = vec!["Pod", "Deployment", "DaemonSet", "Job", "CronJob"];
    if STATEFUL_SETS.is_there().await.unwrap() {
        kinds.push("StatefulSet");
    }
    let field = |path: &str, value: &Value| {
        let mut pod = generated::pod();
        pod["os"] = json!({"name": "windows"});
        generated::set(&mut pod, path, value);
        pod
    };
    let mut pods: Vec<Value> = Vec::new();
    for (path, values) in &FIELDS.pod {
        pods.extend(values.iter().map(|value| field(path, value)));
    }
    for (path, values) in &FIELDS.container {
        for container in ["containers.0", "initContainers.0"] {
            pods.extend(values.iter().map(|value| field(&format!("{container}.{path}"), value)));
        }
    }
    pods.extend(examples(|rule| rule.verdict.1 == Consequence::Rejected));
    let (mut both, mut told) = ([0, 0], BTreeSet::new());
    for pod in pods {
        for kind in &kinds {
            let object = workload(kind, &pod);
            let answer = create(&client, "default", &object).await;
            agrees(&object, &answer, &facts);
            both[usize::from(!refused(&answer).is_empty())] += 1;
            let rejected = findings(&object, &facts).into_iter().filter(|f| f.consequence == Consequence::Rejected);
            told.extend(rejected.map(|finding| finding.rule));
        }
    }
    println!("{} objects were let through and {} refused, for {} rules", both[0], both[1], told.len());
    let rules = winpool_analysis::lint::rules().filter(|rule| rule.verdict.1 == Consequence::Rejected);
    let rules = rules.filter(|rule| rule.holds_for(facts.kubernetes));
    // The others are about a class or a namespace too, or about an object that cannot be decoded.
    let others = [
        "api-version-removed",
        "field-type",
        "namespace-selector-conflict",
        "pod-template-missing",
        "pod-security-refused",
    ];
    let is_other = |id: &str| others.contains(&id);
    let here = rules.filter(|rule| !rule.id.starts_with("class-") && !is_other(rule.id));
    assert_eq!(told, set(here.map(|rule| rule.id)), "every rule is broken by an example or a field in fields.yaml");
}

#[tokio::test]
async fn combinations_of_fields_are_refused_exactly_when_check_says_so() {
    let server = lend().await.unwrap();
    let client = server.client();
    let facts = facts().await;
    let mut runner = TestRunner::deterministic();
    let pods: Vec<Value> = (0..PODS)
        .map(|number| {
            workload("Pod", &generated::refused(&mut runner, if number % 8 == 0 { "linux" } else { "windows" }))
        })
        .collect();
    let answers = create_all(&client, pods).await;
    for (object, answer) in &answers {
        agrees(object, answer, &facts);
    }
    let told: BTreeSet<String> = answers.iter().flat_map(|(_, answer)| refused(answer)).collect();
    for other in ["host-process-contradicts-pod", "spec.securityContext.windowsOptions"] {
        assert!(told.contains(other), "{other}: {told:?}");
    }
    let clean = answers.iter().filter(|(_, answer)| refused(answer).is_empty()).count();
    println!("of {PODS} pods {clean} break no rule");
    assert!(clean > PODS / 50 && clean < PODS / 2, "{clean} of {PODS} break no rule");
}
