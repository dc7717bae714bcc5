//! Capability labels: nodes that can serve a RuntimeClass whose build alone does not tell.

use crate::common::{self, UID, apply, assess, node, plan_classes, policy, pool, read, seen};
use serde_json::{Value, json};
use winpool_core::{
    api::{ClassState, names::reason},
    plan::{Hosts, LabelUsers, NodePlan, Pool, node_patch},
    pod::{Pod, PodSpec},
};

const COMPATIBLE: &str = "spec: {runtimeClasses: [{name: any-2022, version: '2022', hostMatch: Compatible}]}";
const STAMP: &str = "runtimeclass.winpool.dev/any-2022";

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
fn exactly_the_nodes_that_run_the_images_have_the_capability_label() {
    let capable = format!("metadata: {{labels: {{{STAMP}: 'true'}}}}");
    let added = || vec![(STAMP.to_owned(), Some("true".to_owned()))];
    let (removed, none) = (|| vec![(STAMP.to_owned(), None)], Vec::new);
    let handlers = "status: {runtimeHandlers: [{name: ''}, {name: runhcs-wcow-hypervisor}]}";
    for (fact, kernel, runtime, changes, spec, expected) in [
        ("the same build", "10.0.20348.2655", "containerd://1.6.6+azure", "{}", COMPATIBLE, added()),
        ("a newer one", "10.0.26100.4061", "containerd://2.0.4+azure", "{}", COMPATIBLE, added()),
        ("the first version of containerd", "10.0.26100.4061", "containerd://1.7.19", "{}", COMPATIBLE, added()),
        ("an older one", "10.0.26100.4061", "containerd://1.7.18", "{}", COMPATIBLE, none()),
        ("another runtime", "10.0.26100.4061", "docker://27.0.0", "{}", COMPATIBLE, none()),
        ("an older build", "10.0.17763.6659", "containerd://2.0.4", "{}", COMPATIBLE, none()),
        ("no handler", "10.0.20348.2655", "containerd://2.0.4", handlers, COMPATIBLE, none()),
        ("another Windows now", "10.0.17763.6659", "containerd://2.0.4", &capable, COMPATIBLE, removed()),
        ("an older runtime now", "10.0.26100.4061", "containerd://1.7.18", &capable, COMPATIBLE, removed()),
        ("the class left the spec", "10.0.20348.2655", "containerd://2.0.4", &capable, "{}", removed()),
        ("it stays while that is unknown", "10.0.26100.4061", "containerd://Unknown", &capable, COMPATIBLE, none()),
    ] {
        assert_eq!(capability_labels(&host(kernel, runtime, changes), &pool(spec)), expected, "{fact}");
    }
}

#[test]
fn hyperv_runs_older_images_on_nodes_that_have_the_handler() {
    let hyperv = pool("spec: {runtimeClasses: [{name: vm, version: '2019', isolation: HyperV}]}");
    let vm = vec![("runtimeclass.winpool.dev/vm".to_owned(), Some("true".to_owned()))];
    let with = "status: {runtimeHandlers: [{name: runhcs-wcow-process}, {name: runhcs-wcow-hypervisor}]}";
    let without = "status: {runtimeHandlers: [{name: runhcs-wcow-process}]}";
    for (fact, kernel, handlers, expected) in [
        ("it has the handler", "10.0.26100.4061", with, vm.clone()),
        ("no handlers are listed", "10.0.26100.4061", "{}", vm),
        ("it lacks the handler", "10.0.26100.4061", without, vec![]),
        ("an older host", "10.0.14393.1", with, vec![]),
    ] {
        assert_eq!(capability_labels(&host(kernel, "containerd://2.0.4", handlers), &hyperv), expected, "{fact}");
    }

    let plan = plan_classes(&hyperv, &policy([hyperv.clone()]), &seen(&[], &[]), &[]);
    assert_eq!(plan.classes[0].desired.handler, "runhcs-wcow-hypervisor");
    assert_eq!(plan.problems[0].reason, reason::HYPERV_NOT_SUPPORTED);
}

#[test]
fn compatible_selects_the_capability_label_and_any_selects_no_build() {
    let pool = pool(
        "spec: {runtimeClasses: [{name: any-2022, version: '2022', hostMatch: Compatible}, {name: all, version: Any}]}",
    );
    let plan = plan_classes(&pool, &policy([pool.clone()]), &seen(&[], &[]), &[]);
    let [all, compatible] = plan.classes.as_slice() else { panic!("{plan:?}") };
    assert_eq!((all.desired.hosts, all.state), (Hosts::Any, ClassState::Pending));
    assert_eq!(json!(all.desired.node_selector), json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64"}));
    assert_eq!(
        json!(compatible.desired.node_selector),
        json!({"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", STAMP: "true"})
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
    assert_eq!(after["metadata"]["labels"][STAMP], "true");
    assert_eq!(after["metadata"]["labels"]["winpool.dev/pool"], "default");
    assert!(assess(&read(&after), &policy).plan.is_empty());
    let mut changed = before.clone();
    changed["metadata"]["labels"][STAMP] = "forged".into();
    assert!(apply(&changed, &patch).is_err(), "the stamp is tested");
}

#[test]
fn a_label_stays_if_pods_select_more_labels_than_winpool_keeps() {
    let pod = |number: usize| -> Pod {
        let keys = (0..1000).map(|key| (format!("runtimeclass.winpool.dev/c-{number}-{key}"), "true".to_owned()));
        let spec = PodSpec { node_selector: keys.collect(), ..PodSpec::default() };
        Pod { namespace: "shop".to_owned(), name: format!("web-{number}"), spec, ..Pod::default() }
    };
    let label = "runtimeclass.winpool.dev/windows-2019";
    for (pods, stays) in [(0, false), (1, false), (100, true)] {
        let pods: Vec<Pod> = (0..pods).map(pod).collect();
        let users: LabelUsers = pods.iter().collect();
        let kept = format!("{users:?}").len();
        assert!(kept < 200_000, "{kept} bytes for {} pods", pods.len());
        assert_eq!(users.of("win", label).is_some(), stays, "{} pods", pods.len());
    }
}
