//! Capability labels: facts about the images that nodes run.

use crate::common::{self, UID, apply, assess, node, plan_classes, policy, pool, read, seen};
use serde_json::{Value, json};
use winpool_core::api::ClassState;
use winpool_core::node::NodePlan;
use winpool_core::plan::patch::node_patch;
use winpool_core::plan::pools::pool::{Hosts, Pool};
use winpool_core::windows::Build;

const COMPATIBLE: &str = "spec: {runtimeClasses: [{name: any-2022, version: '2022', hostMatch: Compatible}]}";
const LABEL: &str = "runs.winpool.dev/10.0.20348";

/// A node of this version and container runtime, merged with `changes`.
fn host(kernel: &str, runtime: &str, changes: &str) -> Value {
    let mut value = node(
        &json!({"status": {"nodeInfo": {"kernelVersion": kernel, "containerRuntimeVersion": runtime}}}).to_string(),
    );
    json_patch::merge(&mut value, &common::yaml(changes));
    value
}

fn capability_labels(node: &Value, pool: &Pool) -> Vec<(String, Option<String>)> {
    let plan: NodePlan = assess(&read(node), &policy([pool.clone()])).plan;
    plan.capability_labels.into_iter().map(|change| (change.key, change.to)).collect()
}

#[test]
fn a_node_has_the_capability_labels_that_are_wanted_and_true() {
    let has = |value: &str| format!("metadata: {{labels: {{{LABEL}: '{value}'}}}}");
    let (capable, invented) = (has("true"), "metadata: {labels: {runs.winpool.dev/any: 'true'}}");
    let added = || vec![(LABEL.to_owned(), Some("true".to_owned()))];
    let (removed, none) = (|| vec![(LABEL.to_owned(), None)], Vec::new);
    for (fact, kernel, runtime, changes, spec, expected) in [
        ("the same build", "10.0.20348.2655", "containerd://1.6.6+azure", "{}", COMPATIBLE, added()),
        ("a newer one", "10.0.26100.4061", "containerd://2.0.4+azure", "{}", COMPATIBLE, added()),
        ("the first version of containerd", "10.0.26100.4061", "containerd://1.7.19", "{}", COMPATIBLE, added()),
        ("an older one", "10.0.26100.4061", "containerd://1.7.18", "{}", COMPATIBLE, none()),
        ("another runtime", "10.0.26100.4061", "docker://27.0.0", "{}", COMPATIBLE, none()),
        ("an older build", "10.0.17763.6659", "containerd://2.0.4", "{}", COMPATIBLE, none()),
        ("no class selects it", "10.0.20348.2655", "containerd://2.0.4", "{}", "{}", none()),
        ("another Windows now", "10.0.17763.6659", "containerd://2.0.4", &capable, COMPATIBLE, removed()),
        ("an older runtime now", "10.0.26100.4061", "containerd://1.7.18", &capable, COMPATIBLE, removed()),
        ("it is not true", "10.0.17763.6659", "containerd://2.0.4", &capable, "{}", removed()),
        ("that does not depend on the runtime", "10.0.17763.6659", "containerd://Unknown", &capable, "{}", removed()),
        ("it stays while that is unknown", "10.0.26100.4061", "containerd://Unknown", &capable, COMPATIBLE, none()),
        ("it stays while it is true", "10.0.20348.2655", "containerd://2.0.4", &capable, "{}", none()),
        ("another value", "10.0.20348.2655", "containerd://2.0.4", &has("false"), "{}", added()),
    ] {
        assert_eq!(capability_labels(&host(kernel, runtime, changes), &pool(spec)), expected, "{fact}");
    }
    let without_a_build = capability_labels(&host("10.0.20348.2655", "containerd://2.0.4", invented), &pool("{}"));
    assert_eq!(without_a_build, [("runs.winpool.dev/any".to_owned(), None)]);
}

