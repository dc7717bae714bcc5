//! RuntimeClasses under a wanted name that are not this pool's, or that cannot be changed.

use std::{collections::BTreeSet, sync::Arc};

use crate::common::{class, plan_classes, policy, pool, seen, settle, yaml};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::json;
use winpool_core::{
    api::{ClassState, names::reason},
    plan::{ClassAction, ClassesPlan, NodeSummary, PlannedClass, Policy, PoolEntry, describe, is_made_by_winpool},
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
        (problem.reason.as_str(), problem.object.to_string().as_str()),
        (reason::CLASS_CONFLICT, "RuntimeClass windows-2019")
    );
    assert_eq!(describe(&planned.action), None);
    &problem.message
}

#[test]
fn a_matching_foreign_class_is_satisfied_and_not_changed() {
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

/// Marks of those that keep classes in step themselves.
const MANAGED: [(&str, &str); 7] = [
    ("metadata: {annotations: {meta.helm.sh/release-name: classes}}", "Helm"),
    ("metadata: {labels: {app.kubernetes.io/managed-by: Helm}}", "Helm"),
    ("metadata: {annotations: {argocd.argoproj.io/tracking-id: x}}", "Argo CD"),
    ("metadata: {labels: {argocd.argoproj.io/instance: x}}", "Argo CD"),
    ("metadata: {labels: {kustomize.toolkit.fluxcd.io/name: x}}", "Flux"),
    ("metadata: {labels: {helm.toolkit.fluxcd.io/name: x}}", "Flux"),
    (
        "metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: x, uid: u, controller: true}]}",
        "the object in its ownerReferences",
    ),
];

/// The default pool's plan for `windows-2019` under an runtimeClassAdoptionPolicy.
fn adopting(adoption: &str, existing: &Arc<RuntimeClass>) -> PlannedClass {
    let pool = pool(&format!("spec: {{runtimeClassAdoptionPolicy: {adoption}}}"));
    let plan = plan_classes(&pool, &policy([pool.clone()]), &seen(&[17763], &[]), std::slice::from_ref(existing));
    let [class] = plan.classes.as_slice() else { panic!("{plan:?}") };
    class.clone()
}

fn with_handler(changes: &str) -> Arc<RuntimeClass> {
    let mut value = json!(*by_hand("handler: runhcs-wcow-process"));
    json_patch::merge(&mut value, &yaml(changes));
    class(&value.to_string())
}

#[test]
fn a_matching_class_without_owner_is_adopted_and_keeps_its_fields() {
    let wider = "{overhead: {podFixed: {memory: 1Gi}}, scheduling: {nodeSelector: {team: a}, tolerations: [{operator: Exists}]}}";
    for changes in ["{}", wider, "metadata: {labels: {team: a}}"] {
        let existing = with_handler(changes);
        let first = adopting("IfCompatible", &existing);
        assert_eq!(first.state, ClassState::Pending, "{changes}");
        assert!(matches!(first.action, ClassAction::Change { tolerations: false, .. }), "{changes}");
        let settled = settle(&[Arc::clone(&existing)], &ClassesPlan { classes: vec![first], ..ClassesPlan::default() });
        let second = adopting("IfCompatible", &settled[0]);
        assert_eq!((second.action, second.state), (ClassAction::Nothing, ClassState::Adopted), "{changes}");
        let mut expected = json!(*existing);
        expected["metadata"]["labels"]["winpool.dev/pool"] = "default".into();
        let mut found = json!(*settled[0]);
        for value in [&mut expected, &mut found] {
            value["metadata"]["resourceVersion"] = json!(null);
        }
        assert_eq!(found, expected, "nothing but the label changed");
        assert!(!is_made_by_winpool(&settled[0]), "and it is never winpool's to delete");
    }
}

#[test]
fn a_class_with_another_manager_is_not_adopted_by_default() {
    for (marks, manager) in MANAGED {
        let planned = adopting("IfCompatible", &with_handler(marks));
        assert_eq!((planned.action, planned.state), (ClassAction::Nothing, ClassState::Satisfied), "{marks}");
        let trap = "scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}";
        let mut value = json!(*with_handler(marks));
        json_patch::merge(&mut value, &yaml(trap));
        let planned = adopting("IfCompatible", &class(&value.to_string()));
        let message = conflict(&planned);
        assert!(message.contains(&format!("is managed by {manager}")), "{message}");
        assert!(
            message.contains("node.kubernetes.io/windows-build: 10.0.17763}, tolerations: ["),
            "what to put into Git: {message}"
        );
    }
}

#[test]
fn always_adopts_and_corrects_scheduling_but_never_a_foreign_handler() {
    let trap = by_hand("scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}, tolerations: null}");
    let first = adopting("Always", &trap);
    assert!(matches!(first.action, ClassAction::Change { tolerations: true, .. }), "{first:?}");
    let settled = settle(&[trap], &ClassesPlan { classes: vec![first], ..ClassesPlan::default() });
    assert_eq!(settled[0].handler, "example-container-runtime-handler");
    let selector = settled[0].scheduling.as_ref().unwrap().node_selector.as_ref().unwrap();
    assert_eq!(selector["node.kubernetes.io/windows-build"], "10.0.17763");
    assert_eq!(adopting("Always", &settled[0]).state, ClassState::Adopted);
}

#[test]
fn never_adopts_nothing() {
    let planned = adopting("Never", &with_handler("{}"));
    assert_eq!((planned.action, planned.state), (ClassAction::Nothing, ClassState::Satisfied));
}

#[test]
fn a_foreign_class_that_selects_another_build_is_a_conflict() {
    // The Kubernetes 1.35 documentation has a `windows-2019` that selects Windows Server 2022.
    let trap = "scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}";
    let cases = [
        (trap, "selects 10.0.20348 (Windows Server 2022) instead of 10.0.17763"),
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
fn a_foreign_class_that_lacks_a_toleration_is_a_conflict_that_names_it() {
    let lacking = [
        "scheduling: {tolerations: null}",
        "scheduling: {tolerations: [{key: os, value: Windows, effect: NoSchedule}]}",
        "scheduling: {tolerations: [{key: os, operator: Exists, effect: NoExecute}]}",
        "scheduling: {tolerations: [{key: OS, operator: Exists}]}",
    ];
    for changes in lacking {
        let planned = planned(&by_hand(changes), &policy([pool("{}")]));
        let named = "{effect: NoSchedule, key: os, operator: Equal, value: windows}";
        assert!(conflict(&planned).contains(named), "{changes}: {planned:?}");
    }
}

#[test]
fn a_class_of_an_older_pool_is_a_conflict_while_that_pool_exists() {
    let theirs = by_hand(
        "{metadata: {labels: {winpool.dev/pool: older, app.kubernetes.io/managed-by: winpool}}, handler: runhcs-wcow-process}",
    );
    let entry = |ready, changes: &str| PoolEntry { pool: Arc::new(pool(changes)), ready };
    let none = BTreeSet::new;
    let older = "metadata: {name: older, creationTimestamp: '2020-01-01T00:00:00Z'}";
    let younger = "metadata: {creationTimestamp: '2021-01-01T00:00:00Z'}";
    let policies = [
        Policy::new([entry(true, younger), entry(true, older)], none()),
        Policy::new([entry(true, younger), entry(false, older)], none()),
        Policy::new([entry(true, younger)], ["older".to_owned()].into()),
    ];
    for policy in policies {
        let planned = planned(&theirs, &policy);
        let message = conflict(&planned);
        assert!(message.contains("WindowsPool older") && message.contains("{pool}"), "{message}");
    }
}

#[test]
fn a_younger_pool_does_not_take_over_a_class_that_an_older_pool_wants() {
    let younger =
        pool("{metadata: {creationTimestamp: '2021-01-01T00:00:00Z'}, spec: {runtimeClassAdoptionPolicy: Always}}");
    let wants = [
        // By its nodes, and by its spec.
        ("metadata: {name: older, creationTimestamp: '2020-01-01T00:00:00Z'}", true),
        (
            "{metadata: {name: older, creationTimestamp: '2020-01-01T00:00:00Z'}, \
              spec: {runtimeClasses: [{name: windows-2019, version: '2019'}]}}",
            false,
        ),
    ];
    for (older, has_nodes) in wants {
        let policy = policy([pool(older), younger.clone()]);
        let of_both = seen(&[17763], &[]);
        let seen = |name: &str| if name == "older" && !has_nodes { NodeSummary::default() } else { of_both(name) };
        for existing in [vec![], vec![by_hand("{}")]] {
            let plan = plan_classes(&younger, &policy, &seen, &existing);
            assert!(conflict(&plan.classes[0]).contains("belongs to the older WindowsPool older"), "{existing:?}");
        }
    }
    let policy = policy([pool(wants[0].0), younger.clone()]);
    let of_the_younger = seen(&[17763], &[]);
    let all_there =
        "scheduling: {tolerations: [{operator: Exists}]}\nmetadata: {labels: {app.kubernetes.io/managed-by: Helm}}";
    let plan = plan_classes(&pool("metadata: {name: default}"), &policy, &of_the_younger, &[by_hand(all_there)]);
    assert_eq!(plan.classes[0].state, ClassState::Satisfied, "no write is needed");
    let seen = |name: &str| if name == "older" { NodeSummary::default() } else { of_the_younger(name) };
    let plan = plan_classes(&younger, &policy, &seen, &[by_hand("{}")]);
    assert_eq!(plan.classes[0].state, ClassState::Pending, "the older one has no such nodes");
}

#[test]
fn a_class_of_a_younger_pool_goes_to_the_older_one() {
    let theirs = by_hand(
        "{metadata: {labels: {winpool.dev/pool: younger, app.kubernetes.io/managed-by: winpool}}, handler: runhcs-wcow-process}",
    );
    let older = pool("metadata: {creationTimestamp: '2020-01-01T00:00:00Z'}");
    let younger = pool("metadata: {name: younger, creationTimestamp: '2021-01-01T00:00:00Z'}");
    let planned = planned(&theirs, &policy([older, younger]));
    assert_eq!(describe(&planned.action).unwrap(), "would be changed: metadata.labels.winpool.dev/pool");
}

#[test]
fn a_class_of_a_pool_that_is_gone_is_taken_over() {
    let orphan = by_hand(
        "{metadata: {labels: {winpool.dev/pool: gone, app.kubernetes.io/managed-by: winpool, team: a}}, handler: runhcs-wcow-process}",
    );
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
fn a_class_of_winpools_with_another_handler_is_recreated() {
    let own = by_hand("metadata: {labels: {winpool.dev/pool: default, app.kubernetes.io/managed-by: winpool}}");
    let planned = planned(&own, &policy([pool("{}")]));
    let ClassAction::Replace(class) = &planned.action else { panic!("{planned:?}") };
    assert_eq!((class.handler.as_str(), planned.state), ("runhcs-wcow-process", ClassState::Pending));
}

#[test]
fn a_conflict_of_one_class_leaves_the_others_alone() {
    let trap = by_hand("scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}");
    let plan = plan_classes(&pool("{}"), &policy([pool("{}")]), &seen(&[17763, 20348], &[]), &[trap]);
    let states: Vec<_> = plan.classes.iter().map(|class| (class.desired.name.as_str(), class.state)).collect();
    assert_eq!(states, [("windows-2019", ClassState::Conflict), ("windows-2022", ClassState::Pending)]);
}
