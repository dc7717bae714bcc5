//! Trials of taints that come to a pool with its nodes, and the record of a taint that one on trial replaced.

use std::sync::Arc;

use winpool_core::{
    api::{TaintTrial, names},
    plan::{Applied, NodeFields},
};

use super::{
    cluster::{MINE, World, failed, intolerant, pool},
    trials::{advance, waiting},
};
use crate::common::{node, tainted};

const WEEK: u64 = 7 * 24 * 3600;
const RETIRED: &str = "os=win:NoSchedule";
/// A pool that replaces another taint.
const REPLACES: &str = "spec: {retiredTaints: [{key: os, value: win, effect: NoSchedule}], \
                        taints: [{key: os, value: windows, effect: NoSchedule}]}";

/// A node whose taint from another time is gone, so that it waits for a check.
fn add_waiting_node(world: &mut World, name: &str) {
    world.add_node(name, &node("{}"));
    world.change_node(name, |node| node.ignore = Some("true".into()));
    world.change_node(name, |node| node.taints = Arc::default());
    world.change_node(name, |node| node.ignore = None);
}

/// The taints that winpool would restore on the node.
fn replaced(world: &World, node: &str) -> Vec<String> {
    let applied = world.nodes[node].applied.as_deref().and_then(Applied::parse);
    applied.map(|applied| applied.replaced).unwrap_or_default()
}

#[test]
fn the_record_of_a_replaced_taint_ends_with_its_trial_also_if_the_taint_is_not_approved() {
    for loses_approval in [false, true] {
        let mut world = World::new([pool(REPLACES)], [("old", tainted(&[RETIRED]))]);
        world.check();
        world.wait(2);
        assert_eq!((world.taints("old"), replaced(&world, "old")), (vec![MINE.to_owned()], vec![RETIRED.to_owned()]));
        if loses_approval {
            add_waiting_node(&mut world, "new");
            world.pods = Ok(vec![intolerant("new")]);
            advance(&mut world, 100);
            world.check();
            world.wait(2);
            assert!(world.approved().is_empty());
        }
        advance(&mut world, WEEK);
        world.look_on();
        world.wait(2);
        assert!(world.status().taint_trials.is_empty());
        assert_eq!(world.taints("old"), [MINE]);
        assert!(replaced(&world, "old").is_empty(), "{loses_approval}: the trial ended well");
    }
}

/// Two pools: `default` has tainted the node `win`, and then `other` becomes its owner. A pod holds its taint.
fn handed_over(spec: &str, renames: bool) -> World {
    let (created, selector) = if renames { ("2026-02-01", "{}") } else { ("2025-01-01", "{team: b}") };
    let other = format!(
        "{{metadata: {{name: other, uid: other, creationTimestamp: '{created}T00:00:00Z'}}, \
           spec: {{nodeSelector: {selector}}}}}"
    );
    let mut other = pool(&other);
    let mut first = pool(spec);
    other.spec.taints.clone_from(&first.spec.taints);
    other.spec.retired_taints.clone_from(&first.spec.retired_taints);
    first.metadata.uid = Some("default".to_owned());
    let mut world = World::new([first, other], [("win", tainted_or_bare(spec))]);
    world.check();
    world.wait(2);
    assert_eq!(world.has_taint("win"), (true, true));
    world.pods = Ok(vec![intolerant("win"), waiting("spec: {tolerations: [{key: os, value: win}]}")]);
    if renames {
        world.delete();
    } else {
        world.change_pool("other", "spec: {nodeSelector: {team: null}}");
    }
    world.wait(30);
    world.check();
    world.wait(2);
    world
}

fn tainted_or_bare(spec: &str) -> serde_json::Value {
    if spec == REPLACES { tainted(&[RETIRED]) } else { node("{}") }
}

#[test]
fn a_taint_that_a_pool_takes_over_is_on_trial_although_it_is_not_approved() {
    for renames in [false, true] {
        for (spec, taints) in [("{}", vec![]), (REPLACES, vec![RETIRED.to_owned()])] {
            let mut world = handed_over(spec, renames);
            let status = world.guarded("other").status.clone().unwrap();
            assert!(status.approved_taints.is_empty(), "{renames}");
            assert_eq!(status.taint_trials.len(), 1, "{renames} {spec}");
            world.look_on();
            world.wait(2);
            assert_eq!(world.taints("win"), taints, "{renames} {spec}: a pod waits only because of the taint");
            let trials = world.guarded("other").status.clone().unwrap().taint_trials;
            assert_eq!(trials[0].failures, 1, "{renames} {spec}");
        }
    }
}

