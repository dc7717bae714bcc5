//! Trials of taints that come to a pool with its nodes, and the record of a taint that one on trial replaced.

use std::sync::Arc;

use winpool_core::plan::Applied;

use super::{
    cluster::{MINE, World, intolerant, pool},
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
