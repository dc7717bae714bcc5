//! Writes that the API server accepts and that a mutating webhook reverts, so that nothing changes.

use winpool_core::api::names::{condition, reason};
use winpool_core::plan::reconcile::Note;

use super::cluster::{World, pool};
use crate::common::node;

const WORDS: &str = "a mutating webhook or admission policy reverts it";

/// The number of requests of this kind in so many seconds.
fn sent_in(world: &mut World, seconds: u64, verb: &str) -> usize {
    world.take_sent(&[]);
    world.wait(seconds);
    world.take_sent(&[verb]).len()
}

#[test]
fn a_finalizer_that_is_reverted_is_a_refusal() {
    let mut world = World::with("metadata: {finalizers: []}");
    world.reverts = Some("SetFinalizer");
    world.wait(2);
    let (condition, message) = world.condition(condition::READY);
    assert_eq!(condition, "False AdmissionDenied");
    assert!(message.contains("finalizer") && message.contains(WORDS), "{message}");
    assert!(world.taints("win").is_empty());
    assert_eq!(sent_in(&mut world, 500, "SetFinalizer"), 0);
    world.reverts = None;
    world.wait(122);
    assert_eq!(world.has_taint("win"), (true, true));
}

#[test]
fn the_finalizer_of_a_deleted_pool_that_comes_back_is_removed_again_after_a_pause() {
    let mut world = World::at_rest("{}");
    world.reverts = Some("SetFinalizer");
    world.delete();
    world.wait(30);
    assert_eq!((world.pools.len(), sent_in(&mut world, 500, "SetFinalizer")), (1, 0));
    world.reverts = None;
    world.wait(120);
    assert!(world.pools.is_empty());
}

#[test]
fn a_status_that_is_reverted_proves_nothing() {
    let mut world = World::with("{}");
    world.reverts = Some("WriteStatus");
    world.wait(2);
    assert!(world.taints("win").is_empty(), "no status records the taint");
    let notes = world.operator.memory.take_notes();
    let says_so = |note: &Note| matches!(note, Note::Problem(problem) if problem.message.contains(WORDS));
    assert_eq!(notes.iter().filter(|(_, note)| says_so(note)).count(), 1, "{notes:?}");
    assert_eq!(sent_in(&mut world, 500, "WriteStatus"), 0);
    world.reverts = None;
    world.wait(122);
    assert_eq!(world.has_taint("win"), (true, true));
}

#[test]
fn an_api_server_that_does_not_store_the_taints_of_the_status_is_named_and_no_taint_is_added() {
    let mut world = World::with("{}");
    (world.reverts, world.prunes) = (Some("WriteStatus"), true);
    world.wait(5);
    let sent = world.operator.memory.status_of("default").unwrap();
    let ready = sent.conditions.iter().find(|found| found.type_ == condition::READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", reason::STATUS_NOT_STORED));
    assert!(ready.message.contains("apply the CustomResourceDefinition of this version"), "{}", ready.message);
    let problem = sent.problems.iter().find(|problem| problem.reason == reason::STATUS_NOT_STORED).unwrap();
    assert_eq!(problem.object.name, "windowspools.winpool.dev");
    assert!(world.taints("win").is_empty());
    let sent = sent_in(&mut world, 600, "WriteStatus");
    assert!((8..=18).contains(&sent), "{sent}, about once a minute");
    // The CustomResourceDefinition of this version was applied.
    (world.reverts, world.prunes) = (None, false);
    world.wait(62);
    assert_eq!((world.has_taint("win"), world.problems(reason::STATUS_NOT_STORED).len()), ((true, true), 0));
}

#[test]
fn a_class_that_is_reverted_is_a_refusal() {
    let mut world = World::new([pool("{}")], [("win", node("{}"))]);
    world.rest();
    world.reverts = Some("Patch windows-2022");
    world.change_class("windows-2022", "scheduling: {tolerations: []}");
    world.rest();
    assert_eq!(world.take_sent(&["Patch"]).len(), 1);
    world.wait(2);
    let problems = world.problems(reason::ADMISSION_DENIED);
    assert!(problems.len() == 1 && problems[0].message.contains(WORDS), "{problems:?}");
    world.add_node("new", &node("{}"));
    world.rest();
    assert!(world.taints("new").is_empty());
    assert_eq!(sent_in(&mut world, 500, "Patch"), 0);
    world.reverts = None;
    world.wait(122);
    assert_eq!(world.has_taint("new"), (true, true));
}
