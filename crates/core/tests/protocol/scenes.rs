//! The scenes. Each is small enough to visit every state.

use std::time::Duration;

use super::cluster::Kind::{Agent, DaemonSet, Late, Other};
use super::events::End;
use super::events::Event::{self, *};
use super::explore;
use super::model::{Fault, Protocol, SCENE, Write};

const PLAIN: &str = "{taintPolicy: TaintOnly}";
const MINE: &str = "{taintPolicy: TaintOnly, taints: [{key: example.com/os, value: a, effect: NoSchedule}]}";
const OTHER: &str = "{taintPolicy: TaintOnly, taints: [{key: example.com/other, effect: NoSchedule}],
    retiredTaints: [{key: os, value: Win1809, effect: NoSchedule}]}";
const TEAM_B: &str = "{taintPolicy: TaintOnly, runtimeClassNameFormat: '{pool}-{version}', nodeSelector: {team: b}, taints: [{key: example.com/b, effect: NoSchedule}]}";

/// Waits for `DaemonSets` before it adds the taint.
const ASKS: &str = "{taints: [{key: example.com/os, value: win, effect: NoSchedule}]}";
const ASKS_IN_DRY_RUN: &str = "{mode: DryRun, taints: [{key: example.com/os, value: win, effect: NoSchedule}]}";
const ASKS_NEVER: &str = "{taintPolicy: Never, taints: [{key: example.com/os, value: win, effect: NoSchedule}]}";
const ASKS_TEAM_A: &str = "{nodeSelector: {team: a}, taints: [{key: example.com/os, value: win, effect: NoSchedule}]}";
const ASKS_AS_B: &str =
    "{runtimeClassNameFormat: '{pool}-{version}', taints: [{key: example.com/os, value: win, effect: NoSchedule}]}";
/// Both taints.
const ASKS_MORE: &str = "{taints: [{key: example.com/os, value: win, effect: NoSchedule}, {key: more.example.com/os, value: win, effect: NoSchedule}]}";
/// Another taint instead.
const REPLACES: &str = "{taints: [{key: more.example.com/os, value: win, effect: NoSchedule}], retiredTaints: [{key: example.com/os, value: win, effect: NoSchedule}]}";
const NO_TAINTS: &str = "{taintPolicy: Never}";

const TAINT: &str = "example.com/os";
const CLASS: &str = "windows-2022";
const AGENT: Event = Arrive("agent", DaemonSet, None);

