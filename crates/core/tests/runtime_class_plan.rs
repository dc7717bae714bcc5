//! Plans of a pool's RuntimeClasses.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{self, class, plan_classes, policy, pool, seen, settle, yaml};
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::json;
use winpool_core::api::ClassState;
use winpool_core::api::names::reason;
use winpool_core::plan::classes::ClassesPlan;
use winpool_core::plan::classes::runtime_class::{ClassAction, DesiredClass, PlannedClass};
use winpool_core::plan::nodes::numbers::NodeSummary;
use winpool_core::plan::pools::pool::Pool;
use winpool_core::windows::builds;

fn plan(pool: &Pool, seen: &impl Fn(&str) -> NodeSummary, existing: &[Arc<RuntimeClass>]) -> ClassesPlan {
    plan_classes(pool, &policy([pool.clone()]), seen, existing)
}

/// Plans from nothing.
fn fresh(pool: &Pool, seen: &impl Fn(&str) -> NodeSummary) -> BTreeMap<String, DesiredClass> {
    plan(pool, seen, &[]).classes.into_iter().map(|class| (class.desired.name.clone(), class.desired)).collect()
}

fn names(plan: &ClassesPlan) -> Vec<&str> {
    plan.classes.iter().map(|class| class.desired.name.as_str()).collect()
}

/// `key operator value effect`, absent fields as `-`.
fn tolerations(desired: &DesiredClass) -> Vec<String> {
    let or_dash = |field: &Option<String>| field.clone().unwrap_or_else(|| "-".to_owned());
    let line = |t: &Toleration| [&t.key, &t.operator, &t.value, &t.effect].map(or_dash).join(" ");
    desired.tolerations.iter().map(line).collect()
}

/// The one class among these plans.
fn only(plan: &ClassesPlan) -> &PlannedClass {
    let [class] = plan.classes.as_slice() else { panic!("{:?}", names(plan)) };
    class
}

#[test]
fn a_default_class_schedules_as_in_the_kubernetes_documentation() {
    let plan = plan(&pool("{}"), &seen(&[17763], &[]), &[]);
    let ClassAction::Create(class) = &only(&plan).action else { panic!("{plan:?}") };
    let documented = "
        nodeSelector:
          kubernetes.io/os: 'windows'
          kubernetes.io/arch: 'amd64'
          node.kubernetes.io/windows-build: '10.0.17763'
        tolerations:
        - effect: NoSchedule
          key: os
          operator: Equal
          value: \"windows\"";
    assert_eq!(class.scheduling, Some(yaml(documented)));
    insta::assert_yaml_snapshot!(class);
}

#[test]
fn a_declared_class_with_everything() {
    let pool = pool(
        "spec:
          taints: [{key: node.kubernetes.io/os, value: windows, effect: NoSchedule}]
          retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]
          nodeSelector: {team: a, zone: from-the-pool}
          runtimeClasses:
          - name: win.hyperv
            build: 10.0.26100
            handler: runhcs-wcow-hypervisor
            architecture: arm64
            overhead: {podFixed: {memory: 512Mi, cpu: 100m}}
            nodeSelector: {zone: from-the-class, disk: ssd}
            tolerations: [{key: gpu, operator: Exists}, {key: os, operator: Equal, value: Win1809, effect: NoSchedule}]",
    );
    let plan = plan(&pool, &seen(&[], &["os=Windows:NoSchedule"]), &[]);
    let ClassAction::Create(class) = &only(&plan).action else { panic!("{plan:?}") };
    insta::assert_yaml_snapshot!(class);
}

#[test]
fn a_pool_that_selects_an_architecture_gets_classes_of_that_architecture() {
    let classes = "[{name: mine, version: '2025'}]";
    let pool = pool(&format!("spec: {{nodeSelector: {{kubernetes.io/arch: arm64}}, runtimeClasses: {classes}}}"));
    let classes = fresh(&pool, &seen(&[26100], &[]));
    let of = |name: &str| classes[name].node_selector["kubernetes.io/arch"].as_str();
    assert_eq!((of("windows-2025"), of("mine")), ("arm64", "arm64"));
}

