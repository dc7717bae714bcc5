//! The pods that a check counts, while workloads, nodes and clocks change.

use winpool_core::{
    labels::Labels,
    pod::{Pod, WorkloadKind},
};

use super::{
    cluster::{MINE, World},
    trials::{OLD, advance, trial, tried, tried_with, waiting, waiting_of, workload},
};
use crate::common::{node, read};

const IGNORED: &str = "metadata: {annotations: {winpool.dev/ignore: 'true'}}";
const TOLERATES: &str = "spec: {template: {spec: {tolerations: [{key: os, operator: Exists}]}}}";

/// Checks trials for somewhat longer than an excuse lasts.
fn look_for_a_minute(world: &mut World) {
    for _ in 0..16 {
        world.wait(5);
        world.check_trials();
    }
}

#[test]
fn an_excuse_ends_with_its_reason() {
    let linux: Labels = [("kubernetes.io/arch", "amd64"), ("kubernetes.io/os", "linux")].into_iter().collect();
    let anywhere = "spec: {os: null, nodeSelector: {kubernetes.io/arch: amd64}}";
    for (fact, pod) in [("ignored", waiting_of("Deployment", "web")), ("a Linux node fits", waiting(anywhere))] {
        let mut world = tried();
        world.linux = vec![linux.clone()];
        world.workloads = vec![workload(WorkloadKind::Deployment, "web", OLD, IGNORED)];
        world.pods = Ok(vec![pod]);
        look_for_a_minute(&mut world);
        assert_eq!(world.has_taint("win"), (true, true), "{fact}");
        world.linux.clear();
        world.workloads = vec![workload(WorkloadKind::Deployment, "web", OLD, "{}")];
        look_for_a_minute(&mut world);
        assert_eq!(world.has_taint("win"), (false, false), "{fact} no longer");
    }
}

#[test]
fn excused_pods_do_not_keep_a_trial_from_ending() {
    let mut world = tried();
    world.workloads = vec![workload(WorkloadKind::Deployment, "web", OLD, IGNORED)];
    world.pods = Ok(vec![waiting_of("Deployment", "web")]);
    advance(&mut world, 8 * 24 * 3600);
    look_for_a_minute(&mut world);
    assert!(world.status().taint_trials.is_empty());
    assert_eq!(world.has_taint("win"), (true, true));
}

#[test]
fn a_pause_does_not_end_because_of_a_workload_that_was_right_before() {
    for (fact, changes) in [("it tolerates the taint", Some(TOLERATES)), ("it is gone", None)] {
        let mut world = tried();
        let web = changes.map(|changes| workload(WorkloadKind::Deployment, "web", OLD, changes));
        world.workloads = web.into_iter().collect();
        world.pods = Ok(vec![waiting_of("Deployment", "web")]);
        world.look_on();
        assert_eq!(trial(&world).workload.as_deref(), Some("Pod shop/web"), "{fact}: its old pod waits");
        world.pods = Ok(Vec::new());
        for _ in 0..3 {
            world.wait(20);
            world.check_trials();
            assert!(!world.check(), "{fact}");
        }
        assert_eq!(world.has_taint("win"), (false, false), "{fact}");
    }
}

#[test]
fn a_node_that_does_not_serve_is_no_refuge() {
    for (fact, is_ready, is_cordoned, objects) in
        [("it serves", true, false, false), ("not ready", false, false, true), ("cordoned", true, true, true)]
    {
        let mut world = tried_with("{}", &["one", "two"]);
        let mut refuge = read(&node("metadata: {annotations: {winpool.dev/ignore: 'true'}}"));
        (refuge.is_ready, refuge.is_cordoned) = (is_ready, is_cordoned);
        world.change_node("two", |node| *node = refuge);
        world.pods = Ok(vec![waiting("{}")]);
        world.look_on();
        assert_eq!(trial(&world).failures == 1, objects, "{fact}");
    }
}

