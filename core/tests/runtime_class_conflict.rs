//! RuntimeClasses under a wanted name that are not this pool's, or that cannot be changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::{collections::BTreeSet, sync::Arc};

use common::{class, policy, pool, seen, settle, yaml};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::json;
use winpool_core::{
    api::{ClassState, names::reason},
    plan::{ClassAction, Entry, PlannedClass, Policy, describe, plan_classes},
};

/// `windows-2019` of the Kubernetes documentation, made by hand, merged with `changes`.
fn by_hand(changes: &str) -> Arc<RuntimeClass> {
    let mut value = json!({
        "metadata": {"name": "windows-2019"},
        "handler": "example-container-runtime-handler",
        "scheduling": {
            "nodeSelector": {
                "kubernetes.io/os": "windows",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/windows-build": "10.0.17763",
            },
            "tolerations": [{"effect": "NoSchedule", "key": "os", "operator": "Equal", "value": "windows"}],
        },
    });
    json_patch::merge(&mut value, &yaml(changes));
    class(&value.to_string())
}

/// The default pool's plan for `windows-2019`, where `existing` has that name.
fn planned(existing: &Arc<RuntimeClass>, policy: &Policy) -> PlannedClass {
    let plan = plan_classes(&pool("{}"), policy, &seen(&[17763], &[]), std::slice::from_ref(existing));
    let [class] = plan.classes.as_slice() else { panic!("{plan:?}") };
    class.clone()
}

fn conflict(planned: &PlannedClass) -> &str {
    let ClassAction::Conflict(problem) = &planned.action else { panic!("{planned:?}") };
    assert_eq!(planned.state, ClassState::Conflict);
    assert_eq!(
        (problem.reason.as_str(), problem.object.as_str()),
        (reason::CLASS_CONFLICT, "RuntimeClass/windows-2019")
    );
    assert_eq!(describe(&planned.action), None);
    &problem.message
}

#[test]
fn a_class_of_others_that_does_what_the_pool_needs_is_satisfied_and_not_touched() {
    let satisfying = [
        "{}",
        "metadata: {labels: {app.kubernetes.io/managed-by: Helm}}",
        "scheduling: {tolerations: [{key: os, value: windows, effect: NoSchedule}]}",
        "scheduling: {tolerations: [{key: os, value: windows}]}",
        "scheduling: {tolerations: [{key: os, operator: Exists}]}",
        "scheduling: {tolerations: [{operator: Exists}]}",
        "scheduling: {tolerations: [{key: x, operator: Exists}, {operator: Exists, effect: NoSchedule}]}",
        "scheduling: {nodeSelector: {kubernetes.io/arch: null}}",
    ];
    for changes in satisfying {
        let planned = planned(&by_hand(changes), &policy([pool("{}")]));
        assert_eq!((planned.action, planned.state), (ClassAction::Nothing, ClassState::Satisfied), "{changes}");
    }
}

#[test]
fn a_class_of_others_that_selects_another_build_is_a_conflict() {
    // The Kubernetes 1.35 documentation has a `windows-2019` that selects Windows Server 2022.
    let trap = "scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}";
    let cases = [
        (trap, "selects 10.0.20348 instead of 10.0.17763"),
        (
            "scheduling: {nodeSelector: {node.kubernetes.io/windows-build: null}}",
            "selects no build instead of 10.0.17763",
        ),
        ("scheduling: {nodeSelector: null}", "selects no build"),
        ("scheduling: null", "selects no build"),
    ];
    for (changes, message) in cases {
        let planned = planned(&by_hand(changes), &policy([pool("{}")]));
        assert!(conflict(&planned).contains(message), "{changes}: {planned:?}");
    }
}

#[test]
fn a_class_of_others_that_lacks_a_toleration_is_a_conflict_that_names_it() {
    let lacking = [
        "scheduling: {tolerations: null}",
        "scheduling: {tolerations: [{key: os, value: Windows, effect: NoSchedule}]}",
        "scheduling: {tolerations: [{key: os, operator: Exists, effect: NoExecute}]}",
        "scheduling: {tolerations: [{key: OS, operator: Exists}]}",
    ];
    for changes in lacking {
        let planned = planned(&by_hand(changes), &policy([pool("{}")]));
        let named = r#"{"effect":"NoSchedule","key":"os","operator":"Equal","value":"windows"}"#;
        assert!(conflict(&planned).contains(named), "{changes}: {planned:?}");
    }
}

#[test]
fn a_class_of_another_pool_is_a_conflict_while_that_pool_exists() {
    let theirs = by_hand("{metadata: {labels: {winpool.dev/pool: other}}, handler: runhcs-wcow-process}");
    let entry = |ready, changes: &str| Entry { pool: Arc::new(pool(changes)), ready };
    let none = BTreeSet::new;
    let policies = [
        policy([pool("{}"), pool("metadata: {name: other}")]),
        Policy::new([entry(true, "{}"), entry(false, "metadata: {name: other}")], none()),
        Policy::new([entry(true, "{}"), entry(true, "{metadata: {name: other}, spec: {mode: DryRun}}")], none()),
        Policy::new([entry(true, "{}")], ["other".to_owned()].into()),
    ];
    for policy in policies {
        let planned = planned(&theirs, &policy);
        let message = conflict(&planned);
        assert!(message.contains("WindowsPool other") && message.contains("{pool}"), "{message}");
    }
}

#[test]
fn a_class_of_a_pool_that_is_gone_is_taken_over() {
    let orphan = by_hand("{metadata: {labels: {winpool.dev/pool: gone, team: a}}, handler: runhcs-wcow-process}");
    let policy = policy([pool("{}")]);
    let planned = planned(&orphan, &policy);
    assert_eq!(describe(&planned.action).unwrap(), "would be changed: metadata.labels.winpool.dev/pool");
    let plan = plan_classes(&pool("{}"), &policy, &seen(&[17763], &[]), std::slice::from_ref(&orphan));
    let settled = settle(&[orphan], &plan);
    let labels = settled[0].metadata.labels.as_ref().unwrap();
    assert_eq!((labels["winpool.dev/pool"].as_str(), labels["team"].as_str()), ("default", "a"));
    assert_eq!(self::planned(&settled[0], &policy).state, ClassState::Applied);
}

#[test]
fn a_handler_that_would_have_to_change_is_a_conflict_that_says_how() {
    let planned = planned(&by_hand("metadata: {labels: {winpool.dev/pool: default}}"), &policy([pool("{}")]));
    let message = conflict(&planned);
    for part in ["example-container-runtime-handler", "runhcs-wcow-process", "Delete the class"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_conflict_of_one_class_leaves_the_others_alone() {
    let trap = by_hand("scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}");
    let plan = plan_classes(&pool("{}"), &policy([pool("{}")]), &seen(&[17763, 20348], &[]), &[trap]);
    let states: Vec<_> = plan.classes.iter().map(|class| (class.desired.name.as_str(), class.state)).collect();
    assert_eq!(states, [("windows-2019", ClassState::Conflict), ("windows-2022", ClassState::Pending)]);
}