#[test]
fn a_node_that_leaves_its_pool_keeps_its_capability_labels_unless_it_runs_linux_now() {
    let deleted = pool("metadata: {deletionTimestamp: '2026-03-01T12:00:00Z', finalizers: [winpool.dev/cleanup]}");
    let linux = "{metadata: {labels: {kubernetes.io/os: linux}}, status: {nodeInfo: {operatingSystem: linux}}}";
    for (fact, changes, pool, expected) in [
        ("its pool no longer selects it", "{}", pool("spec: {nodeSelector: {team: other}}"), vec![]),
        ("its pool is deleted", "{}", deleted.clone(), vec![]),
        ("Linux", linux, pool("{}"), vec![(LABEL.to_owned(), None)]),
        ("Linux, and its pool is deleted", linux, deleted, vec![(LABEL.to_owned(), None)]),
    ] {
        let mut node = common::marked(host("10.0.20348.2655", "containerd://2.0.4", "{}"), "default", &[]);
        node["metadata"]["labels"][LABEL] = "true".into();
        json_patch::merge(&mut node, &common::yaml(changes));
        assert_eq!(capability_labels(&node, &pool), expected, "{fact}");
    }
}

#[test]
fn a_class_with_hyperv_isolation_selects_windows_and_its_own_node_selector() {
    let class = "{name: vm, version: '2019', isolation: HyperV, nodeSelector: {hyperv: 'true'}}";
    let hyperv = pool(&format!("spec: {{runtimeClasses: [{class}]}}"));
    let plan = plan_classes(&hyperv, &policy([hyperv.clone()]), &seen(&[], &[]), &[]);
    let vm = &plan.classes[0].desired;
    assert_eq!((vm.handler.as_str(), vm.hosts), ("runhcs-wcow-hypervisor", Hosts::HyperV(Build::new(17763))));
    assert_eq!(
        json!(vm.node_selector),
        json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "hyperv": "true"})
    );
    assert_eq!(plan.problems, []);
    assert_eq!(capability_labels(&host("10.0.26100.4061", "containerd://2.0.4", "{}"), &hyperv), []);
}

#[test]
fn compatible_selects_the_capability_label_and_any_selects_no_build() {
    let pool = pool(
        "spec: {runtimeClasses: [{name: any-2022, version: '2022', hostMatch: Compatible}, {name: all, version: Any}]}",
    );
    let plan = plan_classes(&pool, &policy([pool.clone()]), &seen(&[], &[]), &[]);
    let [all, compatible] = plan.classes.as_slice() else { panic!("{plan:?}") };
    assert_eq!((all.desired.hosts, all.action.state()), (Hosts::Any, ClassState::Pending));
    assert_eq!(json!(all.desired.node_selector), json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}));
    assert_eq!(
        json!(compatible.desired.node_selector),
        json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", LABEL: "true"})
    );
    let existing = common::settle(&[], &plan);
    let later = plan_classes(&common::pool("{}"), &policy([common::pool("{}")]), &seen(&[], &[]), &existing);
    assert_eq!(later.leftover, ["all", "any-2022"], "classes without a build of their own go with the spec");
}

#[test]
fn a_capability_label_is_part_of_the_same_guarded_patch() {
    let policy = policy([pool(COMPATIBLE)]);
    let before = host("10.0.26100.4061", "containerd://2.0.4", "{}");
    let seen = read(&before);
    let plan = assess(&seen, &policy).plan;
    let patch = node_patch(UID, &seen, &plan, &policy);
    let after = apply(&before, &patch).unwrap();
    assert_eq!(after["metadata"]["labels"][LABEL], "true");
    assert_eq!(after["metadata"]["labels"]["winpool.dev/pool"], "default");
    assert!(assess(&read(&after), &policy).plan.is_empty());
    let mut changed = before.clone();
    changed["metadata"]["labels"][LABEL] = "forged".into();
    assert!(apply(&changed, &patch).is_err(), "the label is tested");
}