#[test]
fn a_class_is_named_after_the_version_of_its_build() {
    for product in builds::all() {
        let names = fresh(&pool("{}"), &seen(&[product.build.number()], &[]));
        assert_eq!(names.into_keys().collect::<Vec<_>>(), [format!("windows-{}", product.version)]);
    }
    let cases = [
        ("spec: {buildNames: [{build: 10.0.29000, version: preview}]}", 29000, "windows-preview"),
        ("spec: {buildNames: [{build: 10.0.20348, version: azure-hci}]}", 20348, "windows-azure-hci"),
        ("spec: {runtimeClassNameFormat: 'win{version}.{pool}'}", 19042, "win20h2.default"),
        ("spec: {runtimeClassNameFormat: '{version}'}", 20348, "2022"),
    ];
    for (spec, build, name) in cases {
        let classes = fresh(&pool(spec), &seen(&[build], &[]));
        assert_eq!(classes.keys().collect::<Vec<_>>(), [name], "{spec}");
        assert_eq!(classes[name].node_selector["node.kubernetes.io/windows-build"], format!("10.0.{build}"));
    }
}

#[test]
fn a_build_without_a_name_gets_no_class_and_the_problem_names_the_field_to_set() {
    let plan = plan(&pool("{}"), &seen(&[17763, 29000, 29001], &[]), &[]);
    assert_eq!(names(&plan), ["windows-2019"]);
    let [problem] = plan.problems.as_slice() else { panic!("{:?}", plan.problems) };
    assert_eq!(
        (problem.reason.as_str(), problem.object.to_string().as_str()),
        (reason::BUILD_NOT_NAMED, "WindowsPool default")
    );
    assert!(problem.message.contains("2 builds") && problem.message.contains("spec.buildNames"), "{}", problem.message);
}

#[test]
fn a_class_tolerates_at_most_sixteen_taints_of_others() {
    let many: Vec<String> = (10..60).map(|number| format!("os={number}:NoSchedule")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let spec = "spec: {retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]}";
    let class = &fresh(&pool(spec), &seen(&[17763], &many))["windows-2019"];
    assert_eq!(class.tolerations.len(), 16 + 2);
    assert!(tolerations(class).contains(&"os Equal windows NoSchedule".to_owned()));
    assert!(tolerations(class).contains(&"os Equal Win1809 NoSchedule".to_owned()));
}

#[test]
fn tolerations_are_sorted_and_unique() {
    let spec = "spec:
      taintPolicy: TaintOnly
      taints: [{key: z, effect: NoSchedule}, {key: a, value: '1', effect: PreferNoSchedule}]
      retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}, {key: m, effect: NoSchedule}]
      runtimeClasses:
      - name: windows-2019
        version: '2019'
        tolerations: [{key: z, operator: Equal, value: '', effect: NoSchedule}, {key: m, effect: NoSchedule}, {operator: Exists, effect: NoExecute}]";
    let class = &fresh(&pool(spec), &seen(&[17763], &["os=Windows:NoSchedule", "m:NoSchedule"]))["windows-2019"];
    insta::assert_snapshot!(tolerations(class).join("\n"));
}

#[test]
fn a_declared_class_adds_to_the_discovered_ones_and_overrides_them_by_name() {
    let spec = "spec:
      runtimeClasses:
      - {name: windows-2019, version: '2019', handler: custom}
      - {name: legacy, version: '2016'}
      - {name: next, version: preview}
      buildNames: [{build: 10.0.29000, version: preview}]";
    let classes = fresh(&pool(spec), &seen(&[17763, 20348], &[]));
    let summary: Vec<_> =
        classes.values().map(|c| (c.name.as_str(), c.hosts.build().unwrap().number(), c.handler.as_str())).collect();
    let process = "runhcs-wcow-process";
    let expected = [
        ("legacy", 14393, process),
        ("next", 29000, process),
        ("windows-2019", 17763, "custom"),
        ("windows-2022", 20348, process),
    ];
    assert_eq!(summary, expected);
    let undiscovered = format!("{spec}\n      runtimeClassDiscovery: Disabled");
    let classes = fresh(&pool(&undiscovered), &seen(&[17763, 20348], &[]));
    assert_eq!(classes.into_keys().collect::<Vec<_>>(), ["legacy", "next", "windows-2019"]);
}

