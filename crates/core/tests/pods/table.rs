//! The table is the same whatever way the watch takes, and small.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{World, creating, decode, pod, runs, world};

const CLASS: &str = "windows-2022";

/// A pod of the class, on this node if there is one.
fn of_class(name: &str, node: Option<&str>) -> Value {
    pod(name, "", &json!({"nodeName": node, "runtimeClassName": CLASS}), &json!({}))
}

fn finished(name: &str) -> Value {
    pod(name, "win", &json!({"runtimeClassName": CLASS}), &json!({"phase": "Succeeded"}))
}

#[test]
fn a_class_is_in_use_until_its_last_pod_has_finished_or_is_gone() {
    let mut world = world();
    let mut terminating = of_class("web-3", Some("win"));
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.pods = vec![of_class("web-1", Some("win")), of_class("web-2", None), terminating, runs("other")];
    world.list();
    let users = world.table.users(CLASS);
    assert_eq!(users.describe(), "used by 3 pods, such as shop/web-1, shop/web-2, shop/web-3");
    world.table.see(&decode(&finished("web-1")), world.now);
    world.table.deleted("shop", "web-2");
    assert_eq!(world.table.users(CLASS).count, 1);
    world.pods.clear();
    world.list();
    assert_eq!(world.table.users(CLASS).count, 0, "the next list does not show it");
}

#[test]
fn a_list_that_breaks_off_forgets_nothing() {
    let mut world = world();
    world.pods = vec![of_class("web-1", None)];
    let now = world.now.instant;
    assert_eq!((world.table.is_complete, world.table.next_count(true, now)), (false, None));
    world.list();
    assert!(world.table.is_complete);
    world.table.begin_list();
    world.table.see(&decode(&of_class("web-2", None)), world.now);
    assert_eq!((world.table.is_complete, world.table.users(CLASS).count), (false, 2));
    world.table.begin_list();
    world.table.see(&decode(&of_class("web-3", None)), world.now);
    world.table.end_list();
    assert_eq!(world.table.users(CLASS).count, 1, "of the list that ended only web-3 is left");
}

#[test]
fn the_pods_of_a_daemon_set_have_one_placement_once_they_are_there() {
    let of_daemon_set = |number: usize, is_bound: bool| {
        let (name, node) = (format!("agent-{number}"), format!("win-{number}"));
        let fields = json!([{"key": "metadata.name", "operator": "In", "values": [node]}]);
        let required = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        let mut pod = pod(&name, "", &json!({"nodeName": is_bound.then_some(node), "affinity": affinity}), &json!({}));
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]);
        pod["metadata"]["ownerReferences"] = owner;
        pod
    };
    for (is_bound, expected) in [(true, 1), (false, 100)] {
        let mut world = world();
        world.pods = (0..100).map(|number| of_daemon_set(number, is_bound)).collect();
        world.list();
        let mut placements: Vec<*const _> =
            world.table.placements().map(|(placement, _)| std::ptr::from_ref(placement)).collect();
        placements.sort_unstable();
        placements.dedup();
        assert_eq!(placements.len(), expected, "bound: {is_bound}");
    }
}

#[test]
fn pods_that_were_created_before_their_class_got_its_selector_are_counted_by_workload() {
    let selecting = |name: &str, selector: Value| {
        let mut pod = of_class(name, None);
        pod["spec"]["nodeSelector"] = selector;
        pod
    };
    let mut world = world();
    let build = |build: &str| json!({"node.kubernetes.io/windows-build": build});
    world.pods = vec![
        selecting("web-5d8f7-a", build("10.0.17763")),
        selecting("web-5d8f7-b", json!({})),
        selecting("web-5d8f7-c", build("10.0.20348")),
        of_class("web-5d8f7-d", Some("win")),
    ];
    world.list();
    let early = world.summary().classes[CLASS].created_too_early.clone();
    assert_eq!(
        early.into_iter().map(|(name, count)| (name.to_string(), count)).collect::<Vec<_>>(),
        [("Deployment shop/web".to_owned(), 2)]
    );
}

#[test]
fn a_count_is_repeated_when_something_has_changed_or_a_pod_may_fail() {
    let mut world = world();
    let start = world.now.instant;
    world.pods = vec![creating("web-5d8f7-a")];
    world.list();
    assert_eq!(world.table.next_count(false, start), Some(start), "nothing was counted yet");
    world.summary();
    let after = |seconds| Some(start + Duration::from_secs(seconds));
    assert_eq!((world.table.next_count(true, start), world.table.next_count(false, start)), (after(10), None));
    // A network counts if it has failed for five minutes.
    world.event("web-5d8f7-a", "failed to setup network for sandbox: hcnCreateNetwork failed in Win32");
    world.summary();
    assert_eq!(world.table.next_count(false, start), after(10));
    world.wait(300);
    assert_eq!(world.summary().pools["default"].counts.len(), 1);
}

#[derive(Clone, Debug)]
enum Change {
    See(&'static str, u8),
    Delete(&'static str),
}

fn as_seen(name: &str, state: u8) -> Value {
    match state {
        0 => of_class(name, None),
        1 => of_class(name, Some("win")),
        2 => finished(name),
        _ => runs(name),
    }
}

/// What questions show of the table.
fn shown(world: &mut World) -> (usize, Vec<String>, String) {
    let names = world.table.placements().map(|(_, name)| name.to_owned()).collect();
    (world.table.users(CLASS).count, names, format!("{:?}", world.summary()))
}

proptest! {
    #[test]
    fn whatever_the_watch_showed_before_the_table_is_that_of_a_fresh_list(
        changes in vec(
            (select(vec!["a", "b", "c", "d"]), 0..5_u8).prop_map(|(name, state)| match state {
                4 => Change::Delete(name),
                state => Change::See(name, state),
            }),
            0..20,
        ),
    ) {
        let mut watching = world();
        let mut truth = std::collections::BTreeMap::new();
        watching.list();
        for change in changes {
            match change {
                Change::See(name, state) => {
                    watching.table.see(&decode(&as_seen(name, state)), watching.now);
                    truth.insert(name, state);
                }
                Change::Delete(name) => {
                    watching.table.deleted("shop", name);
                    truth.remove(name);
                }
            }
        }
        let mut fresh = world();
        fresh.pods = truth.iter().map(|(name, state)| as_seen(name, *state)).collect();
        fresh.list();
        prop_assert_eq!(shown(&mut watching), shown(&mut fresh));
        prop_assert_eq!(crate::common::table_of(&[], watching.now).users(CLASS).count, 0);
    }
}
