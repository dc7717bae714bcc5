//! Approvals: when status records one, and when it drops it.

use std::{sync::Arc, time::Duration};

use winpool_core::{
    api::names::condition,
    plan::reconcile::Step,
    pod::{Pod, PodProgress},
};

use super::cluster::{MINE, World, failed, intolerant, pool, started};
use crate::common::{node, read, tainted, yaml};

/// One node that carries the approved taint.
fn approved() -> World {
    let mut world = World::checked("{}");
    world.wait(2);
    assert_eq!(world.has_taint("win"), (true, true));
    world
}

/// A pod for Windows nodes with these labels, which has no node yet.
fn windows_pod(selector: &str) -> Pod {
    let spec = format!("{{os: {{name: windows}}, nodeSelector: {selector}}}");
    Pod { progress: PodProgress::Waiting, ..started(yaml(&spec)) }
}

fn lose_taint(world: &mut World, name: &str) {
    world.change_node(name, |node| node.taints = Arc::default());
}

#[test]
fn an_approval_is_recorded_in_the_status_write_that_directly_precedes_publication() {
    let mut world = World::with("{}");
    let check = world.due_check().unwrap();
    assert!(world.approved().is_empty());
    let found = world.listing(check);
    world.finish_check(Ok(found));
    let mut steps = Vec::new();
    loop {
        match world.step("default") {
            Step::Wait(_) => break,
            step => steps.push(step),
        }
    }
    let [Step::WriteStatus { status, .. }, Step::Publish(policy)] = steps.as_slice() else { panic!("{steps:#?}") };
    assert_eq!((status.approved_taints.len(), status.managed_taints.len()), (1, 1));
    assert_eq!(policy.pool("default").unwrap().consent.approved.len(), 1);
}

#[test]
fn nothing_is_approved_without_a_node_and_a_clean_check() {
    let ignored = "metadata: {annotations: {winpool.dev/ignore: 'true'}}";
    for (fact, spec, nodes, pods, expected) in [
        ("no node", "{}", vec![], vec![], false),
        ("a node that is not selected", "spec: {nodeSelector: {team: a}}", vec![node("{}")], vec![], false),
        ("a clean check", "{}", vec![node("{}")], vec![], true),
        ("a workload that would become unschedulable", "{}", vec![node("{}")], vec![intolerant("win-0")], false),
        ("every node carries it", "{}", vec![tainted(&[MINE])], vec![intolerant("win-0")], true),
        ("a pod that needs a future node", "{}", vec![tainted(&[MINE])], vec![windows_pod("{group: b}")], false),
        ("one of two carries it", "{}", vec![tainted(&[MINE]), node("{}")], vec![intolerant("win-1")], false),
        ("only an ignored node lacks it", "{}", vec![tainted(&[MINE]), node(ignored)], vec![intolerant("win-1")], true),
        ("an ignored node carries it", "{}", vec![node(ignored)], vec![], false),
        ("Always", "spec: {taintPolicy: Always}", vec![node("{}")], vec![intolerant("win-0")], true),
        ("Never", "spec: {taintPolicy: Never}", vec![tainted(&[MINE])], vec![], false),
        ("a dry run", "spec: {mode: DryRun}", vec![tainted(&[MINE])], vec![], false),
    ] {
        let mut world = World::new([pool(spec)], ["win-0", "win-1"].into_iter().zip(nodes));
        world.pods = Ok(pods);
        world.check();
        world.wait(2);
        assert_eq!(world.approved() == [MINE], expected, "{fact}: {:?}", world.approved());
    }
}

#[test]
fn a_check_that_expired_before_its_approval_was_recorded_approves_nothing() {
    let mut world = World::with("{}");
    world.refuse("WriteStatus", failed());
    assert!(world.check());
    world.pods = Ok(vec![intolerant("win")]);
    world.wait(70);
    world.accept_all();
    world.wait(70);
    assert_eq!((world.status().nodes.held, world.approved().len()), (1, 0));
}

#[test]
fn an_approval_is_dropped_when_the_taint_is_held_on_any_node() {
    let mut world = approved();
    world.pods = Ok(vec![intolerant("win")]);
    // The taint is lost in a gap of the watch, so a check has to cover the node.
    world.change_node("win", |node| node.ignore = Some("true".into()));
    lose_taint(&mut world, "win");
    world.change_node("win", |node| node.ignore = None);
    world.advance(Duration::from_secs(100));
    assert!(world.check());
    world.wait(2);
    assert_eq!(world.has_taint("win"), (false, false));
    assert_eq!(world.condition(condition::TAINTS_APPLIED).0, "False WorkloadsNotTolerating");
    assert_eq!(world.status().managed_taints, [MINE], "the evidence stays");
}