/// Two pools with the same taints: `other` with the node `own`, for more than a week, and then `default` with the node
/// `win`. winpool replaced another taint on `win`.
fn established(is_over: bool) -> World {
    let of = |team: &str, value: serde_json::Value| {
        let mut value = value;
        value["metadata"]["labels"]["team"] = team.into();
        value
    };
    let mut first = pool(REPLACES);
    first.metadata.uid = Some("default".to_owned());
    first.spec.node_selector = [("team".to_owned(), "a".to_owned())].into();
    let other =
        "{metadata: {name: other, uid: other}, spec: {nodeSelector: {team: b}, runtimeClassNameFormat: 'b-{version}'}}";
    let mut other = pool(other);
    other.spec.taints.clone_from(&first.spec.taints);
    let mut world = World::new([first, other], [("own", of("b", node("{}")))]);
    world.check();
    world.wait(2);
    if is_over {
        advance(&mut world, WEEK);
        world.look_on();
        world.wait(2);
        assert!(trials_of_other(&world).is_empty());
    } else {
        advance(&mut world, WEEK / 2);
    }
    world.add_node("win", &of("a", tainted(&[RETIRED])));
    world.wait(2);
    world.check();
    world.wait(2);
    assert_eq!((world.taints("win"), replaced(&world, "win")), (vec![MINE.to_owned()], vec![RETIRED.to_owned()]));
    world
}

fn trials_of_other(world: &World) -> Vec<TaintTrial> {
    world.guarded("other").status.clone().unwrap().taint_trials
}

/// The node `win` goes to the team of `other`.
fn moves(world: &mut World) {
    let labels = |node: &NodeFields| node.labels.with([("team", Some("b"))]);
    world.change_node("win", |node| node.labels = labels(node));
}

#[test]
fn a_pool_keeps_the_record_of_a_replaced_taint_when_it_takes_over_a_node() {
    for is_over in [true, false] {
        let mut world = established(is_over);
        moves(&mut world);
        world.wait(2);
        assert_eq!(world.nodes["win"].labels.get(names::POOL), Some("other"), "{is_over}");
        assert_eq!(replaced(&world, "win"), [RETIRED], "{is_over}");
        // The pool that replaced the taint goes.
        world.delete();
        world.wait(30);
        assert_eq!(world.pools.len(), 1);
        world.pods = Ok(vec![waiting("spec: {tolerations: [{key: os, value: win}]}")]);
        world.look_on();
        assert_eq!(world.taints("win"), [RETIRED], "{is_over}: no node that was protected before is bare");
        assert!(world.taints("own").is_empty(), "{is_over}");
    }
}

#[test]
fn a_node_is_taken_over_when_the_trial_of_its_taint_is_recorded() {
    for is_over in [true, false] {
        let mut world = established(is_over);
        world.refuse("WriteStatus", failed());
        moves(&mut world);
        // The nodes are faster than the pool loop.
        world.write_nodes();
        world.rest();
        world.wait(20);
        assert_eq!(world.nodes["win"].labels.get(names::POOL), Some("default"), "{is_over}");
        world.accept_all();
        world.wait(60);
        assert_eq!(world.nodes["win"].labels.get(names::POOL), Some("other"), "{is_over}");
        let trials = trials_of_other(&world);
        assert_eq!(trials.len(), 1, "{is_over}");
        let until = trials[0].until.as_ref().unwrap().0;
        assert!(until.duration_since(world.now.time).as_secs() > WEEK.cast_signed() - 100, "{is_over}: {until}");
    }
}

#[test]
fn a_takeover_that_is_refused_begins_one_trial_for_each_leader() {
    let mut world = established(false);
    world.blocked.insert("win".to_owned());
    moves(&mut world);
    world.wait(2);
    let trial = trials_of_other(&world);
    advance(&mut world, 3600);
    world.wait(30);
    assert_eq!(trials_of_other(&world), trial);
    world.restart();
    world.wait(30);
    let again = trials_of_other(&world);
    assert!(again[0].since.0 > trial[0].since.0);
    advance(&mut world, 3600);
    world.wait(30);
    assert_eq!(trials_of_other(&world), again);
}
