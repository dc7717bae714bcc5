//! Capability labels are facts: they stay while they are true.

use winpool_core::api::names;
use winpool_core::plan::pods::UnknownPods;

use super::cluster::{World, of_class, pool};
use crate::common::{node, set_label};

const LABEL: &str = "runs.winpool.dev/10.0.20348";
const COMPATIBLE: &str = "spec: {nodeSelector: {team: a}, runtimeClassDiscovery: Disabled, \
                          runtimeClasses: [{name: any, version: '2022', hostMatch: Compatible}]}";

/// A pool with a compatible class, and two nodes that have its label.
fn world() -> World {
    let of_team = || node("metadata: {labels: {team: a}}");
    let mut world = World::new([pool(COMPATIBLE)], [("win-1", of_team()), ("win-2", of_team())]);
    world.rest();
    assert_eq!(labelled(&world), ["win-1", "win-2"]);
    world
}

fn labelled(world: &World) -> Vec<&str> {
    let labelled = world.nodes.iter().filter(|(_, node)| node.labels.get(LABEL).is_some());
    labelled.map(|(name, _)| name.as_str()).collect()
}

type Change = fn(&mut World);

/// Everything after which no class selects the label any more.
const CHANGES: [(&str, Change); 4] = [
    ("Exact", |world| world.change_pool("default", "spec: {runtimeClasses: [{name: any, version: '2022'}]}")),
    ("a removed class", |world| world.change_pool("default", "spec: {runtimeClassDiscovery: Disabled}")),
    ("nodes that leave the pool", |world| {
        for name in ["win-1", "win-2"] {
            world.change_node(name, |node| set_label(node, "team", Some("b")));
        }
    }),
    ("a deleted pool", World::delete),
];

#[test]
fn a_label_that_no_class_selects_any_more_stays_and_delays_nothing() {
    for (change, make) in CHANGES {
        for (pods, is_known) in [(vec![], true), (vec![of_class("any")], true), (vec![], false)] {
            let mut world = world();
            world.pods = pods;
            world.unknown_pods = (!is_known).then(|| UnknownPods::Denied("no permission".to_owned()));
            make(&mut world);
            world.wait(5);
            assert_eq!(labelled(&world), ["win-1", "win-2"], "{change}");
            let is_of_the_pool = world.nodes.values().any(|node| node.labels.get(names::POOL).is_some());
            let is_gone = ["nodes that leave the pool", "a deleted pool"].contains(&change);
            assert_eq!((is_of_the_pool, world.pools.is_empty()), (!is_gone, change == "a deleted pool"), "{change}");
        }
    }
}

#[test]
fn a_label_goes_at_once_from_a_node_of_a_pool_that_cannot_run_the_images() {
    for spec in [COMPATIBLE, "spec: {nodeSelector: {team: a}, runtimeClassDiscovery: Disabled}"] {
        let mut world = world();
        world.pods = vec![of_class("any")];
        world.change_pool("default", spec);
        world.change_node("win-1", |node| {
            (node.kernel_version, node.container_runtime) =
                (Some("10.0.17763.1".into()), Some("containerd://2.0.4".into()));
        });
        world.wait(2);
        assert_eq!(labelled(&world), ["win-2"], "{spec}");
    }
}
