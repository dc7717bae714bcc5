//! A model of the protocol between the operator, the API server and all other actors, checked in every order of
//! events.
//!
//! Its operator is winpool's own pool loop: the model executes the loop's steps, delays them and makes them fail. It
//! adds what unit tests lack: stale caches, crashes and new leaders at any step, concurrent writers, and `DaemonSets`
//! that come and go. `docs/reliability.md` lists the assumptions.

mod cluster;
mod events;
mod model;
mod operator;
mod properties;
mod scenes;
mod server;
mod shared;
mod state;

use std::time::Instant;

use model::{Break, Protocol};
use properties::{
    BUILD_IS_REPORTED, CLASS_FIRST, CLASS_IN_USE, DAEMON_SETS_KEPT, EVIDENCE, FOREIGN_TAINTS, NO_INSISTENCE,
    RIGHT_AT_REST,
};
use stateright::{Checker, DiscoveryClassification, HasDiscoveries, Model};

/// Visits every reachable state, and prints the number of states.
#[allow(clippy::needless_pass_by_value, reason = "each test makes its own")]
fn explore(scene: &str, protocol: Protocol) {
    let started = Instant::now();
    let threads = std::env::var("MODEL_THREADS").map_or(2, |text| text.parse().unwrap());
    let checker = protocol.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{scene}: {} states, {} transitions, {} steps at most, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        started.elapsed().as_secs_f64()
    );
    for (property, path) in checker.discoveries() {
        if matches!(checker.discovery_classification(property), DiscoveryClassification::Counterexample) {
            show(path);
            panic!("{scene}: not true that {property}");
        }
    }
    checker.assert_properties();
}

/// Finds the shortest way to violate `property`, and prints it.
#[allow(clippy::needless_pass_by_value, reason = "each test makes its own")]
fn breaks(scene: &str, protocol: Protocol, broken: Break, property: &'static str) {
    let protocol = Protocol { broken, only: Some(property), ..protocol };
    let found = HasDiscoveries::AnyOf([property].into());
    let checker = protocol.checker().finish_when(found).spawn_bfs().join();
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{broken:?} is not noticed in {scene}"));
    println!("{broken:?}, {scene}: not true after {} states that {property}:", checker.unique_state_count());
    show(path);
}

fn show(path: stateright::Path<state::State, model::Action>) {
    for action in path.into_actions() {
        println!("    {action:?}");
    }
}

macro_rules! broken {
    ($($name:ident: $scene:ident, $broken:ident, $property:ident;)*) => {
        $(#[test]
        fn $name() {
            breaks(stringify!($scene), scenes::$scene(), Break::$broken, $property);
        })*
    };
}

broken! {
    without_its_tests_a_patch_loses_a_taint_of_others: strangers, NoGuard, FOREIGN_TAINTS;
    without_its_tests_a_patch_writes_the_label_of_an_old_build: silent_upgrade, NoGuard, BUILD_IS_REPORTED;
    without_its_tests_a_patch_taints_a_node_for_which_a_class_is_behind: upgrade, NoGuard, CLASS_FIRST;
    a_taint_that_is_recorded_afterwards_may_stand_without_evidence: strangers, EvidenceAfterwards, EVIDENCE;
    without_evidence_a_forged_claim_takes_a_taint_of_others_off: forgery, NoEvidence, FOREIGN_TAINTS;
    a_status_that_replaces_any_other_may_forget_a_taint: late_changes, UnguardedStatus, EVIDENCE;
    a_pool_that_goes_without_a_second_look_may_leave_its_marks: deletion, BlindDeletion, RIGHT_AT_REST;
    a_new_leader_with_old_caches_may_mark_for_a_pool_that_is_gone: late_deletion, TrustsOldCaches, RIGHT_AT_REST;
    a_request_that_outlives_its_leadership_may_leave_marks: deletion, NoFence, RIGHT_AT_REST;
    a_registration_too_early_taints_a_node_before_its_class_tolerates_that: registration, EarlyRegistration, CLASS_FIRST;
    nodes_that_do_not_wait_for_classes_are_tainted_before_them: classes, NoLag, CLASS_FIRST;
    a_daemon_set_that_is_not_asked_loses_its_node: arrivals, ObjectorsIgnored, DAEMON_SETS_KEPT;
    a_daemon_set_that_counts_whatever_its_age_keeps_the_taint_off: late_agent, AgesIgnored, RIGHT_AT_REST;
    a_daemon_set_that_has_started_and_is_not_asked_loses_its_node: started, ObjectorsIgnored, DAEMON_SETS_KEPT;
    tables_that_are_trusted_before_their_first_lists_show_no_daemon_set: successor, TrustsUnlistedPods, DAEMON_SETS_KEPT;
    a_refusal_that_is_forgotten_is_repeated: refused_taint, ForgetsRefusals, NO_INSISTENCE;
    without_a_count_of_writes_winpool_fights_another_writer: reverted_taint, ForgetsWrites, NO_INSISTENCE;
    without_a_count_of_writes_winpool_fights_a_kubelet: invented_labels, ForgetsWrites, NO_INSISTENCE;
    without_the_version_in_answers_a_change_that_admission_reverts_is_repeated: reverted_by_admission, TrustsAnswers, NO_INSISTENCE;
    a_node_that_nobody_watches_as_linux_keeps_its_marks: reimaged, NoReimaged, RIGHT_AT_REST;
    a_plan_that_is_not_sent_in_parts_delays_a_label: refused_taint, NoParts, RIGHT_AT_REST;
    a_table_that_is_trusted_before_its_first_list_deletes_a_class_in_use: class_in_use, TrustsUnlistedPods, CLASS_IN_USE;
}
