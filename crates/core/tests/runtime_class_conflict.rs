//! RuntimeClasses under a wanted name that are not this pool's, or that cannot be changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{class, plan_classes, policy, pool, seen, settle, yaml};
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::json;
use winpool_core::api::ClassState;
use winpool_core::api::names::reason;
use winpool_core::plan::classes::ClassesPlan;
use winpool_core::plan::classes::runtime_class::{ClassAction, PlannedClass, describe, is_made_by_winpool};
use winpool_core::plan::nodes::numbers::NodeSummary;
use winpool_core::plan::pools::pool::{Policy, PoolEntry};

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
    assert_eq!(planned.action.state(), ClassState::Conflict);
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
        assert_eq!(planned.action, ClassAction::Nothing(ClassState::Satisfied), "{changes}");
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
        let first = planned(&existing, &policy([pool("{}")]));
        assert_eq!(first.action.state(), ClassState::Pending, "{changes}");
        assert!(matches!(first.action, ClassAction::Change { tolerations: false, .. }), "{changes}");
        let settled = settle(&[Arc::clone(&existing)], &ClassesPlan { classes: vec![first], ..ClassesPlan::default() });
        let second = planned(&settled[0], &policy([pool("{}")]));
        assert_eq!(second.action, ClassAction::Nothing(ClassState::Adopted), "{changes}");
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
fn a_class_with_another_manager_is_reported_with_the_ways_to_correct_it() {
    let policy = policy([pool("{}")]);
    for (marks, manager) in MANAGED {
        let right = planned(&with_handler(marks), &policy);
        assert_eq!(right.action, ClassAction::Nothing(ClassState::Satisfied), "{marks}");
        let trap = "scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}";
        let mut value = json!(*with_handler(marks));
        json_patch::merge(&mut value, &yaml(trap));
        let wrong = planned(&class(&value.to_string()), &policy);
        let message = conflict(&wrong);
        for part in [
            &format!("is managed by {manager}"),
            "node.kubernetes.io/windows-build: 10.0.17763}, tolerations: [",
            "kubectl label runtimeclass windows-2019 winpool.dev/pool=default;",
        ] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn a_class_that_is_handed_over_by_the_label_gets_the_scheduling_that_the_pool_needs_and_nothing_else() {
    let policy = policy([pool("{}")]);
    let wrong = "{overhead: {podFixed: {memory: 1Gi}}, scheduling: {
        nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348, kubernetes.io/arch: null, team: a},
        tolerations: [{key: team, operator: Exists}]}}";
    for (marks, _) in [("{}", "nobody")].into_iter().chain(MANAGED) {
        let mut value = json!(*by_hand(wrong));
        json_patch::merge(&mut value, &yaml(marks));
        json_patch::merge(&mut value, &yaml("metadata: {labels: {winpool.dev/pool: default}}"));
        let before = class(&value.to_string());
        let first = planned(&before, &policy);
        assert!(matches!(first.action, ClassAction::Change { tolerations: true, .. }), "{first:?}");
        let settled = settle(&[before], &ClassesPlan { classes: vec![first], ..ClassesPlan::default() });
        assert_eq!(planned(&settled[0], &policy).action.state(), ClassState::Adopted, "{marks}");
        let mut after = json!(*settled[0]);
        let tolerations = after["scheduling"]["tolerations"].take();
        value["scheduling"] = json!({"tolerations": null, "nodeSelector": {
            "kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "team": "a",
            "node.kubernetes.io/windows-build": "10.0.17763",
        }});
        for object in [&mut value, &mut after] {
            object["metadata"]["resourceVersion"] = json!(null);
            object["metadata"]["uid"] = json!(null);
        }
        assert_eq!(after, value, "{marks}");
        let keys: Vec<_> = tolerations.as_array().unwrap().iter().map(|toleration| &toleration["key"]).collect();
        assert_eq!(keys, ["os", "team"], "{marks}");
    }
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
fn a_foreign_class_that_selects_none_of_the_pools_nodes_is_a_conflict() {
    let (pool, policy) = (pool("{}"), policy([pool("{}")]));
    let theirs =
        [by_hand("{metadata: {labels: {app.kubernetes.io/managed-by: Helm}}, scheduling: {nodeSelector: {team: b}}}")];
    for (selects, state) in [(true, ClassState::Satisfied), (false, ClassState::Conflict)] {
        let plan =
            winpool_core::plan::classes::plan_classes(&pool, &policy, &seen(&[17763], &[]), &theirs, &|_| selects);
        assert_eq!(plan.classes[0].action.state(), state);
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
        let named = "{key: os, operator: Equal, value: windows, effect: NoSchedule}";
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
    let younger = pool("metadata: {creationTimestamp: '2021-01-01T00:00:00Z'}");
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
        for existing in [vec![], vec![with_handler("{}")]] {
            let plan = plan_classes(&younger, &policy, &seen, &existing);
            assert!(conflict(&plan.classes[0]).contains("belongs to the older WindowsPool older"), "{existing:?}");
        }
    }
    let policy = policy([pool(wants[0].0), younger.clone()]);
    let of_the_younger = seen(&[17763], &[]);
    let all_there =
        "scheduling: {tolerations: [{operator: Exists}]}\nmetadata: {labels: {app.kubernetes.io/managed-by: Helm}}";
    let plan = plan_classes(&pool("metadata: {name: default}"), &policy, &of_the_younger, &[by_hand(all_there)]);
    assert_eq!(plan.classes[0].action.state(), ClassState::Satisfied, "no write is needed");
    let seen = |name: &str| if name == "older" { NodeSummary::default() } else { of_the_younger(name) };
    let plan = plan_classes(&younger, &policy, &seen, &[with_handler("{}")]);
    assert_eq!(plan.classes[0].action.state(), ClassState::Pending, "the older one has no such nodes");
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
    assert_eq!(self::planned(&settled[0], &policy).action.state(), ClassState::Applied);
}

#[test]
fn a_class_of_winpools_with_another_handler_gets_all_else_and_is_reported_with_the_command_to_delete_it() {
    let policy = policy([pool("{}")]);
    let own = "metadata: {labels: {winpool.dev/pool: default, app.kubernetes.io/managed-by: winpool}}";
    let wrong = class(&json!(*by_hand(&format!("{{{own}, scheduling: {{tolerations: null}}}}"))).to_string());
    let first = planned(&wrong, &policy);
    assert!(matches!(first.action, ClassAction::Change { tolerations: true, .. }), "{first:?}");
    let settled = settle(&[wrong], &ClassesPlan { classes: vec![first], ..ClassesPlan::default() });
    let second = planned(&settled[0], &policy);
    let ClassAction::OtherHandler(problem) = &second.action else { panic!("{second:?}") };
    assert_eq!((problem.reason.as_str(), second.action.state()), (reason::CLASS_CONFLICT, ClassState::Conflict));
    assert!(problem.message.contains("kubectl delete runtimeclass windows-2019"), "{}", problem.message);
}

#[test]
fn a_conflict_of_one_class_leaves_the_others_alone() {
    let trap = by_hand("scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}");
    let plan = plan_classes(&pool("{}"), &policy([pool("{}")]), &seen(&[17763, 20348], &[]), &[trap]);
    let states: Vec<_> = plan.classes.iter().map(|class| (class.desired.name.as_str(), class.action.state())).collect();
    assert_eq!(states, [("windows-2019", ClassState::Conflict), ("windows-2022", ClassState::Pending)]);
}
