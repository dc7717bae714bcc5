//! Why a pod does or does not land and start.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod common;

use std::collections::BTreeMap;

use common::{class, node, yaml};
use k8s_openapi::api::core::v1::Node;
use winpool_core::{
    explain::pod::{Answer, Machine, answer},
    pod::{Class, Pod, known_error},
};

fn machine(name: &str, build: &str, rest: &str) -> Machine {
    let mut object = node(&format!(
        "{{metadata: {{name: {name}, labels: {{node.kubernetes.io/windows-build: {build}}}}}, \
          status: {{nodeInfo: {{kernelVersion: {build}.1, containerRuntimeVersion: 'containerd://2.0.4', bootID: a, \
          kubeProxyVersion: v1, kubeletVersion: v1, machineID: a, systemUUID: a}}}}}}"
    ));
    json_patch::merge(&mut object, &yaml(rest));
    Machine::from(&serde_json::from_value::<Node>(object).unwrap())
}

fn windows_class(name: &str, build: &str, handler: &str) -> (String, Class) {
    let class = class(&format!(
        "{{metadata: {{name: {name}}}, handler: {handler}, scheduling: {{nodeSelector: {{kubernetes.io/os: windows, \
          node.kubernetes.io/windows-build: {build}}}, tolerations: [{{key: os, operator: Equal, value: windows, effect: NoSchedule}}]}}}}"
    ));
    (name.to_owned(), Class::from(&*class))
}

/// On a tainted node of 2019 and one of 2022, each with its class.
fn of(pod: &str) -> Answer {
    let tainted = "spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}";
    let machines = [machine("win-2019", "10.0.17763", tainted), machine("win-2022", "10.0.20348", tainted)];
    let classes = [
        windows_class("windows-2019", "10.0.17763", "runhcs-wcow-process"),
        windows_class("windows-2022", "10.0.20348", "runhcs-wcow-process"),
        windows_class("hyperv-2019", "10.0.20348", "runhcs-wcow-hypervisor"),
    ];
    answer(&yaml::<Pod>(pod), &machines, &BTreeMap::from(classes))
}

fn told(pod: &str) -> String {
    serde_yaml::to_string(&of(pod)).unwrap()
}

#[test]
fn a_pod_without_a_toleration_is_told_its_class() {
    insta::assert_snapshot!(told(
        "{metadata: {name: web, namespace: shop}, spec: {os: {name: windows}, containers: [{name: c, image: 'mcr.microsoft.com/windows/servercore:ltsc2022'}]}}"
    ));
}

#[test]
fn a_pod_of_the_wrong_class_lands_and_does_not_start() {
    insta::assert_snapshot!(told(
        "{metadata: {name: web}, spec: {runtimeClassName: windows-2022, containers: [{name: c, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}"
    ));
}

#[test]
fn a_class_with_hyperv_isolation_runs_older_images() {
    let answer = of(
        "{metadata: {name: web}, spec: {runtimeClassName: hyperv-2019, containers: [{name: c, image: 'mcr.microsoft.com/windows/servercore:ltsc2019'}]}}",
    );
    assert_eq!((answer.nodes[1].possible, answer.nodes[1].starts, answer.remedy), (true, Some(true), None));
}

#[test]
fn what_no_class_can_mend_is_said_step_by_step() {
    let answer = of("{metadata: {name: web}, spec: {nodeSelector: {disk: fast}, containers: [{name: c, image: i}]}}");
    insta::assert_snapshot!(answer.remedy.unwrap());
    let answer = of("{metadata: {name: web}, spec: {os: {name: linux}, containers: [{name: c, image: i}]}}");
    insta::assert_snapshot!(answer.remedy.unwrap());
    let answer = of("{metadata: {name: web}, spec: {runtimeClassName: gone, containers: [{name: c, image: i}]}}");
    insta::assert_snapshot!(answer.remedy.unwrap());
    let old = "{metadata: {name: web}, spec: {containers: [{name: c, image: 'mcr.microsoft.com/windows/servercore:ltsc2016'}]}}";
    // Only Hyper-V isolation runs it.
    insta::assert_snapshot!(of(old).remedy.unwrap());
    let none = answer_nowhere();
    assert_eq!(none.remedy.unwrap(), "there is no Windows node");
}

fn answer_nowhere() -> Answer {
    answer(&yaml::<Pod>("{metadata: {name: web}, spec: {containers: [{name: c}]}}"), &[], &BTreeMap::new())
}

#[test]
fn errors_in_the_status_are_explained_once() {
    let waiting = "{name: c, image: i, imageID: '', ready: false, restartCount: 0, state: {waiting: {reason: ErrImagePull, \
                   message: 'failed to pull image: no match for platform in manifest: not found'}}}";
    let answer = of(&format!(
        "{{metadata: {{name: web}}, spec: {{nodeName: win-2019, containers: [{{name: c}}]}}, status: {{reason: PodOSNotSupported, \
          containerStatuses: [{waiting}, {waiting}]}}}}"
    ));
    let errors: Vec<&str> = answer.errors.iter().map(|error| error.error).collect();
    assert_eq!(errors, ["no match for platform in manifest", "PodOSNotSupported"]);
    assert_eq!(answer.node.as_deref(), Some("win-2019"));
    assert!(known_error("hcs::CreateComputeSystem web: The container ... (0xc0370101)").is_some());
    assert!(known_error("back-off pulling image").is_none());
}
