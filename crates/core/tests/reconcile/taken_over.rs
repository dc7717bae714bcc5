//! Nodes that come to a pool with a taint of winpool's.

use winpool_core::api::names;

use super::cluster::{MINE, World, agent, failed, pool};
use crate::common::{node, recorded_in, set_label, tainted};

const RETIRED: &str = "os=win:NoSchedule";
/// A pool that replaces another taint.
const REPLACES: &str = "spec: {retiredTaints: [{key: os, value: win, effect: NoSchedule}], \
                        taints: [{key: os, value: windows, effect: NoSchedule}]}";

/// The way in which the node goes to another pool.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A younger pool wants it too, and a user deletes the first.
    Deletion,
    /// An older pool selects more nodes.
    Selector,
    /// A user changes the label by which the pools select it.
    Label,
}

const WAYS: [Way; 3] = [Way::Deletion, Way::Selector, Way::Label];

/// Two pools: `default` has tainted the node `win`, and `other` has this spec.
fn two_pools(spec: &str, other: &str, way: Way) -> World {
    let created = if matches!(way, Way::Deletion) { "2026-02-01" } else { "2025-01-01" };
    let mut other =
        pool(&format!("{{metadata: {{name: other, uid: other, creationTimestamp: '{created}T00:00:00Z'}}, {other}}}"));
    "other-{version}".clone_into(&mut other.spec.runtime_class_name_format.0);
    if !matches!(way, Way::Deletion) {
        other.spec.node_selector = [("team".to_owned(), "b".to_owned())].into();
    }
    let mut first = pool(spec);
    first.metadata.uid = Some("default".to_owned());
    let bare = if spec == REPLACES { tainted(&[RETIRED]) } else { node("{}") };
    let mut world = World::new([first, other], [("win", bare)]);
    world.wait(2);
    assert_eq!(world.has_taint("win"), (true, true), "{way:?}");
    world
}

/// The node goes to `other`.
fn goes(world: &mut World, way: Way) {
    match way {
        Way::Deletion => world.delete(),
        Way::Selector => world.change_pool("other", "spec: {nodeSelector: {team: null}}"),
        Way::Label => world.change_node("win", |node| set_label(node, "team", Some("b"))),
    }
}

/// The pool of the node, by its label and by its annotation.
fn owner(world: &World) -> Option<&str> {
    let node = &world.nodes["win"];
    let owner = node.labels.get(names::POOL)?;
    node.applied.as_deref()?.contains(&format!(r#""pool":"{owner}""#)).then_some(owner)
}

#[test]
fn a_node_keeps_a_taint_that_its_new_pool_wants_although_a_daemon_set_does_not_tolerate_it() {
    for way in WAYS {
        for spec in ["spec: {}", REPLACES] {
            let mut world = two_pools(spec, spec, way);
            world.daemon_sets = vec![agent()];
            goes(&mut world, way);
            for _ in 0..4 {
                world.wait(20);
                assert_eq!(world.taints("win"), [MINE], "{way:?} {spec}");
                world.rest();
            }
            world.wait(2);
            assert_eq!((owner(&world), world.taints("win")), (Some("other"), vec![MINE.to_owned()]), "{way:?} {spec}");
            let status = world.guarded("other").status.clone().unwrap();
            assert!(recorded_in(&status).contains(&MINE.to_owned()), "{way:?} {spec}: {:?}", status.taints);
        }
    }
}

#[test]
fn the_new_pool_removes_the_taint_when_it_is_deleted() {
    for way in WAYS {
        let mut world = two_pools("spec: {}", "spec: {}", way);
        world.daemon_sets = vec![agent()];
        goes(&mut world, way);
        world.wait(30);
        if !matches!(way, Way::Deletion) {
            world.delete();
            world.wait(30);
        }
        assert_eq!((world.pools.len(), world.taints("win")), (1, vec![MINE.to_owned()]), "{way:?}");
        world.change_pool("other", "metadata: {deletionTimestamp: '2026-03-01T12:00:00Z'}");
        world.wait(30);
        assert_eq!((world.pools.len(), owner(&world), world.taints("win").len()), (0, None, 0), "{way:?}");
    }
}

#[test]
fn a_node_loses_a_taint_that_its_new_pool_does_not_want() {
    let never = "spec: {taintPolicy: Never}";
    let another = "spec: {taints: [{key: example.com/os, value: win-b, effect: NoSchedule}]}";
    for way in WAYS {
        for (other, taints) in [(never, vec![]), (another, vec!["example.com/os=win-b:NoSchedule".to_owned()])] {
            let mut world = two_pools("spec: {}", other, way);
            goes(&mut world, way);
            world.wait(60);
            assert_eq!((owner(&world), world.taints("win")), (Some("other"), taints), "{way:?} {other}");
        }
    }
}

#[test]
fn a_node_keeps_the_taint_while_the_status_of_its_new_pool_cannot_be_written() {
    for way in WAYS {
        let mut world = two_pools("spec: {}", "spec: {}", way);
        world.refuse("WriteStatus", failed());
        goes(&mut world, way);
        world.wait(60);
        assert_eq!(world.taints("win"), [MINE], "{way:?}");
        world.accept_all();
        world.wait(60);
        assert_eq!((owner(&world), world.taints("win")), (Some("other"), vec![MINE.to_owned()]), "{way:?}");
    }
}

/// Otherwise the pool would be gone before its taint, and its class would be left to the user.
#[test]
fn the_new_pool_waits_for_its_node_although_the_answer_to_the_change_that_took_it_over_was_lost() {
    for way in WAYS {
        let mut world = two_pools("spec: {}", "spec: {}", way);
        world.unanswered.insert("win".to_owned());
        goes(&mut world, way);
        world.wait(30);
        assert_eq!((owner(&world), world.unanswered.len()), (Some("other"), 0), "{way:?}");
        let pools = world.pools.len();
        world.blocked.insert("win".to_owned());
        world.change_pool("other", "metadata: {deletionTimestamp: '2026-03-01T12:00:00Z'}");
        world.wait(30);
        assert_eq!(world.pools.len(), pools, "{way:?}");
    }
}