#[test]
fn an_approval_is_dropped_while_a_class_does_not_tolerate_the_taint() {
    let mut world = approved();
    world.advance(Duration::from_secs(700));
    world.refuse("Patch", failed());
    world.change_class("windows-2022", "scheduling: {tolerations: null}");
    world.rest();
    world.wait(2);
    assert!(world.approved().is_empty());
    world.add_node("new", &node("{}"));
    world.rest();
    assert!(world.taints("new").is_empty());

    world.accept_all();
    world.wait(70);
    world.check();
    world.wait(10);
    assert_eq!(world.has_taint("new"), (true, true));
}

#[test]
fn an_approval_is_dropped_when_the_pool_stops_enforcing_and_enforcing_again_needs_a_check() {
    for (stops, starts) in [
        ("spec: {taintPolicy: Never}", "spec: {taintPolicy: WhenTolerated}"),
        ("spec: {mode: DryRun}", "spec: {mode: Enforce}"),
    ] {
        let mut world = approved();
        world.change_pool("default", stops);
        world.rest();
        world.wait(2);
        assert!(world.approved().is_empty(), "{stops}");
        lose_taint(&mut world, "win");
        world.pods = Ok(vec![intolerant("win")]);
        world.wait(30);
        world.change_pool("default", starts);
        world.rest();
        world.wait(2);
        assert_eq!(world.has_taint("win"), (false, false), "{starts}");
        assert!(world.check());
        assert!(world.taints("win").is_empty(), "{starts}");
    }
}

#[test]
fn going_back_from_always_keeps_the_approval() {
    let mut world = World::with("spec: {taintPolicy: Always}");
    world.pods = Ok(vec![intolerant("win")]);
    world.rest();
    world.wait(2);
    assert_eq!(world.has_taint("win"), (true, true));
    let since = world.status().approved_taints[0].since.clone();
    world.change_pool("default", "spec: {taintPolicy: WhenTolerated}");
    world.wait(5);
    assert_eq!(world.approved(), [MINE]);
    assert_eq!(world.status().approved_taints[0].since, since);
}

#[test]
fn after_a_restart_a_node_that_lacks_an_approved_taint_waits_for_a_check() {
    let mut world = approved();
    lose_taint(&mut world, "win");
    world.pods = Ok(vec![intolerant("win")]);
    world.restart();
    world.rest();
    world.wait(2);
    assert!(world.taints("win").is_empty());
    assert!(world.check());
    world.wait(2);
    assert_eq!(world.has_taint("win"), (false, false));
}

/// A pool with an approved taint that wants one more.
fn approved_with_another_taint_wanted() -> World {
    let mut world = approved();
    world.advance(Duration::from_mins(2));
    world.change_pool(
        "default",
        "spec: {taints: [{key: os, value: windows, effect: NoSchedule}, {key: team, value: a, effect: NoSchedule}]}",
    );
    world.rest();
    world
}

#[test]
fn a_check_that_fails_drops_the_approvals_of_no_other_taint() {
    let mut world = approved_with_another_taint_wanted();
    world.wait(10);
    world.fail_check("a time-out");
    assert_eq!(world.approved(), [MINE]);
    let message = world.condition(condition::TAINTS_APPLIED).1;
    assert!(message.starts_with("team=a:NoSchedule held"), "{message}");
}

#[test]
fn a_class_that_tolerates_one_more_taint_does_not_lag_for_the_first() {
    let mut world = approved_with_another_taint_wanted();
    world.add_node("new", &node("{}"));
    for second in 0..8 {
        world.wait(1);
        assert_eq!(world.has_taint("new"), (true, true), "{second}");
    }
}

#[test]
fn while_a_kind_cannot_be_read_approvals_neither_come_nor_go() {
    let mut world = World::with("{}");
    let carries = |world: &mut World, taints: &[&str]| {
        let taints = read(&tainted(taints)).taints;
        world.change_node("win", |node| node.taints = taints);
    };
    let fails = |world: &mut World| {
        for _ in 0..2 {
            world.read_fails("Nodes");
            world.wait(16);
        }
    };
    fails(&mut world);
    carries(&mut world, &[MINE]);
    world.wait(2);
    assert_eq!(world.approved(), [""; 0], "every node carries it, as far as is known");
    world.outages.clear();
    carries(&mut world, &[]);
    world.fail_check("the server is down");
    carries(&mut world, &[MINE]);
    world.wait(2);
    assert_eq!(world.approved(), [""; 0], "no approval without a check");
    world.advance(Duration::from_mins(1));
    assert!(world.check());
    world.wait(2);
    assert_eq!(world.approved(), [MINE]);

    fails(&mut world);
    carries(&mut world, &[]);
    world.wait(2);
    assert_eq!(world.has_taint("win"), (true, false), "the check that failed was about another moment");
    world.outages.clear();
    world.wait(2);
    assert_eq!(world.has_taint("win"), (true, true));
}
