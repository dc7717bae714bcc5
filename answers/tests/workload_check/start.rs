//! What the API server has at the start of a check counts, and not what a cache or an earlier answer shows.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use winpool_answers::prediction::WorkloadCheck;
use winpool_core::{
    plan::{Admission, CheckAnswer},
    pod::Class,
};

use super::scene::{Object, Scene, WINDOWS, minute, running, workload};

const TOLERANT: &str = "{metadata: {name: helm}, handler: h, scheduling: {tolerations: [{operator: Exists}]}}";
const PLAIN: &str = "{metadata: {name: helm}, handler: h}";

/// The result if `known` is what a cache or the last answer shows, and `real` what the API server has. The operator's
/// clock says noon, and the API server's clock is ahead by so many minutes.
fn check(known: &Scene, real: &Scene, ahead: i64, objects: &[Object]) -> CheckAnswer {
    let mut check = WorkloadCheck::start(known.scope());
    let real = real.scope();
    let (classes, admission): (BTreeMap<String, Class>, Admission) = (real.classes, real.admission);
    let now: Timestamp = minute(ahead).parse().unwrap();
    check.begin(classes, admission, now);
    for object in objects {
        match object {
            Object::Workload(kind, workload) => check.workload(*kind, workload),
            Object::Pod(pod) => check.pod(pod),
        }
    }
    for choice in check.undecided() {
        check.decide(&choice, true);
    }
    check.finish().remove("default").unwrap()
}

#[test]
fn a_policy_or_class_that_was_just_changed_excuses_nobody() {
    let with_policy = || Scene { tolerates_windows: true, ..Scene::default() };
    let with_class = |class| Scene { classes: vec![class], ..Scene::default() };
    let by_policy = workload("Deployment", "web", "nodeSelector: {kubernetes.io/os: windows}", "{}");
    let by_class = workload("Deployment", "web", &format!("{WINDOWS}, runtimeClassName: helm"), "{}");
    for (fact, known, real, object, holds) in [
        ("a policy is there", Scene::default(), with_policy(), &by_policy, false),
        ("a policy is gone", with_policy(), Scene::default(), &by_policy, true),
        ("a class tolerates the taint", with_class(PLAIN), with_class(TOLERANT), &by_class, false),
        ("a class no longer tolerates it", with_class(TOLERANT), with_class(PLAIN), &by_class, true),
    ] {
        let answer = check(&known, &real, 0, std::slice::from_ref(object));
        assert_eq!(answer.unschedulable.contains_key("Deployment shop/web"), holds, "{fact}");
    }
}

#[test]
fn ages_of_pods_go_by_the_api_servers_clock() {
    for (fact, ahead, created, is_stray) in [
        ("it has waited for 11 minutes", 0, -11, true),
        ("it has waited for a minute", 0, -1, false),
        ("the operator's clock is slow", 11, -1, true),
        ("the operator's clock is fast", -11, -12, false),
    ] {
        let created = minute(created);
        let says_nothing = running(
            "web",
            "nodeSelector: {kubernetes.io/arch: amd64}",
            &format!("{{metadata: {{creationTimestamp: '{created}'}}, status: {{phase: Pending}}}}"),
        );
        let Object::Pod(mut pod) = says_nothing else { unreachable!() };
        pod.progress = winpool_core::pod::PodProgress::Waiting;
        let answer = check(&Scene::default(), &Scene::default(), ahead, &[Object::Pod(pod)]);
        assert_eq!(answer.unschedulable.is_empty(), is_stray, "{fact}");
    }
}
