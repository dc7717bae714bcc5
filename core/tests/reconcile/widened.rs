//! A pool that selects more nodes: its taint is checked for them, and on trial again.

use super::{
    cluster::{MINE, World, intolerant, pool},
    trials::{advance, waiting},
};
use crate::common::node;

const WEEK: u64 = 7 * 24 * 3600;

/// A pool for the nodes of team a, whose trial is over, that now selects the nodes of team b too.
fn widened(restarts: bool) -> World {
    let of = |team: &str| node(&format!("metadata: {{labels: {{team: {team}}}}}"));
    let mut world = World::new([pool("spec: {nodeSelector: {team: a}}")], [("a", of("a")), ("b", of("b"))]);
    world.check();
    world.wait(2);
    advance(&mut world, WEEK);
    world.look_on();
    world.wait(2);
    assert!(world.status().taint_trials.is_empty());
    world.change_pool("default", "spec: {nodeSelector: {team: null}}");
    if restarts {
        world.restart();
    }
    world
}

#[test]
fn a_taint_is_on_trial_again_when_it_comes_to_more_nodes() {
    for restarts in [false, true] {
        let mut world = widened(restarts);
        world.wait(20);
        world.check();
        world.wait(2);
        assert_eq!((world.has_taint("a"), world.has_taint("b")), ((true, true), (true, true)), "{restarts}");
        assert_eq!(world.status().taint_trials.len(), 1, "{restarts}");
        world.pods = Ok(vec![waiting("spec: {nodeSelector: {team: b}}")]);
        world.look_on();
        assert!(world.taints("b").is_empty(), "{restarts}");
    }
}

#[test]
fn a_taint_that_is_checked_for_more_nodes_stays_where_it_is_if_the_check_finds_a_workload() {
    let mut world = widened(false);
    world.pods = Ok(vec![intolerant("b")]);
    world.wait(20);
    world.check();
    world.wait(2);
    assert_eq!((world.taints("a"), world.taints("b").len()), (vec![MINE.to_owned()], 0));
    assert!(world.approved().is_empty() && world.status().taint_trials.is_empty());
}

#[test]
fn an_approval_outlives_a_spec_that_matches_no_more_nodes() {
    for changes in ["{runtimeClassNameFormat: 'win-{version}'}", "{nodeSelector: {team: a}}"] {
        let mut world = World::new([pool("{}")], [("a", node("metadata: {labels: {team: a}}"))]);
        world.check();
        world.wait(2);
        let since = world.status().approved_taints[0].since.clone();
        world.change_pool("default", &format!("spec: {changes}"));
        world.wait(20);
        assert_eq!(world.status().approved_taints[0].since, since, "{changes}");
    }
}
