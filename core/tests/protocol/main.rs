//! A model of the protocol between the operator, the API server and everybody else, checked in every order of events.
//!
//! The pieces are the product's own: plans, patches with their tests, evidence in status, when a pool may go. The model
//! adds what no unit test has: caches that are behind, crashes and successors at any step, others who write in between.
//! `docs/reliability.md` says what is assumed.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod model;
mod operator;
mod world;

use std::time::Instant;

use model::{Break, EVIDENCE, FOREIGN_TAINTS, Protocol, RIGHT_AT_REST};
use stateright::{Checker, HasDiscoveries, Model};
use world::{Edit, End, Stranger};

const PLAIN: &str = "{}";
const MINE: &str = "taints: [{key: example.com/mine, value: a, effect: NoSchedule}]";
const OTHER: &str = "{taints: [{key: example.com/other, effect: NoSchedule}], retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]}";
const TEAM_B: &str = "{nodeSelector: {team: b}, taints: [{key: example.com/b, effect: NoSchedule}]}";

/// Other writers in between, at every step.
fn strangers(broken: Break) -> Protocol {
    Protocol {
        broken,
        edits: &[Edit::Create("a", MINE)],
        strangers: &[
            Stranger::Adds("dedicated", "batch", End::First),
            Stranger::Changes("dedicated", "web"),
            Stranger::Removes("dedicated"),
            Stranger::Beats,
        ],
        successors: 0,
        retired: &[],
    }
}

/// A taint that means Windows in another spelling, one with the key that the pool wants too, and one that the pool retires.
fn spellings(broken: Break) -> Protocol {
    Protocol {
        broken,
        edits: &[Edit::Create("a", PLAIN), Edit::Respecify("a", OTHER)],
        strangers: &[
            Stranger::Adds("node.kubernetes.io/os", "windows", End::Last),
            Stranger::Removes("node.kubernetes.io/os"),
            Stranger::Adds("os", "Win1809", End::Last),
        ],
        successors: 0,
        retired: &["os"],
    }
}

/// A node that claims that winpool put on what somebody else did.
fn forgery(broken: Break) -> Protocol {
    Protocol {
        broken,
        edits: &[Edit::Create("a", MINE), Edit::Delete("a")],
        strangers: &[Stranger::Adds("dedicated", "batch", End::Last), Stranger::Forges("dedicated=batch:NoSchedule")],
        successors: 0,
        retired: &[],
    }
}

/// The pool's taint changes twice while a process dies.
fn changes(broken: Break) -> Protocol {
    Protocol {
        broken,
        edits: &[Edit::Create("a", PLAIN), Edit::Respecify("a", OTHER), Edit::Respecify("a", MINE)],
        strangers: &[],
        successors: 1,
        retired: &["os"],
    }
}

/// The pool goes, and processes die.
fn deletion(broken: Break) -> Protocol {
    Protocol {
        broken,
        edits: &[Edit::Create("a", MINE), Edit::Delete("a")],
        strangers: &[Stranger::Adds("dedicated", "batch", End::First)],
        successors: 1,
        retired: &[],
    }
}

/// Two pools: the node changes hands while one of them goes.
fn two_pools(broken: Break) -> Protocol {
    Protocol {
        broken,
        edits: &[Edit::Create("a", TEAM_B), Edit::Create("b", MINE), Edit::Delete("a")],
        strangers: &[Stranger::Labels("b")],
        successors: 0,
        retired: &[],
    }
}

/// Looks at every state that can be reached, and says how many there are.
fn explore(scene: &str, protocol: Protocol) {
    assert_eq!(protocol.broken, Break::Nothing);
    let started = Instant::now();
    let checker = protocol.checker().threads(2).spawn_dfs().join();
    checker.assert_properties();
    println!(
        "{scene}: {} states, {} transitions, {} steps at most, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed().as_secs_f64()
    );
}

/// Looks for the shortest way to break `property`, and prints it.
fn breaks(scene: &str, protocol: Protocol, property: &'static str) {
    let broken = protocol.broken;
    assert_ne!(broken, Break::Nothing);
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = protocol.checker().finish_when(found).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{broken:?} is not noticed in {scene}"));
    println!("{broken:?}, {scene}: not true after {} states that {property}:", checker.unique_state_count());
    for action in path.into_actions() {
        println!("    {action:?}");
    }
}

#[test]
fn other_writers_lose_nothing_whenever_they_write() {
    explore("strangers", strangers(Break::Nothing));
    explore("spellings", spellings(Break::Nothing));
    explore("forgery", forgery(Break::Nothing));
}

#[test]
fn a_pool_that_changes_leaves_no_taint_behind_whoever_leads() {
    explore("changes", changes(Break::Nothing));
}

#[test]
fn a_pool_that_goes_leaves_nothing_behind_whoever_leads() {
    explore("deletion", deletion(Break::Nothing));
}

#[test]
fn a_node_that_changes_hands_has_the_marks_of_one_pool() {
    explore("two pools", two_pools(Break::Nothing));
}

#[test]
fn without_its_tests_a_patch_loses_somebodys_taint() {
    breaks("strangers", strangers(Break::NoGuard), FOREIGN_TAINTS);
}

#[test]
fn a_taint_that_is_recorded_afterwards_may_stand_without_evidence() {
    breaks("strangers", strangers(Break::EvidenceAfterwards), EVIDENCE);
}

#[test]
fn without_evidence_a_forged_claim_takes_somebodys_taint_off() {
    breaks("forgery", forgery(Break::NoEvidence), FOREIGN_TAINTS);
}

#[test]
fn a_status_that_replaces_any_other_may_forget_a_taint() {
    breaks("changes", changes(Break::UnguardedStatus), EVIDENCE);
}

#[test]
fn a_pool_that_goes_without_a_second_look_may_leave_its_marks() {
    breaks("deletion", deletion(Break::BlindDeletion), RIGHT_AT_REST);
}

#[test]
fn a_new_leader_with_old_caches_may_mark_for_a_pool_that_is_gone() {
    breaks("deletion", deletion(Break::TrustsOldCaches), RIGHT_AT_REST);
}

#[test]
fn a_request_that_outlives_the_leadership_it_was_sent_under_may_leave_marks() {
    breaks("deletion", deletion(Break::NoFence), RIGHT_AT_REST);
}
