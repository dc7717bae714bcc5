//! Trials beside other trials, with clocks that differ, with statuses that cannot be written, and on nodes that cannot
//! help a pod.

use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;
use winpool_core::{api::names::condition, pod::WorkloadKind};

use super::{
    cluster::{MINE, World, denied, intolerant, pool},
    trials::{OLD, advance, trial, tried, tried_with, waiting, waiting_of, workload},
};
use crate::common::{marked, node, read, tainted};

const HOUR: u64 = 3600;
const WEEK: u64 = 7 * 24 * HOUR;
const RETIRED: &str = "os=win:NoSchedule";
/// A pool that replaces another taint.
const REPLACES: &str = "spec: {retiredTaints: [{key: os, value: win, effect: NoSchedule}], \
                        taints: [{key: os, value: windows, effect: NoSchedule}]}";

/// A process whose clock is so many seconds behind that of the API server becomes the leader.
fn hand_over(world: &mut World, server_ahead: i64) {
    let later = SignedDuration::from_secs(world.server_ahead - server_ahead);
    world.now.time += later;
    world.server_ahead = server_ahead;
    world.restart();
}

/// The clock of the leader is set to another time.
fn set_clock(world: &mut World, hours: i64) {
    world.now.time += SignedDuration::from_hours(hours);
    world.server_ahead -= hours * 3600;
}

/// A node whose taint from another time is gone, so that it waits for a check.
fn add_waiting_node(world: &mut World, name: &str) {
    world.add_node(name, &node("{}"));
    world.change_node(name, |node| node.ignore = Some("true".into()));
    world.change_node(name, |node| node.taints = Arc::default());
    world.change_node(name, |node| node.ignore = None);
}

#[test]
fn a_taint_stays_while_no_node_that_a_pod_would_fit_serves() {
    for (fact, is_ready, is_cordoned, objects) in
        [("it serves", true, false, true), ("not ready", false, false, false), ("cordoned", true, true, false)]
    {
        let mut world = tried();
        world.change_node("win", |node| (node.is_ready, node.is_cordoned) = (is_ready, is_cordoned));
        world.pods = Ok(vec![waiting("{}")]);
        world.look_on();
        assert_eq!(trial(&world).failures == 1, objects, "{fact}");
        world.change_node("win", |node| (node.is_ready, node.is_cordoned) = (true, false));
        world.look_on();
        assert_eq!(trial(&world).failures, 1, "{fact}: later the node serves");
    }
}

#[test]
fn a_new_leader_with_another_clock_takes_the_same_workloads_for_old() {
    for (fact, of_first, of_second, created, objects) in [
        ("older, the first clock was slow", 600, 0, "12:05", true),
        ("younger, the first clock was slow", 600, 0, "12:15", false),
        ("older, the first clock was fast", -600, 0, "11:45", true),
        ("younger, the first clock was fast", -600, 0, "11:55", false),
        ("older, the second clock is slow", 0, 600, "11:55", true),
        ("younger, the second clock is fast", 0, -600, "12:05", false),
    ] {
        let mut world = World::with("{}");
        world.server_ahead = of_first;
        world.check();
        world.wait(2);
        hand_over(&mut world, of_second);
        let changes = format!("metadata: {{creationTimestamp: '2026-03-01T{created}:00Z'}}");
        world.workloads = vec![workload(WorkloadKind::Deployment, "web", OLD, &changes)];
        world.pods = Ok(vec![waiting_of("Deployment", "web")]);
        world.look_on();
        assert_eq!(trial(&world).failures == 1, objects, "{fact}");
    }
}

#[test]
fn a_clock_that_was_ahead_makes_no_pause_and_no_trial_longer() {
    const TEN_YEARS: i64 = 24 * 3652;
    for restarts in [false, true] {
        let mut world = World::with("{}");
        set_clock(&mut world, TEN_YEARS);
        world.check();
        world.wait(2);
        world.pods = Ok(vec![waiting_of("Workflow", "run-1")]);
        world.look_on();
        assert_eq!(trial(&world).failures, 1);
        world.pods = Ok(Vec::new());
        set_clock(&mut world, -TEN_YEARS);
        if restarts {
            world.restart();
        }
        world.wait(2);
        assert!(!world.check(), "{restarts}");
        advance(&mut world, 24 * HOUR);
        assert!(world.check(), "{restarts}: a pause lasts a day at most");
        world.wait(2);
        assert_eq!(world.taints("win"), [MINE], "{restarts}");

        let mut world = World::with("{}");
        set_clock(&mut world, TEN_YEARS);
        world.check();
        world.wait(2);
        set_clock(&mut world, -TEN_YEARS);
        if restarts {
            world.restart();
        }
        world.wait(2);
        advance(&mut world, WEEK);
        world.look_on();
        world.wait(2);
        assert_eq!(world.status().taint_trials.len(), 0, "{restarts}: a trial lasts a week");
    }
}

