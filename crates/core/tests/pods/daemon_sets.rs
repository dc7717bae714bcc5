//! `DaemonSets` for Windows, which may object to taints: since when they are known, and for how long.

use serde_json::{Value, json};
use winpool_core::pod::DaemonSet;

use super::{World, decode, pod, world};

/// A DaemonSet with these changes to its metadata.
fn set(name: &str, metadata: &Value, spec: &Value) -> DaemonSet {
    let mut object = json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"template": {"spec": spec}}});
    json_patch::merge(&mut object, &json!({"metadata": metadata}));
    serde_json::from_value(object).unwrap()
}

/// A DaemonSet that says Windows.
fn windows(name: &str) -> DaemonSet {
    set(name, &json!({}), &json!({"os": {"name": "windows"}}))
}

impl World {
    fn see_set(&mut self, set: &DaemonSet) {
        self.table.daemon_sets.see(set, self.now.instant);
    }

    fn list_sets(&mut self, sets: &[DaemonSet]) {
        self.table.daemon_sets.begin_list();
        for set in sets {
            self.see_set(set);
        }
        self.table.daemon_sets.end_list(self.now.instant);
    }

    /// The names of the `DaemonSets` for Windows, after a look.
    fn objectors(&mut self) -> Option<Vec<String>> {
        self.look();
        let objectors = self.table.objectors.as_ref()?.iter();
        Some(objectors.map(|objector| objector.name.trim_start_matches("DaemonSet shop/").to_owned()).collect())
    }
}

/// A cluster whose lists are complete, with these `DaemonSets`.
fn listed(sets: &[DaemonSet]) -> World {
    let mut world = world();
    world.list();
    world.list_sets(sets);
    world
}

#[test]
fn they_are_known_once_both_lists_are_complete() {
    let mut world = world();
    assert_eq!(world.objectors(), None);
    world.list();
    assert_eq!(world.objectors(), None);
    world.table.daemon_sets.begin_list();
    world.see_set(&windows("a"));
    assert_eq!(world.objectors(), None);
    world.table.daemon_sets.end_list(world.now.instant);
    assert_eq!(world.objectors().unwrap(), ["a"]);
    // During a later list the last result stays.
    world.table.daemon_sets.begin_list();
    world.see_set(&windows("b"));
    assert_eq!(world.objectors().unwrap(), ["a"]);
    world.see_set(&windows("a"));
    world.table.daemon_sets.end_list(world.now.instant);
    assert_eq!(world.objectors().unwrap(), ["a", "b"]);
}

#[test]
fn one_that_is_gone_counts_for_ten_minutes_unless_another_one_of_its_name_comes() {
    type Change = fn(&mut World);
    let goes: [(&str, Change); 3] = [
        ("it is deleted", |world| world.table.daemon_sets.deleted("shop", "a", world.now.instant)),
        ("it is being deleted", |world| {
            let metadata = json!({"deletionTimestamp": "2026-03-01T12:00:00Z"});
            world.see_set(&set("a", &metadata, &json!({"os": {"name": "windows"}})));
        }),
        ("the next list does not show it", |world| world.list_sets(&[])),
    ];
    for (fact, goes) in goes {
        let mut world = listed(&[windows("a")]);
        assert_eq!(world.objectors().unwrap(), ["a"]);
        assert_eq!(world.table.look_due(), None);
        goes(&mut world);
        let gone = world.now.instant;
        world.wait(300);
        goes(&mut world);
        world.wait(299);
        assert_eq!(world.objectors().unwrap(), ["a"], "{fact}");
        assert_eq!(world.table.look_due(), Some(gone + std::time::Duration::from_mins(10)), "{fact}");
        let mut replaced = listed(&[windows("a")]);
        goes(&mut replaced);
        world.wait(1);
        assert_eq!(world.objectors().unwrap(), [""; 0], "{fact}");

        replaced.wait(599);
        replaced.see_set(&windows("a"));
        replaced.wait(10_000);
        assert_eq!((replaced.objectors().unwrap(), replaced.table.look_due()), (vec!["a".to_owned()], None), "{fact}");
        // The one that replaces it tolerates the taint or says something else: that counts at once.
        goes(&mut replaced);
        replaced.see_set(&set("a", &json!({}), &json!({"os": {"name": "linux"}})));
        assert_eq!(replaced.objectors().unwrap(), [""; 0], "{fact}");
    }
}

#[test]
fn one_that_says_no_system_counts_once_a_pod_of_it_has_started_on_a_windows_node() {
    for (node, status, counts) in [
        ("win", json!({"phase": "Running"}), true),
        ("win", json!({"phase": "Pending"}), false),
        ("linux", json!({"phase": "Running"}), false),
    ] {
        let mut world = listed(&[set("a", &json!({}), &json!({}))]);
        assert_eq!(world.objectors().unwrap(), [""; 0]);
        let mut agent = pod("a-1", node, &json!({}), &status);
        agent["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "a", "uid": "u", "controller": true}]);
        world.table.see(&decode(&agent), world.now);
        assert_eq!(world.objectors().unwrap().len(), usize::from(counts), "{node} {status}");
    }
}
