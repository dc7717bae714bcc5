//! Rare states: an API server that refuses a write for ever, objects that others keep, replaced pools, and many pools.

use std::{sync::Arc, time::Duration};

use winpool_core::{
    api::names::{condition, reason},
    plan::{
        GuardedPool,
        reconcile::{Note, Refusal},
    },
};

use crate::{
    cluster::{MINE, World, denied, failed, intolerant, of_class, pool},
    common::{node, yaml},
};

#[test]
fn a_status_that_conflicts_for_ever_is_written_with_growing_pauses() {
    for refusal in [Refusal::Conflict, Refusal::Gone] {
        let mut world = World::checked("{}");
        world.wait(2);
        world.refuse("WriteStatus", refusal);
        world.take_sent(&[]);
        world.add_node("new", &node("{}"));
        world.rest();
        world.wait(60);
        let tries = world.take_sent(&["WriteStatus"]).len();
        assert!((3..20).contains(&tries), "{tries} in a minute");
        world.accept_all();
        world.wait(60);
        assert_eq!(world.status().nodes.converged, 2);
    }
}

#[test]
fn builds_that_a_node_no_longer_reports_leave_nothing_in_memory() {
    let mut world = World::checked("{}");
    let mut number = 30_000;
    let mut size_after = |rounds: usize| {
        for _ in 0..rounds {
            number += 1;
            world.change_node("win", |node| node.kernel_version = Some(format!("10.0.{number}.1").into()));
            world.wait(3);
            assert!(world.classes.len() <= 2, "{:?}", world.classes.keys());
        }
        format!("{:?}", world.memory).len()
    };
    let (few, many) = (size_after(5), size_after(50));
    assert!(many < 2 * few, "{few} bytes became {many}");
}

#[test]
fn a_class_is_reported_as_released_once_and_only_after_its_release() {
    let mut world = World::checked("{}");
    world.pods = Ok(vec![of_class("windows-2022")]);
    world.refuse("Patch windows-2022", failed());
    world.memory.take_notes();
    world.delete();
    world.rest();
    world.wait(30);
    let released = |world: &mut World| {
        let notes = world.memory.take_notes();
        notes.iter().filter(|(_, note)| matches!(note, Note::ClassReleased { .. })).count()
    };
    assert_eq!(released(&mut world), 0, "it still has winpool's labels");
    world.accept_all();
    world.wait(60);
    assert!(world.is_released("windows-2022"));
    assert_eq!(released(&mut world), 1);
}

#[test]
fn a_changed_pool_is_not_reported_with_the_workloads_of_its_last_check() {
    let mut world = World::with("{}");
    world.pods = Ok(vec![intolerant("win")]);
    world.check();
    world.wait(2);
    assert_eq!(world.condition(condition::TAINTS_APPLIED).0, "False WorkloadsNotTolerating");
    world.change_pool("default", "spec: {taints: [{key: dedicated, effect: NoSchedule}]}");
    world.rest();
    world.wait(2);
    assert_eq!(world.status().observed_generation, Some(2));
    let (verdict, message) = world.condition(condition::TAINTS_APPLIED);
    assert_eq!(verdict, "False Waiting", "{message}");
    world.wait(10);
    world.check();
    world.wait(2);
    let (verdict, message) = world.condition(condition::TAINTS_APPLIED);
    assert!(verdict == "False WorkloadsNotTolerating" && message.starts_with("dedicated"), "{verdict}: {message}");
}

#[test]
fn a_cleaned_pool_that_a_foreign_finalizer_keeps_is_not_ready_and_names_the_finalizer() {
    for spec in ["{}", "{deletionPolicy: Retain}", "{mode: DryRun}"] {
        let keeps = if spec == "{}" { "winpool.dev/cleanup, example.com/hold" } else { "example.com/hold" };
        let mut world = World::checked(&format!("{{metadata: {{finalizers: [{keeps}]}}, spec: {spec}}}"));
        world.wait(2);
        assert!(world.condition(condition::READY).0.starts_with("True"), "{spec}");
        world.delete();
        world.rest();
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
fn a_pool_that_replaces_another_of_its_name_does_not_inherit_what_that_one_might_do() {
    let mut world = World::checked("spec: {deletionPolicy: Retain, taintPolicy: Always}");
    world.wait(2);
    // The deletion and the new pool are seen at the same moment.
    let new: GuardedPool = pool("{metadata: {uid: new, finalizers: null}, spec: {taintPolicy: Never}}").into();
    world.pools = vec![Arc::new(new)];
    world.refuse("SetFinalizer", denied());
    world.rest();
    world.add_node("new", &node("{}"));
    world.rest();
    assert_eq!(world.condition(condition::READY).0, "False AdmissionDenied");
    assert_eq!((world.taints("new"), world.nodes["new"].labels.get("winpool.dev/pool")), (vec![], None));
}

#[test]
fn every_pool_gets_its_check_even_if_many_others_hold_their_taints() {
    const MANY: usize = 70;
    let names: Vec<String> = (0..MANY).map(|number| format!("p{number:02}")).collect();
    let spec = |name: &str| {
        pool(&format!(
            "{{metadata: {{name: {name}}}, spec: {{nodeSelector: {{team: {name}}}, runtimeClassDiscovery: Disabled}}}}"
        ))
    };
    let of_team = |name: &String| node(&format!("metadata: {{labels: {{team: {name}}}}}"));
    let nodes: Vec<_> = names.iter().map(|name| (name.as_str(), of_team(name))).collect();
    let mut world = World::new(names.iter().map(|name| spec(name)), nodes);
    let last = names.last().unwrap();
    world.pods = Ok(names.iter().filter(|name| *name != last).map(|name| intolerant(name)).collect());
    for _ in 0..4 {
        world.check();
        world.advance(Duration::from_mins(1));
    }
    assert_eq!(world.taints(last), [MINE]);
    world.rest();
    for name in names.iter().filter(|name| *name != last) {
        let status = world.guarded(name).status.clone().unwrap();
        let applied = status.conditions.iter().find(|found| found.type_ == condition::TAINTS_APPLIED).unwrap();
        assert_eq!(applied.reason, reason::WORKLOADS_NOT_TOLERATING, "{name}");
    }
}

#[test]
fn a_class_whose_name_is_too_long_is_missing_and_the_pool_is_not_ready() {
    let mut world = World::checked(
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

#[test]
fn the_record_of_taints_is_kept_if_another_release_wrote_the_status() {
    let mut object: serde_json::Value = serde_json::json!(pool("{}"));
    object["status"] = yaml(
        "{managedTaints: ['a=b:NoSchedule'], approvedTaints: [{taint: 'a=b:NoSchedule', since: '2026-01-01T00:00:00Z'}], \
          summary: 7, nodes: {selected: many}, runtimeClasses: [{name: old, uid: u, build: Any, handler: h, state: Applied, nodes: 1}, \
          {name: new, uid: v, build: Any, handler: h, state: Renewed, nodes: 1}]}",
    );
    let guarded: GuardedPool = serde_json::from_value(object).unwrap();
    let read = guarded.read().unwrap();
    assert_eq!((read.ever_applied.len(), read.approved.len()), (1, 1));
    let status = guarded.status.unwrap();
    assert_eq!(status.managed_taints, ["a=b:NoSchedule"]);
    let recorded: Vec<_> = status.runtime_classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(recorded, ["old"]);
}