#[test]
fn a_name_that_is_too_long_is_a_problem_and_no_class() {
    let long = format!(
        "{{metadata: {{name: {}}}, spec: {{runtimeClassNameFormat: 'windows-{{version}}-{{pool}}'}}}}",
        "p".repeat(52)
    );
    let plan = plan(&pool(&long), &seen(&[17763], &[]), &[]);
    assert_eq!((names(&plan), plan.problems[0].reason.as_str()), (vec![], reason::CLASS_NAME_INVALID));
    assert!(plan.problems[0].message.contains("runtimeClassNameFormat"));
}

const DRIFTING: &str = "spec:
  runtimeClasses: [{name: windows-2019, version: '2019', overhead: {podFixed: {memory: 1Gi}}}]";
const RIGHT: &str = "
  metadata: {name: windows-2019, labels: {app.kubernetes.io/managed-by: winpool, winpool.dev/pool: default}}
  handler: runhcs-wcow-process
  overhead: {podFixed: {memory: 1Gi}}
  scheduling:
    nodeSelector: {kubernetes.io/os: windows, kubernetes.io/arch: amd64, node.kubernetes.io/windows-build: 10.0.17763}
    tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]";

/// The class of [`RIGHT`], merged with `changes`.
fn drifted(changes: &str) -> Arc<RuntimeClass> {
    let mut value = json!(*class(RIGHT));
    json_patch::merge(&mut value, &yaml(changes));
    class(&value.to_string())
}

#[test]
fn drift_is_repaired_in_one_write() {
    let cases = [
        ("scheduling: {nodeSelector: {node.kubernetes.io/windows-build: 10.0.20348}}", "scheduling", false),
        ("scheduling: {nodeSelector: {added: by-others}}", "scheduling", false),
        ("scheduling: {nodeSelector: null}", "scheduling", false),
        ("scheduling: {tolerations: []}", "scheduling", true),
        // Nothing that the pool's nodes carry was not tolerated before.
        ("scheduling: {tolerations: [{operator: Exists}]}", "scheduling", false),
        ("scheduling: null", "scheduling", true),
        ("overhead: {podFixed: {memory: 1025Mi}}", "overhead", false),
        ("overhead: {podFixed: {cpu: 1m}}", "overhead", false),
        ("overhead: null", "overhead", false),
    ];
    for (change, field, lacked_tolerations) in cases {
        let existing = [drifted(change)];
        let first = plan(&pool(DRIFTING), &seen(&[17763], &[]), &existing);
        let ClassAction::Change { changes, tolerations, .. } = &only(&first).action else {
            panic!("{change}: {first:?}")
        };
        assert_eq!(changes.iter().map(|c| c.path.join(".")).collect::<Vec<_>>(), [field], "{change}");
        assert_eq!(*tolerations, lacked_tolerations, "{change}");
        assert_eq!(only(&first).action.state(), ClassState::Pending);
        let settled = settle(&existing, &first);
        let second = plan(&pool(DRIFTING), &seen(&[17763], &[]), &settled);
        assert_eq!(only(&second).action, ClassAction::Nothing(ClassState::Applied), "{change}");
    }
}

#[test]
fn overhead_that_a_pool_does_not_want_is_removed() {
    let first = plan(&pool("{}"), &seen(&[17763], &[]), &[class(RIGHT)]);
    let settled = settle(&[class(RIGHT)], &first);
    assert_eq!(settled[0].overhead, None);
    assert_eq!(
        only(&plan(&pool("{}"), &seen(&[17763], &[]), &settled)).action,
        ClassAction::Nothing(ClassState::Applied)
    );
}