#[test]
fn an_approval_that_status_still_has_counts_only_with_the_record_of_its_new_trial() {
    let mut world = tried();
    advance(&mut world, WEEK);
    world.look_on();
    world.wait(2);
    assert!(world.status().taint_trials.is_empty(), "the trial is over");
    world.refuse("WriteStatus", denied());
    add_waiting_node(&mut world, "new");
    world.pods = Ok(vec![intolerant("new")]);
    advance(&mut world, 100);
    world.check();
    assert!(world.taints("new").is_empty());
    assert_eq!(world.approved(), [MINE], "the status that drops the approval cannot be written");
    world.pods = Ok(Vec::new());
    advance(&mut world, 70);
    world.check();
    world.add_node("late", &node("{}"));
    world.wait(2);
    assert!(world.taints("late").is_empty(), "a new leader would not check it");
    world.accept_all();
    advance(&mut world, 600);
    world.check();
    world.wait(2);
    assert_eq!((world.taints("new"), trial(&world).failures), (vec![MINE.to_owned()], 0));
}

#[test]
fn a_taint_whose_predecessor_would_come_back_and_keep_the_pod_off_too_stays() {
    for (fact, tolerations, objects) in
        [("the predecessor is tolerated", "[{key: os, value: win}]", true), ("it is not", "[]", false)]
    {
        let mut world = World::new([pool(REPLACES)], [("old", tainted(&[RETIRED]))]);
        world.check();
        world.wait(2);
        assert_eq!(world.taints("old"), [MINE]);
        world.pods = Ok(vec![waiting(&format!("spec: {{tolerations: {tolerations}}}"))]);
        world.look_on();
        assert_eq!(trial(&world).failures == 1, objects, "{fact}");
    }
}

#[test]
fn a_predecessor_that_left_in_a_trial_that_ended_well_does_not_come_back() {
    let mut world = World::new([pool(REPLACES)], [("old", tainted(&[RETIRED]))]);
    world.check();
    world.wait(2);
    advance(&mut world, WEEK);
    world.look_on();
    world.wait(2);
    assert!(world.status().taint_trials.is_empty());
    // The taint is not approved for a while, and then on trial again.
    add_waiting_node(&mut world, "new");
    world.pods = Ok(vec![intolerant("new")]);
    advance(&mut world, 100);
    world.check();
    world.wait(2);
    world.pods = Ok(Vec::new());
    advance(&mut world, 70);
    world.check();
    world.wait(2);
    assert_eq!(world.taints("new"), [MINE]);
    world.pods = Ok(vec![waiting("{}")]);
    world.look_on();
    assert_eq!((trial(&world).failures, world.taints("old").len()), (1, 0), "the pod has a node now");
}

#[test]
fn nodes_that_join_while_a_taint_is_held_do_not_get_it() {
    let mut world = tried();
    world.pods = Ok(vec![waiting("{}")]);
    world.look_on();
    world.pods = Ok(Vec::new());
    for name in ["a", "b"] {
        world.add_node(name, &node("{}"));
        world.wait(2);
        assert!(world.taints(name).is_empty(), "{name}");
        world.restart();
    }
    world.add_node("c", &marked(tainted(&[MINE]), "default", &[MINE]));
    world.wait(2);
    assert!(world.taints("c").is_empty(), "it has the taint from its registration");
}

#[test]
fn a_pool_that_was_created_again_has_no_trial_of_the_pool_before() {
    for fails in [false, true] {
        let mut world = tried();
        world.pods = Ok(if fails { vec![waiting_of("Workflow", "run-1")] } else { Vec::new() });
        world.look_on();
        assert_eq!(trial(&world).failures == 1, fails);
        world.pods = Ok(Vec::new());
        world.change_pool("default", "{metadata: {uid: another}, status: null}");
        world.wait(20);
        world.check();
        world.wait(2);
        assert_eq!((world.taints("win"), trial(&world).failures), (vec![MINE.to_owned()], 0), "{fails}");
        world.pods = Ok(vec![waiting_of("Workflow", "run-2")]);
        world.look_on();
        assert_eq!(trial(&world).failures, 1, "{fails}");
    }
}

#[test]
fn a_trial_goes_on_after_a_dry_run_and_a_hold_ends_with_the_policy_never() {
    let mut world = tried();
    world.change_pool("default", "spec: {mode: DryRun}");
    world.wait(5);
    world.pods = Ok(vec![waiting("{}")]);
    assert!(!world.check_trials());
    assert_eq!(world.taints("win"), [MINE]);
    world.change_pool("default", "spec: {mode: Enforce}");
    world.wait(5);
    world.look_on();
    assert_eq!((world.taints("win").len(), trial(&world).failures), (0, 1));

    world.pods = Ok(Vec::new());
    world.change_pool("default", "spec: {taintPolicy: Never}");
    world.wait(5);
    assert!(world.status().taint_trials.is_empty());
    assert!(!world.check_trials());
    world.change_pool("default", "spec: {taintPolicy: WhenTolerated}");
    world.wait(20);
    world.check();
    world.wait(2);
    assert_eq!((world.taints("win"), trial(&world).failures), (vec![MINE.to_owned()], 0));
}