#[test]
fn a_check_from_before_the_objection_does_not_end_the_hold() {
    let mut world = tried();
    world.add_node("new", &node("{}"));
    world.change_node("new", |node| node.ignore = Some("true".into()));
    world.change_node("new", |node| node.taints = std::sync::Arc::default());
    world.change_node("new", |node| node.ignore = None);
    // Or it would be a refuge.
    world.change_node("new", |node| node.is_cordoned = true);
    world.workloads = vec![workload(WorkloadKind::Deployment, "web", OLD, "{}")];
    advance(&mut world, 100);
    let running = world.due_check().expect("the new node waits");
    world.pods = Ok(vec![waiting_of("Deployment", "web")]);
    world.look_on();
    assert!(world.taints("win").is_empty());
    world.pods = Ok(Vec::new());
    world.workloads = Vec::new();
    world.end_check(running);
    world.wait(5);
    world.check_trials();
    world.wait(2);
    assert_eq!(world.has_taint("win"), (false, false), "the pause is over, and there was no check since");
    assert!(trial(&world).retry_at.unwrap().0 <= world.now.time);
    advance(&mut world, 600);
    world.check();
    world.wait(2);
    assert_eq!(world.taints("win"), [MINE]);
}

#[test]
fn ages_of_workloads_go_by_the_api_servers_clock() {
    for (fact, ahead, created, objects) in [
        ("older", 0, "11:55", true),
        ("younger", 0, "12:05", false),
        ("older, the operator's clock is slow", 600, "12:05", true),
        ("younger, the operator's clock is fast", -600, "11:55", false),
    ] {
        let mut world = World::with("{}");
        world.server_ahead = ahead;
        world.check();
        world.wait(2);
        let changes = format!("metadata: {{creationTimestamp: '2026-03-01T{created}:00Z'}}");
        world.workloads = vec![workload(WorkloadKind::Deployment, "web", OLD, &changes)];
        world.pods = Ok(vec![waiting_of("Deployment", "web")]);
        world.look_on();
        assert_eq!(trial(&world).failures == 1, objects, "{fact}");
    }
}

#[test]
fn memory_is_bounded_whatever_pods_require() {
    let affinity = |value: usize| {
        let values: Vec<String> = (0..2000).map(|number| format!("'a-long-value-{value}-{number}'")).collect();
        format!(
            "{{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: \
               [{{key: team, operator: NotIn, values: [{}]}}]}}]}}}}}}",
            values.join(", ")
        )
    };
    for says in ["{name: windows}", "null"] {
        let mut world = tried();
        let pod = |number| -> Pod {
            waiting(&format!(
                "{{metadata: {{name: web-{number}, uid: web-{number}}}, \
                   spec: {{os: {says}, nodeSelector: {{kubernetes.io/arch: amd64}}, affinity: {}}}}}",
                affinity(number)
            ))
        };
        world.pods = Ok((0..20).map(pod).collect());
        world.check_trials();
        let kept = format!("{:?}", world.memory).len();
        assert!(kept < 100_000, "{kept} bytes for 20 pods");
    }
}

#[test]
fn a_look_keeps_the_same_of_any_number_of_pods() {
    let names: Vec<String> = (0..100).map(|number| format!("node-{number}")).collect();
    let mut world = tried_with("{}", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut check = world.with_cluster(|cluster, memory, now| memory.start_trial_check(cluster, now)).unwrap();
    let mut kept = Vec::new();
    for number in 0..4000 {
        let name = format!("web-{number}");
        let tolerations = format!("[{{key: other-{number}, operator: Exists}}]");
        check.pod(&waiting(&format!(
            "{{metadata: {{name: {name}, uid: {name}}}, spec: {{tolerations: {tolerations}}}}}"
        )));
        if [1500, 3999].contains(&number) {
            kept.push(format!("{check:?}").len());
        }
    }
    assert!(kept[1] < kept[0] + kept[0] / 20, "{kept:?} bytes");
}