#[test]
fn a_class_with_the_same_meaning_is_not_written() {
    let same = [
        "{}",
        "overhead: {podFixed: {memory: 1024Mi}}",
        "overhead: {podFixed: {memory: '1073741824'}}",
        "scheduling: {tolerations: [{key: os, value: windows, effect: NoSchedule}]}",
        "scheduling: {tolerations: [{key: os, value: windows, effect: NoSchedule}, {key: os, operator: Equal, value: windows, effect: NoSchedule}]}",
        "metadata: {labels: {team: a}, annotations: {note: b}, resourceVersion: '99'}",
    ];
    for change in same {
        let plan = plan(&pool(DRIFTING), &seen(&[17763], &[]), &[drifted(change)]);
        assert_eq!(only(&plan).action, ClassAction::Nothing(ClassState::Applied), "{change}");
    }
    let unordered =
        "scheduling: {tolerations: [{key: os, value: windows, effect: NoSchedule}, {key: a, operator: Exists}]}";
    let spec = "spec: {runtimeClasses: [{name: windows-2019, version: '2019', overhead: {podFixed: {memory: 1Gi}}, tolerations: [{key: a, operator: Exists}]}]}";
    assert_eq!(
        only(&plan(&pool(spec), &seen(&[], &[]), &[drifted(unordered)])).action,
        ClassAction::Nothing(ClassState::Applied)
    );
}

#[test]
fn discovered_classes_stay_without_nodes_and_declared_ones_go() {
    let start = seen(&[17763], &[]);
    let spec = "spec: {runtimeClasses: [{name: special, version: '2022', nodeSelector: {a: b}, overhead: {podFixed: {cpu: 1m}}}]}";
    let existing = settle(&[], &plan(&pool(spec), &start, &[]));
    assert_eq!(existing.len(), 2);
    for (later, stays, goes) in [
        ("{}", vec!["windows-2019"], vec!["special"]),
        ("spec: {runtimeClassDiscovery: Disabled}", vec![], vec!["special", "windows-2019"]),
        ("spec: {runtimeClassNameFormat: 'other-{version}'}", vec![], vec!["special", "windows-2019"]),
    ] {
        let plan = plan(&pool(later), &seen(&[], &[]), &existing);
        assert_eq!(names(&plan), stays, "{later}");
        assert_eq!(plan.leftover, goes, "{later}");
        assert!(
            plan.classes.iter().all(|class| class.action == ClassAction::Nothing(ClassState::Applied)),
            "{later}: {plan:#?}"
        );
    }
    let guarded = plan(&pool("{}"), &seen(&[], &["os=Windows:NoSchedule"]), &existing);
    assert!(matches!(only(&guarded).action, ClassAction::Change { tolerations: true, .. }), "kept in step");
}

#[test]
fn the_selector_of_a_class_that_lost_its_last_node_is_still_repaired() {
    let existing = settle(&[], &plan(&pool("{}"), &seen(&[17763], &[]), &[]));
    let drift = |class: &Arc<RuntimeClass>| {
        let mut value = json!(**class);
        value["scheduling"]["nodeSelector"]["node.kubernetes.io/windows-build"] = "10.0.20348".into();
        common::class(&value.to_string())
    };
    let drifted: Vec<_> = existing.iter().map(drift).collect();
    let plan = plan(&pool("{}"), &seen(&[], &[]), &drifted);
    let builds: Vec<_> = plan.classes.iter().map(|class| class.desired.hosts.build().unwrap().number()).collect();
    assert_eq!(builds, [17763], "{plan:#?}");
    assert!(plan.classes.iter().all(|class| matches!(class.action, ClassAction::Change { .. })), "{plan:#?}");
}

#[test]
fn a_build_whose_name_changes_gets_a_class_and_the_old_one_goes() {
    let named = |version: &str| pool(&format!("spec: {{buildNames: [{{build: 10.0.29000, version: {version}}}]}}"));
    let existing = settle(&[], &plan(&named("preview"), &seen(&[29000], &[]), &[]));
    let renamed = plan(&named("next"), &seen(&[29000], &[]), &existing);
    assert_eq!(names(&renamed), ["windows-next"]);
    assert_eq!(renamed.leftover, ["windows-preview"]);
    assert_eq!(renamed.problems, []);
}
