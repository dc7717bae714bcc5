//! Rare states: an API server that refuses a write for ever, objects that others keep, replaced pools, and many pools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::node::v1::RuntimeClass;
use winpool_core::api::WindowsPoolStatus;
use winpool_core::api::names::condition;
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::nodes::NodeTable;
use winpool_core::plan::pods::{PodHealth, UnknownPods};
use winpool_core::plan::pools::pool::{GuardedPool, PoolEntry};
use winpool_core::plan::reconcile::{CachedCluster, Note, Step};

use super::cluster::{MINE, World, failed, of_class, pool};
use crate::common::{node, now, recorded_in, yaml};

#[test]
fn a_status_that_conflicts_for_ever_is_written_with_growing_pauses() {
    for refusal in [RequestError::Conflict, RequestError::Gone] {
        let mut world = World::at_rest("{}");
        world.wait(2);
        world.refuse("WriteStatus", refusal);
        world.take_sent(&[]);
        world.add_node("new", &node("{}"));
        world.wait(60);
        let tries = world.take_sent(&["WriteStatus"]).len();
        assert!((3..20).contains(&tries), "{tries} in a minute");
        world.accept_all();
        world.wait(60);
        assert_eq!(world.status().nodes.converged, 2);
    }
}

#[test]
fn a_finalizer_that_conflicts_is_written_again_although_the_pool_does_not_change() {
    for (finalizers, deletes) in [("[]", false), ("[winpool.dev/cleanup]", true)] {
        let mut world = World::with(&format!("metadata: {{finalizers: {finalizers}}}"));
        world.refuse("SetFinalizer", RequestError::Conflict);
        if deletes {
            world.rest();
            world.delete();
        }
        world.rest();
        world.take_sent(&[]);
        world.wait(60);
        let tries = world.take_sent(&["SetFinalizer"]).len();
        assert!((2..20).contains(&tries), "{tries} in a minute");
        world.accept_all();
        world.wait(60);
        assert_eq!(world.take_sent(&["SetFinalizer"]), [format!("SetFinalizer {}", !deletes)]);
    }
}

#[test]
fn builds_that_a_node_no_longer_reports_leave_nothing_in_memory() {
    let mut world = World::at_rest("{}");
    let mut number = 30_000;
    let mut size_after = |rounds: usize| {
        for _ in 0..rounds {
            number += 1;
            world.change_node("win", |node| node.kernel_version = Some(format!("10.0.{number}.1").as_str().into()));
            world.wait(3);
            assert!(world.classes.len() <= 2, "{:?}", world.classes.keys());
        }
        world.operator.memory.take_notes();
        format!("{:?}", world.operator.memory).len()
    };
    let (few, many) = (size_after(5), size_after(50));
    assert!(many < 2 * few, "{few} bytes became {many}");
}

#[test]
fn a_class_is_reported_as_released_once_and_only_after_its_release() {
    let mut world = World::at_rest("{}");
    world.pods = vec![of_class("windows-2022")];
    world.refuse("Patch windows-2022", failed());
    world.operator.memory.take_notes();
    world.delete();
    world.wait(30);
    let released = |world: &mut World| {
        let notes = world.operator.memory.take_notes();
        notes.iter().filter(|(_, note)| matches!(note, Note::ClassReleased(..))).count()
    };
    assert_eq!(released(&mut world), 0, "it still has winpool's labels");
    world.accept_all();
    world.wait(60);
    assert!(world.is_released("windows-2022"));
    assert_eq!(released(&mut world), 1);
}

#[test]
fn a_class_that_a_foreign_finalizer_keeps_is_not_reported_as_deleted() {
    for (finalizers, deleted) in [("[]", 1), ("[example.com/keep]", 0)] {
        let mut world = World::at_rest("{}");
        world.change_class("windows-2022", &format!("metadata: {{finalizers: {finalizers}}}"));
        world.operator.memory.take_notes();
        world.delete();
        world.wait(3);
        let notes = world.operator.memory.take_notes();
        let count = notes.iter().filter(|(_, note)| matches!(note, Note::ClassDeleted(_))).count();
        assert_eq!(count, deleted, "{finalizers}: {notes:?}");
        assert_eq!(world.classes.contains_key("windows-2022"), deleted == 0);
    }
}

#[test]
fn a_cleaned_pool_that_a_foreign_finalizer_keeps_is_not_ready_and_names_the_finalizer() {
    for spec in ["{}", "{deletionPolicy: Retain}", "{mode: DryRun}"] {
        let keeps = if spec == "{}" { "winpool.dev/cleanup, example.com/hold" } else { "example.com/hold" };
        let mut world = World::at_rest(&format!("{{metadata: {{finalizers: [{keeps}]}}, spec: {spec}}}"));
        world.wait(2);
        assert!(world.condition(condition::READY).0.starts_with("True"), "{spec}");
        world.delete();
        world.wait(5);
        assert_eq!(world.guarded("default").metadata.finalizers, Some(vec!["example.com/hold".to_owned()]), "{spec}");
        let (verdict, message) = world.condition(condition::READY);
        assert_eq!(verdict, "False Deleting", "{spec}");
        assert!(message.contains("example.com/hold"), "{message}");
        world.take_sent(&[]);
        world.wait(20);
        assert_eq!(world.take_sent(&["WriteStatus", "SetFinalizer"]), [""; 0], "{spec}");
    }
}

