//! A pool that selects more nodes: its taint is checked for them.

use std::time::Duration;

use super::cluster::{MINE, World, intolerant, pool};
use crate::common::node;

/// A pool for the nodes of team a, with an approved taint, that now selects the nodes of team b too.
fn widened(restarts: bool) -> World {
    let of = |team: &str| node(&format!("metadata: {{labels: {{team: {team}}}}}"));
    let mut world = World::new([pool("spec: {nodeSelector: {team: a}}")], [("a", of("a")), ("b", of("b"))]);
    world.check();
    world.wait(2);
    assert_eq!(world.has_taint("a"), (true, true));
    world.advance(Duration::from_mins(2));
    world.rest();
    world.change_pool("default", "spec: {nodeSelector: {team: null}}");
    if restarts {
        world.restart();
    }
    world
}

#[test]
fn a_taint_is_checked_for_more_nodes_before_they_get_it() {
    for restarts in [false, true] {
        let mut world = widened(restarts);
        world.wait(20);
        assert_eq!((world.taints("a"), world.taints("b").len()), (vec![MINE.to_owned()], 0), "{restarts}");
        world.check();
        world.wait(2);
        assert_eq!((world.has_taint("a"), world.has_taint("b")), ((true, true), (true, true)), "{restarts}");
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
    assert!(world.approved().is_empty());
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