/// A scene, which differs from [`SCENE`] in these fields, and the test that visits every state of it.
macro_rules! scenes {
    ($($(#[$doc:meta])* $scene:ident: $fact:ident { $($field:ident: $value:expr,)* })*) => {
        $($(#[$doc])* pub fn $scene() -> Protocol {
            Protocol { $($field: $value,)* ..SCENE }
        }

        #[test]
        fn $fact() {
            explore(stringify!($scene), $scene());
        })*
    };
}

scenes! {
    /// Other writers in between, at every step.
    strangers: other_writers_lose_nothing_whenever_they_write {
        scripts: &[
            &[Create("a", MINE)],
            &[
                Taint("n1", "dedicated", "batch", End::First),
                Retaint("n1", "dedicated", "web"),
                TakeBack("n1", "dedicated"),
            ],
            &[Beat("n1")],
        ],
    }

    /// A taint that means Windows in another spelling, one with the key that the pool wants too, and one that the pool retires.
    spellings: other_spellings_and_retired_taints_are_left_or_replaced {
        scripts: &[
            &[Create("a", PLAIN), Change("a", OTHER)],
            &[Taint("n1", "node.kubernetes.io/os", "windows", End::Last), Taint("n1", "os", "Win1809", End::Last)],
        ],
        retired: &["os"],
        lag: 0,
    }

    /// A node claims that winpool added a taint that another writer added.
    forgery: a_forged_claim_takes_nothing_off {
        scripts: &[
            &[Create("a", MINE), Delete("a")],
            &[Taint("n1", "dedicated", "batch", End::Last), Forge("n1", "dedicated=batch:NoSchedule")],
        ],
    }

    /// The pool's taint changes twice while a process dies.
    changes: a_changed_pool_leaves_no_taint_behind_under_any_leader {
        scripts: &[&[Create("a", PLAIN), Change("a", OTHER), Change("a", MINE)]],
        successors: 1,
        kept: [1, 3, 1],
        retired: &["os"],
        lag: 0,
    }

    /// The same, later, and with older caches.
    late_changes: a_changed_old_pool_is_recorded_under_any_leader {
        before: &[Create("a", PLAIN)],
        away: &[Untaint("n1", "os")],
        scripts: &[&[Change("a", OTHER)]],
        successors: 1,
        kept: [2, 4, 1],
        retired: &["os"],
        lag: 0,
    }

    /// The pool is deleted, and a process dies.
    deletion: a_deleted_pool_leaves_nothing_behind_under_any_leader {
        scripts: &[&[Create("a", MINE), Delete("a")]], successors: 1, kept: [2, 3, 1],
    }

    /// A pool that has existed for long is deleted, and a new leader may not have seen that.
    late_deletion: an_old_pool_is_deleted_under_any_leader {
        before: &[Create("a", MINE)],
        away: &[Untaint("n1", TAINT)],
        scripts: &[&[Delete("a")]],
        successors: 1,
        kept: [1, 3, 2],
        lag: 0,
    }

    /// Two pools: the node moves from one to the other while one of them is deleted.
    two_pools: a_node_that_changes_hands_has_the_marks_of_one_pool {
        before: &[Create("a", TEAM_B), Create("b", MINE)],
        scripts: &[&[Delete("a")], &[Move("n1", "b")]],
        lag: 0,
    }

    /// A node moves to another pool, the answer to that is lost, and the other pool is deleted.
    lost_move: a_pool_that_took_over_a_node_without_an_answer_leaves_nothing_behind {
        before: &[Create("a", TEAM_B), Create("b", ASKS_TEAM_A)],
        scripts: &[&[Move("n1", "b"), Delete("a")]],
        faults: &[Fault::Lost(Write::Node)],
        lag: 0,
    }

    /// A DaemonSet comes and is fixed at any time.
    arrivals: a_daemon_set_comes_and_is_fixed_at_any_time {
        scripts: &[&[Create("a", ASKS)], &[AGENT, Fix("agent")]], follows_pods: true, lazy: true,
    }

    /// The same for one that shows only by its pods that it is for Windows. Another writer takes the taint off.
    started: a_daemon_set_that_says_no_system_has_started_on_a_node {
        before: &[Arrive("agent", Agent, None)],
        scripts: &[&[Create("a", ASKS)], &[Remove("agent"), Untaint("n1", TAINT)]],
        follows_pods: true,
        successors: 1,
        kept: [1, 1, 1],
        lag: 0,
    }

    late_agent: a_daemon_set_comes_after_the_taint_and_the_node_loses_it {
        before: &[Create("a", ASKS)], scripts: &[&[Arrive("agent", Late, None), Untaint("n1", TAINT)]], follows_pods: true,
    }

    dry_run: a_dry_run_is_enforced {
        before: &[Create("a", ASKS_IN_DRY_RUN)], scripts: &[&[Change("a", ASKS)], &[AGENT]], follows_pods: true,
    }

    never: a_policy_of_never_ends {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", ASKS_NEVER), Change("a", ASKS)], &[AGENT]],
        follows_pods: true,
    }

    widened: a_selector_is_widened {
        nodes: &[("n1", "a"), ("n2", "b")],
        before: &[Create("a", ASKS_TEAM_A)],
        scripts: &[&[Change("a", ASKS)], &[AGENT]],
        follows_pods: true,
    }

    /// A user removes the taint of an ignored node, so that a pod runs there, and then removes the annotation.
    ignored: a_node_is_ignored_for_a_while {
        before: &[Create("a", ASKS)],
        scripts: &[&[Ignore("n1", true), Untaint("n1", TAINT), AGENT, Ignore("n1", false)]],
        follows_pods: true,
    }

    /// An older pool releases its nodes, and a younger one with the taint gets them.
    handover: an_older_pool_lets_a_node_go {
        nodes: &[("n1", "b"), ("n2", "a")],
        before: &[Create("a", "{nodeSelector: {team: a}, taintPolicy: Never}"), Create("b", ASKS_AS_B)],
        scripts: &[&[Delete("a")], &[AGENT]],
        follows_pods: true,
    }

    /// A pool replaces one taint by another while a DaemonSet comes.
    retired: a_retired_taint_stays_while_its_successor_waits {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", REPLACES)], &[AGENT, Remove("agent")]],
        follows_pods: true,
        lag: 0,
    }

    /// A class has to tolerate one more taint, and that write fails, is refused, or its answer is lost.
    classes: class_writes_fail_or_are_refused {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", ASKS_MORE)]],
        faults: &[Fault::Fails(Write::Class), Fault::Denied(Write::Class), Fault::Lost(Write::Class)],
    }

    /// Two builds, and one class write is refused.
    two_classes: one_class_is_refused_and_another_is_not {
        nodes: &[("n1", "a"), ("old1", "a")],
        before: &[Create("a", NO_TAINTS)],
        scripts: &[&[Change("a", ASKS)]],
        faults: &[Fault::Denied(Write::Class)],
        lag: 0,
    }

    /// A node starts with another build, whose class is refused the new toleration.
    upgrade: a_node_starts_with_another_build {
        nodes: &[("n1", "a"), ("old1", "a")],
        before: &[Create("a", NO_TAINTS)],
        scripts: &[&[Change("a", MINE)], &[Relabel("n1", "10.0.17763"), Report("n1", "10.0.17763.6189")]],
        faults: &[Fault::Denied(Write::Class)],
        lag: 0,
    }

    /// The kubelet only reports the new build, because it does not register its node.
    silent_upgrade: a_node_reports_another_build {
        scripts: &[&[Create("a", PLAIN)], &[Report("n1", "10.0.17763.6189")]],
    }

    /// Nodes register with the taint, while the pool gets another taint and a class cannot be created.
    registration: a_node_registers_with_the_taint {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", ASKS_MORE)], &[Join("n2", "a")]],
        faults: &[Fault::Denied(Write::Class)],
        born_tainted: true,
    }

    /// A new leader whose watches have just begun, while a node lacks its taint and a DaemonSet comes.
    successor: a_new_leader_knows_nothing {
        before: &[Create("a", ASKS)],
        scripts: &[&[Untaint("n1", TAINT), AGENT]],
        successors: 1,
        kept: [2, 1, 1],
        follows_pods: true,
        lag: 0,
    }

    /// winpool may not watch pods for a while, and a node lacks its taint.
    denied: pods_are_unknown_for_a_while {
        before: &[Create("a", ASKS)],
        scripts: &[&[Untaint("n1", TAINT), AGENT], &[DenyPods(true), DenyPods(false)]],
        follows_pods: true,
        lag: 0,
    }

    /// A node comes back as Linux while nobody leads, and the pool is deleted.
    reimaged: a_node_comes_back_as_linux {
        nodes: &[("n1", "a"), ("n2", "a")],
        before: &[Create("a", ASKS)],
        away: &[Reimage("n1")],
        scripts: &[&[Delete("a")], &[Reimage("n2")]],
    }

    /// Every request is refused once, and the pool is deleted nevertheless.
    refused_deletion: a_pool_goes_though_a_node_cannot_be_changed {
        before: &[Create("a", ASKS)],
        scripts: &[&[Delete("a")]],
        faults: &[
            Fault::Denied(Write::Node),
            Fault::Fails(Write::Class),
            Fault::Fails(Write::Finalizer),
            Fault::Lost(Write::Node),
        ],
        patience: Some(Duration::from_secs(15)),
    }

    /// Admission refuses a taint and accepts the label beside it, while the node changes.
    refused_taint: a_refused_taint_delays_no_label_and_is_not_insisted_on {
        before: &[RefuseTaints(true)],
        scripts: &[&[Create("a", PLAIN)], &[Beat("n1"), Taint("n1", "dedicated", "batch", End::Last), RefuseTaints(false)]],
        most_writes: Some(3),
    }

    /// The API server answers 409, while the node changes.
    conflicts: a_conflict_is_followed_by_a_fresh_read {
        scripts: &[&[Create("a", MINE)], &[Taint("n1", "dedicated", "batch", End::Last)]],
        faults: &[Fault::Conflicts(Write::Node)],
    }

    /// A node is deleted and registers again under its name, while patches of the first one are in flight.
    replaced: a_node_registers_again_under_its_name {
        before: &[Create("a", ASKS)],
        scripts: &[&[Untaint("n1", TAINT), Leave("n1"), Join("n1", "a")], &[AGENT]],
        follows_pods: true,
        lag: 0,
    }

    /// Admission accepts a patch, and reverts its taint.
    reverted_by_admission: a_taint_that_admission_reverts_is_not_insisted_on {
        before: &[RevertTaints(true)],
        scripts: &[&[Create("a", PLAIN)], &[Beat("n1"), RevertTaints(false)]],
        most_writes: Some(3),
    }

    /// The policy changes while a refused patch is in flight.
    refused_change: a_changed_pool_is_not_refused_for_its_former_taint {
        before: &[RefuseTaints(true)],
        scripts: &[&[Create("a", PLAIN), Change("a", NO_TAINTS), Change("a", MINE), RefuseTaints(false)]],
        most_writes: Some(6),
        lag: 0,
    }

    /// Another writer takes the taint off again and again.
    reverted_taint: a_taint_that_is_reverted_is_written_three_times_before_a_pause {
        before: &[Create("a", MINE)],
        scripts: &[&[Untaint("n1", TAINT), Untaint("n1", TAINT), Untaint("n1", TAINT), Untaint("n1", TAINT)]],
        most_writes: Some(3),
        lag: 0,
    }

    /// A kubelet invents labels under winpool's prefix.
    invented_labels: labels_that_a_kubelet_invents_are_removed_three_times_before_a_pause {
        before: &[Create("a", MINE)],
        scripts: &[&[Invent("n1", "a"), Invent("n1", "b"), Invent("n1", "c"), Invent("n1", "d")]],
        most_writes: Some(3),
        lag: 0,
    }

    /// A node comes back as Linux while a patch for it is in flight, and that is refused.
    refused_reimage: a_node_that_comes_back_as_linux_is_cleaned_once_that_is_allowed {
        before: &[Create("a", MINE)],
        scripts: &[&[RefuseTaints(true), Reimage("n1"), RefuseTaints(false)]],
        most_writes: Some(3),
    }

    /// A user renames a pool: creates another one with the same taint, and deletes the first. A DaemonSet comes meanwhile.
    renamed: a_taint_stays_recorded_while_its_pool_is_renamed {
        before: &[Create("a", ASKS)],
        scripts: &[&[Create("b", ASKS_AS_B), Delete("a")], &[AGENT]],
        follows_pods: true,
        lag: 0,
    }

    /// The status that records a new taint is refused, and a leader ends.
    unrecorded: a_taint_that_no_status_records_is_added_to_no_node {
        before: &[Create("a", ASKS)],
        scripts: &[&[Change("a", ASKS_MORE)]],
        faults: &[Fault::Denied(Write::Status)],
        patience: Some(Duration::from_secs(15)),
        successors: 1,
        kept: [1, 1, 1],
        lag: 0,
    }

    /// A pool is deleted while a pod of its class comes and goes, and the watch of pods is late, forbidden, or has just begun.
    class_in_use: a_class_is_deleted_only_if_the_watch_of_pods_shows_no_user {
        before: &[Create("a", PLAIN), Arrive("web", Other, Some(CLASS))],
        scripts: &[&[Delete("a")], &[Remove("web")], &[DenyPods(true)]],
        successors: 1,
        kept: [1, 1, 1],
        follows_pods: true,
        lag: 0,
    }
}