#[test]
fn a_pool_that_replaces_another_of_its_name_does_not_inherit_its_taints() {
    let mut world = World::at_rest("spec: {deletionPolicy: Retain, taintPolicy: TaintOnly}");
    world.wait(2);
    // The deletion and the new pool are seen at the same moment.
    let new: GuardedPool = pool("{metadata: {uid: new}, spec: {taintPolicy: Never}}").into();
    let pools = [Arc::new(new)];
    let mut cluster = CachedCluster {
        pools: &pools,
        classes: &[],
        nodes: &mut NodeTable::new(Duration::from_mins(10)),
        unconfined: None,
        outages: BTreeMap::new(),
        pods: Err(UnknownPods::NotListed),
        unknown_daemon_sets: None,
        health: PodHealth::Off,
    };
    let Some(Step::Publish(policy)) = world.operator.memory.drop_gone(&mut cluster, now().instant) else {
        panic!("the old pool stays in force")
    };
    let [PoolEntry { pool, ready }] = policy.entries() else { panic!("{policy:?}") };
    assert_eq!((pool.consent.may_add, ready), (false, &false), "its nodes are left alone until it is looked at");
}

#[test]
fn a_class_whose_name_is_too_long_is_missing_and_the_pool_is_not_ready() {
    let mut world = World::at_rest(
        "spec: {buildNames: [{build: 10.0.20348, version: release-of-the-payments-team}], \
          runtimeClassNameFormat: 'windows-of-the-payments-team-in-the-west-{version}'}",
    );
    world.wait(2);
    assert!(world.classes.is_empty());
    assert_eq!(world.taints("win"), [MINE], "its nodes do not wait for a class that cannot be");
    for name in [condition::RUNTIME_CLASSES_APPLIED, condition::READY] {
        let (verdict, message) = world.condition(name);
        assert_eq!(verdict, "False ClassNameInvalid", "{name}: {message}");
        assert!(message.contains("runtimeClassNameFormat"), "{message}");
    }
}

/// The pool's status beside so many nodes, and the tolerations of each class.
fn beside(spec: &str, nodes: usize, shown: fn(usize) -> String) -> (WindowsPoolStatus, BTreeMap<String, usize>) {
    let honest = ("honest".to_owned(), node("{}"));
    let nodes = (0..nodes).map(|number| (format!("node-{number:04}"), node(&shown(number)))).chain([honest]);
    let nodes: Vec<_> = nodes.collect();
    let mut world = World::new([pool(spec)], nodes.iter().map(|(name, node)| (name.as_str(), node.clone())));
    world.wait(10);
    let tolerations = |class: &Arc<RuntimeClass>| class.scheduling.clone().unwrap().tolerations.unwrap().len();
    (world.status(), world.classes.iter().map(|(name, class)| (name.clone(), tolerations(class))).collect())
}

#[test]
fn hundreds_of_nodes_with_invented_values_get_no_class_and_a_status_about_as_small_as_ten() {
    const FEW: usize = 10;
    const MANY: usize = 300;
    let size = |status: &WindowsPoolStatus| serde_json::json!(status).to_string().len();
    let unreadable = |number: usize| {
        let version = format!("garbage {number} {}", "x".repeat(number));
        format!(
            "{{metadata: {{labels: {{node.kubernetes.io/windows-build: null}}}}, status: {{nodeInfo: {{kernelVersion: {version}}}}}}}"
        )
    };
    let [(few, _), (many, classes)] = [FEW, MANY].map(|nodes| beside("{}", nodes, unreadable));
    assert_eq!((many.nodes.blocked, many.problems.len()), (300, few.problems.len()));
    // The same with longer numbers.
    assert!(size(&many) < size(&few) + 50, "{} bytes became {}: {many:#?}", size(&few), size(&many));
    assert_eq!(classes, [("windows-2022".to_owned(), 1)].into());

    let liar = |number: usize| {
        let taint = format!("{{key: os, value: Windows{number}, effect: NoSchedule}}");
        let (build, version) = (format!("10.0.{}", 30_000 + number), format!("10.0.{}.{number}", 30_000 + number));
        format!(
            "{{metadata: {{labels: {{node.kubernetes.io/windows-build: {build}}}}}, spec: {{taints: [{taint}]}}, status: {{nodeInfo: {{kernelVersion: {version}}}}}}}"
        )
    };
    // Each of their taints is in the way of this one.
    let spec = "spec: {taints: [{key: os, value: windows, effect: NoSchedule}]}";
    let [(few, _), (many, classes)] = [FEW, MANY].map(|nodes| beside(spec, nodes, liar));
    assert_eq!((many.builds.len(), many.problems.len()), (32, 10));
    assert!(many.builds.iter().any(|build| build.build == "10.0.20348" && build.nodes == 1), "{:#?}", many.builds);
    assert!(many.taints.len() <= 32 && size(&many) < 3 * size(&few), "{} bytes became {}", size(&few), size(&many));
    assert_eq!(classes, [("windows-2022".to_owned(), 17)].into(), "the pool's own and a bounded number of others");
}

#[test]
fn the_record_of_taints_is_kept_if_another_release_wrote_the_status() {
    let mut object: serde_json::Value = serde_json::json!(pool("{}"));
    object["status"] = yaml(
        "{taints: [{taint: 'a=b:NoSchedule', since: '2026-01-01T00:00:00Z', atRegistration: true}], \
          summary: 7, nodes: {selected: many}, runtimeClasses: [{name: old, uid: u, build: Any, handler: h, state: Applied, nodes: 1}, \
          {name: new, uid: v, build: Any, handler: h, state: Renewed, nodes: 1}]}",
    );
    let guarded: GuardedPool = serde_json::from_value(object).unwrap();
    let read = guarded.read().unwrap();
    assert_eq!((read.managed_taints.len(), read.consent.since.len()), (1, 1));
    let status = guarded.status.unwrap();
    assert_eq!(recorded_in(&status), ["a=b:NoSchedule"]);
    let recorded: Vec<_> = status.runtime_classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(recorded, ["old"]);
}