#[test]
fn a_taint_that_two_pools_add_is_held_where_the_pod_waits() {
    let other = "{metadata: {name: other, creationTimestamp: '2026-01-02T00:00:00Z'}, spec: {nodeSelector: {team: b}}}";
    let first = "spec: {nodeSelector: {team: a}}";
    let of = |team: &str| node(&format!("metadata: {{labels: {{team: {team}}}}}"));
    let mut world = World::new([pool(first), pool(other)], [("a", of("a")), ("b", of("b"))]);
    world.check();
    world.wait(2);
    assert_eq!((world.taints("a").len(), world.taints("b").len()), (1, 1));
    world.pods = Ok(vec![waiting("spec: {nodeSelector: {team: b}}")]);
    world.look_on();
    assert_eq!((world.taints("a").len(), world.taints("b").len()), (1, 0));
    assert_eq!((trial(&world).failures, world.approved()), (0, vec![MINE.to_owned()]), "the trial of the first pool");
    // A node that moves to the other pool loses the taint.
    world.change_node("a", |node| *node = read(&marked(node_of("b"), "default", &[MINE])));
    world.wait(2);
    assert!(world.taints("a").is_empty());
}

fn node_of(team: &str) -> serde_json::Value {
    let mut node = tainted(&[MINE]);
    node["metadata"]["labels"]["team"] = team.into();
    node
}

#[test]
fn a_trial_does_not_end_while_more_pods_wait_than_a_look_keeps() {
    let mut world = tried_with("{}", &["win"]);
    world.workloads = vec![workload(WorkloadKind::Deployment, "web", "2026-03-02", "{}")];
    let pod = |number: usize| {
        let name = format!("metadata: {{name: web-{number}, uid: web-{number}}}");
        let mut pod = waiting_of("Deployment", "web");
        pod.uid = waiting(&name).uid;
        pod
    };
    world.pods = Ok((0..1001).map(pod).collect());
    advance(&mut world, WEEK);
    world.check_trials();
    world.wait(5);
    world.check_trials();
    world.wait(2);
    assert_eq!(world.status().taint_trials.len(), 1);
    for _ in 0..3 {
        world.wait(5);
        world.check_trials();
    }
    world.wait(2);
    assert_eq!(world.status().taint_trials.len(), 0, "all of them are of a younger workload");
}

#[test]
fn no_trial_ends_while_nodes_cannot_be_read() {
    let mut world = tried();
    advance(&mut world, WEEK);
    world.read_fails("Nodes");
    world.wait(15);
    world.read_fails("Nodes");
    world.look_on();
    world.look_on();
    assert_eq!(world.status().taint_trials.len(), 1);
    world.outages.clear();
    world.look_on();
    world.wait(2);
    assert_eq!(world.status().taint_trials.len(), 0);
}

/// A check at these pods by a process that may not read workloads.
fn look_without_permission(world: &mut World) {
    world.wait(5);
    let mut check = world.with_cluster(|cluster, memory, now| memory.start_trial_check(cluster, now)).unwrap();
    world.pods.iter().flatten().for_each(|pod| check.pod(pod));
    while let Some(name) = check.unknown_workload() {
        check.unreadable_workload(name);
    }
    let result = check.finish();
    world.with_cluster(|cluster, memory, now| memory.trial_checked(cluster, Ok(result), now));
    world.rest();
}

#[test]
fn a_kind_that_winpool_may_not_read_is_one_that_it_does_not_read() {
    let mut world = tried();
    world.workloads = vec![workload(WorkloadKind::Deployment, "web", "2026-03-02", "{}")];
    world.pods = Ok(vec![waiting_of("Deployment", "web")]);
    look_without_permission(&mut world);
    look_without_permission(&mut world);
    assert_eq!(trial(&world).failures, 1, "nobody knows that it is younger");
    look_without_permission(&mut world);
    world.wait(20);
    assert!(!world.check(), "nobody knows if it is gone, so the pause goes on");
}

#[test]
fn status_says_that_winpool_does_not_see_what_a_taint_on_trial_does() {
    let mut world = tried();
    let fails = |world: &mut World| {
        world.wait(5);
        world.with_cluster(|cluster, memory, now| memory.start_trial_check(cluster, now)).unwrap();
        let error = Err("pods is forbidden".to_owned());
        world.with_cluster(|cluster, memory, now| memory.trial_checked(cluster, error, now));
    };
    let says = |world: &World| world.condition(condition::TAINTS_APPLIED).1.contains("on trial: pods is forbidden");
    for _ in 0..8 {
        fails(&mut world);
    }
    assert!(!says(&world), "a short outage is none");
    for _ in 0..8 {
        fails(&mut world);
    }
    world.wait(60);
    assert!(says(&world), "{:?}", world.condition(condition::TAINTS_APPLIED));
    world.look_on();
    world.wait(60);
    assert!(!says(&world));
}
