//! Capability labels: they stay while pods need them.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use winpool_core::{
    api::names::{self, reason},
    plan::reconcile::Refusal,
    pod::{Pod, PodProgress, PodSpec},
};

use super::cluster::{World, denied, of_class, pool, started};
use crate::common::{node, yaml};

const LABEL: &str = "runtimeclass.winpool.dev/any";
const COMPATIBLE: &str = "spec: {nodeSelector: {team: a}, runtimeClassDiscovery: Disabled, \
                          runtimeClasses: [{name: any, version: '2022', hostMatch: Compatible}]}";

/// A pool with a compatible class, and two nodes that have its label.
fn world() -> World {
    let of_team = || node("metadata: {labels: {team: a}}");
    let mut world = World::new([pool(COMPATIBLE)], [("win-1", of_team()), ("win-2", of_team())]);
    world.check();
    assert_eq!(labelled(&world), ["win-1", "win-2"]);
    world
}

fn labelled(world: &World) -> Vec<&str> {
    let labelled = world.nodes.iter().filter(|(_, node)| node.labels.get(LABEL).is_some());
    labelled.map(|(name, _)| name.as_str()).collect()
}

fn marked(world: &World) -> usize {
    world.nodes.values().filter(|node| node.labels.get(names::POOL).is_some()).count()
}

/// A pod that selects the label, on this node.
fn pod(on: Option<&str>) -> Pod {
    let node_selector: BTreeMap<String, String> = [(LABEL.to_owned(), "true".to_owned())].into();
    started(PodSpec { node: on.map(str::to_owned), node_selector, ..PodSpec::default() })
}

fn affine(on: &str) -> Pod {
    let terms = yaml(&json!([{"matchExpressions": [{"key": LABEL, "operator": "Exists"}]}]).to_string());
    started(PodSpec { node: Some(on.to_owned()), terms, ..PodSpec::default() })
}

fn finished(on: &str) -> Pod {
    Pod { progress: PodProgress::Finished, ..pod(Some(on)) }
}

type Change = fn(&mut World);

/// Everything after which a pool does not want the label any more.
const CHANGES: [(&str, Change); 4] = [
    ("Exact", |world| world.change_pool("default", "spec: {runtimeClasses: [{name: any, version: '2022'}]}")),
    ("a renamed class", |world| {
        let renamed = "spec: {runtimeClasses: [{name: other, version: '2022', hostMatch: Compatible}]}";
        world.change_pool("default", renamed);
    }),
    ("nodes that leave the pool", |world| {
        for name in ["win-1", "win-2"] {
            world.change_node(name, |node| node.labels = node.labels.with([("team", Some("b"))]));
        }
    }),
    ("a deleted pool", World::delete),
];

#[test]
fn a_label_that_no_pool_wants_stays_exactly_where_a_pod_needs_it() {
    for (pods, expected) in [
        (vec![], vec![]),
        (vec![pod(Some("win-1"))], vec!["win-1"]),
        (vec![affine("win-2")], vec!["win-2"]),
        (vec![pod(None)], vec!["win-1", "win-2"]),
        (vec![finished("win-1")], vec![]),
        (
            vec![pod(Some("elsewhere")), started(PodSpec { node: Some("win-1".to_owned()), ..PodSpec::default() })],
            vec![],
        ),
    ] {
        for (change, make) in CHANGES {
            let mut world = world();
            world.pods = Ok(pods.clone());
            make(&mut world);
            world.wait(5);
            assert_eq!(labelled(&world), expected, "{change}: {pods:?}");
            let is_kept = !expected.is_empty();
            match change {
                "a deleted pool" => assert_eq!((world.pools.len(), marked(&world)), (0, 0), "{pods:?}"),
                // The label of the pool shows that winpool still has to look after the node.
                "nodes that leave the pool" => assert_eq!(marked(&world), expected.len(), "{pods:?}"),
                _ => assert_eq!(!world.problems(reason::LABEL_IN_USE).is_empty(), is_kept, "{change}: {pods:?}"),
            }
            if change != "a deleted pool" {
                world.pods = Ok(Vec::new());
                world.advance(Duration::from_mins(10));
                world.rest();
                world.wait(2);
                assert_eq!(labelled(&world), [""; 0], "{change}: the pods have ended");
                assert!(world.problems(reason::LABEL_IN_USE).is_empty());
            }
        }
    }
}

#[test]
fn a_label_stays_while_nobody_knows_who_needs_it() {
    for (change, make) in CHANGES {
        let mut world = world();
        world.pods = Err("no permission".to_owned());
        make(&mut world);
        world.wait(5);
        assert_eq!(labelled(&world), ["win-1", "win-2"], "{change}");
        assert_eq!(world.pools.is_empty(), change == "a deleted pool");
    }
}

#[test]
fn a_label_goes_at_once_from_a_node_that_cannot_run_the_images() {
    let mut world = world();
    world.pods = Ok(vec![pod(Some("win-1")), pod(None)]);
    world.change_node("win-1", |node| {
        (node.kernel_version, node.container_runtime) =
            (Some("10.0.17763.1".into()), Some("containerd://2.0.4".into()));
    });
    world.wait(2);
    assert_eq!(labelled(&world), ["win-2"]);
}

#[test]
fn a_label_stays_while_a_class_of_the_pool_selects_it() {
    let mut world = world();
    world.refuse("Patch any", denied());
    world.change_pool("default", "spec: {runtimeClasses: [{name: any, version: '2022'}]}");
    world.wait(100);
    assert_eq!(labelled(&world), ["win-1", "win-2"], "new pods would select it");
    world.accept_all();
    world.advance(Duration::from_mins(10));
    world.rest();
    world.wait(1);
    assert_eq!(labelled(&world), [""; 0]);

    let mut world = world;
    world.change_pool("default", COMPATIBLE);
    world.rest();
    world.refuse("Delete any", Refusal::Failed("the server is down".to_owned()));
    world.delete();
    world.wait(30);
    assert_eq!(labelled(&world), ["win-1", "win-2"], "the class is still there");
    world.accept_all();
    world.advance(Duration::from_mins(1));
    world.wait(5);
    assert_eq!((labelled(&world), marked(&world), world.pools.len()), (vec![], 0, 0));
}

/// The class stays because a pod used it when the pool gave it up. Its next pod needs the label too.
#[test]
fn a_label_stays_while_a_released_class_selects_it() {
    for (change, make) in
        CHANGES.into_iter().filter(|(change, _)| ["a renamed class", "a deleted pool"].contains(change))
    {
        let mut world = world();
        world.pods = Ok(vec![of_class("any")]);
        make(&mut world);
        world.wait(5);
        assert!(world.is_released("any"), "{change}");
        world.pods = Ok(Vec::new());
        world.advance(Duration::from_mins(10));
        world.rest();
        world.wait(2);
        assert_eq!(labelled(&world), ["win-1", "win-2"], "{change}");
        if change == "a deleted pool" {
            assert_eq!((world.pools.len(), marked(&world)), (0, 0));
            continue;
        }
        // An administrator deletes it.
        world.classes.remove("any");
        world.watch();
        world.wait(65);
        assert_eq!(labelled(&world), [""; 0], "{change}");
    }
}
