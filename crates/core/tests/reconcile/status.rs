//! Recorded taints, the published policy, and the status after writes that failed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use winpool_core::api::WindowsPoolStatus;
use winpool_core::api::names::{condition, reason};
use winpool_core::plan::attempt::{Outage, RequestError};
use winpool_core::plan::pods::UnknownPods;
use winpool_core::plan::reconcile::Step;

use super::cluster::{MINE, World, agent, denied, failed, pool};
use crate::common::{node, recorded_in};

pub const WIN_2019: &str = "{metadata: {labels: {node.kubernetes.io/windows-build: null}}, status: {nodeInfo: {kernelVersion: 10.0.17763.6659}}}";

#[test]
fn a_pool_comes_to_rest_with_classes_status_and_nodes() {
    let mut world = World::new([pool("{}")], [("win-2019", node(WIN_2019)), ("win-2022", node("{}"))]);
    world.rest();
    assert_eq!(world.classes.keys().collect::<Vec<_>>(), ["windows-2019", "windows-2022"]);
    assert_eq!((world.taints("win-2019"), world.taints("win-2022")), (vec![MINE.to_owned()], vec![MINE.to_owned()]));
    world.wait(2);
    assert_eq!(world.condition(condition::READY).0, "True Done");
    assert_eq!((world.at_registration(), recorded_in(&world.status())), (vec![MINE.to_owned()], vec![MINE.to_owned()]));
    assert!(world.status().runtime_classes.iter().all(|class| class.uid.is_some()), "what winpool created is recorded");
    world.take_sent(&[]);
    world.wait(70);
    assert_eq!(world.take_sent(&["Create", "Patch", "WriteStatus"]), [""; 0]);
}

#[test]
fn last_seen_is_kept_while_it_is_young_and_otherwise_renewed() {
    let now = "2026-03-01T12:00:00Z";
    for (before, expected) in [
        ("null", now),
        (now, now),
        ("2026-03-01T11:50:01Z", "2026-03-01T11:50:01Z"),
        ("2026-03-01T11:50:00Z", now),
        ("2026-03-01T12:00:01Z", now),
        ("not a time", now),
    ] {
        for spec in ["{}", "{mode: DryRun}", "{buildNames: [{build: x, version: x}]}"] {
            let world = World::at_rest(&format!("{{spec: {spec}, status: {{lastSeen: {before}}}}}"));
            assert_eq!(world.status().last_seen.unwrap().0.to_string(), expected, "{before} {spec}");
        }
    }
}

#[test]
fn a_pool_at_rest_says_every_ten_minutes_that_winpool_runs() {
    for spec in ["{}", "{mode: DryRun}", "{buildNames: [{build: x, version: x}]}"] {
        let mut world = World::at_rest(&format!("spec: {spec}"));
        world.wait(2);
        world.take_sent(&[]);
        world.restart();
        world.wait(597);
        assert_eq!(world.take_sent(&["WriteStatus"]), [""; 0], "{spec}: it is young, also after a restart");
        let before = world.status();
        world.wait(60);
        assert_eq!(world.take_sent(&["WriteStatus"]).len(), 1, "{spec}");
        let last_seen = world.status().last_seen;
        assert_eq!(world.status(), WindowsPoolStatus { last_seen, ..before }, "{spec}: nothing else changes");
    }
}

#[test]
fn every_pool_is_due_again_before_last_seen_is_old() {
    for spec in ["{}", "{mode: DryRun}", "{buildNames: [{build: x, version: x}]}"] {
        let mut world = World::at_rest(&format!("spec: {spec}"));
        world.wait(10);
        let Step::Wait(Some(due)) = world.step("default") else { panic!("{spec}") };
        assert!(due <= world.now.instant + Duration::from_mins(1), "{spec}");
    }
}

#[test]
fn a_class_that_cannot_be_written_is_pending_and_everything_else_continues() {
    for (refusal, expected) in [(failed(), reason::WRITE_FAILED), (denied(), reason::ADMISSION_DENIED)] {
        let mut world = World::new([pool("{}")], [("win-2019", node(WIN_2019)), ("win-2022", node("{}"))]);
        world.refuse("Create windows-2019", refusal);
        world.wait(2);
        let [problem] = world.problems(expected).try_into().unwrap_or_else(|all| panic!("{all:?}"));
        assert_eq!(problem.object.to_string(), "RuntimeClass windows-2019");
        assert!(world.condition(condition::READY).0.starts_with("False"), "{expected}");
        assert_eq!(world.taints("win-2022"), [MINE], "{expected}: its class is there");
        assert_eq!(
            world.taints("win-2019").is_empty(),
            expected == reason::WRITE_FAILED,
            "a refusal may last for ever"
        );
        assert_eq!(world.nodes["win-2019"].labels.get("node.kubernetes.io/windows-build"), Some("10.0.17763"));
        assert_eq!(world.status().nodes.selected, 2);

        world.accept_all();
        world.wait(605);
        assert!(world.classes.contains_key("windows-2019") && world.problems(expected).is_empty(), "{expected}");
    }
}

#[test]
fn the_pause_after_a_failed_write_grows_and_a_refusal_waits_for_ten_minutes() {
    for (refusal, tries) in [(failed(), 6), (denied(), 1)] {
        let mut world = World::with("{}");
        world.refuse("Create windows-2022", refusal);
        world.wait(30);
        assert_eq!(world.take_sent(&["Create"]).len(), tries);
    }
}

#[test]
fn a_permission_that_comes_back_is_noticed_within_a_minute() {
    let forbidden = "runtimeclasses.node.k8s.io is forbidden: User \"system:serviceaccount:winpool-system:winpool\" cannot create \
                     resource \"runtimeclasses\" in API group \"node.k8s.io\" at the cluster scope";
    let mut world = World::with("{}");
    world.refuse("Create windows-2022", RequestError::Denied(forbidden.to_owned()));
    world.wait(30);
    assert_eq!(world.problems(reason::ADMISSION_DENIED).len(), 1, "it is named meanwhile");
    world.accept_all();
    world.take_sent(&[]);
    world.wait(61);
    assert_eq!(world.take_sent(&["Create"]).len(), 1);
}

#[test]
fn what_status_does_not_record_is_not_published() {
    let mut world = World::new([pool("{}")], [("win", node(WIN_2019))]);
    world.refuse("WriteStatus", failed());
    world.wait(2);
    assert_eq!(world.nodes["win"].labels.get("winpool.dev/pool"), Some("default"), "a label needs no record");
    let published = world.operator.published.clone().unwrap();
    let ready = published.pool("default").unwrap();
    assert_eq!(ready.managed_taints.len(), 0);
    assert_eq!(world.taints("win"), [""; 0]);

    world.accept_all();
    world.wait(60);
    assert_eq!(world.taints("win"), [MINE]);
}

#[test]
fn a_status_that_conflicts_is_computed_again_from_the_pool_as_it_is() {
    let mut world = World::with("{}");
    world.refuse("WriteStatus", RequestError::Conflict);
    for _ in 0..10 {
        world.step("default");
    }
    world.accept_all();
    world.take_sent(&[]);
    world.rest();
    let sent = world.take_sent(&["ReadPool", "WriteStatus"]);
    assert!(sent.ends_with(&["ReadPool".to_owned(), "WriteStatus".to_owned()]) || sent == ["WriteStatus"], "{sent:?}");
}

#[test]
fn a_pool_whose_finalizer_cannot_be_added_does_nothing_and_says_so() {
    for (refusal, expected) in [(denied(), "False AdmissionDenied"), (failed(), "False WriteFailed")] {
        let mut world = World::with("metadata: {finalizers: null}");
        world.refuse("SetFinalizer true", refusal);
        world.rest();
        assert_eq!(world.condition(condition::READY).0, expected);
        let mut published = world.operator.published.iter().flat_map(|policy| policy.entries());
        assert!(world.classes.is_empty() && published.all(|entry| !entry.ready));
    }
}

#[test]
fn a_pool_that_needs_a_finalizer_now_and_cannot_get_it_stops_to_change_nodes() {
    let mut world = World::at_rest("{metadata: {finalizers: null}, spec: {deletionPolicy: Retain}}");
    world.refuse("SetFinalizer true", denied());
    world.change_pool("default", "spec: {deletionPolicy: Delete}");
    world.rest();
    world.change_node("win", |node| node.taints = Arc::default());
    world.rest();
    assert!(world.taints("win").is_empty());
    world.accept_all();
    world.wait(601);
    world.rest();
    assert_eq!(world.taints("win"), [MINE]);
}

#[test]
fn a_pool_in_dry_run_changes_no_node_even_if_its_finalizer_cannot_be_removed() {
    for refusal in [failed(), denied()] {
        let mut world = World::at_rest("{}");
        world.wait(2);
        world.refuse("SetFinalizer false", refusal);
        world.change_pool("default", "spec: {mode: DryRun}");
        world.rest();
        world.change_node("win", |node| node.taints = Arc::default());
        world.wait(2);
        assert_eq!((world.taints("win").len(), world.condition(condition::READY).0.as_str()), (0, "True DryRun"));
        assert_eq!(world.problems(reason::WRITE_FAILED).len(), 1, "it says what it waits for");
        world.accept_all();
        world.wait(601);
        assert!(!world.guarded("default").has_finalizer() && world.problems(reason::WRITE_FAILED).is_empty());
    }
}

#[test]
fn a_pool_with_another_uid_starts_with_an_empty_memory() {
    let mut world = World::at_rest("{}");
    world.change_pool("default", "metadata: {uid: other}");
    world.take_sent(&[]);
    world.rest();
    assert_eq!(world.sent[0], "ReadPool");
    assert_eq!(world.take_sent(&["Create"]), [""; 0]);
}

#[test]
fn no_node_is_changed_by_the_spec_of_a_former_pool_with_the_same_name() {
    let other = "{metadata: {name: other}, spec: {nodeSelector: {team: b}, runtimeClassNameFormat: 'other-{version}'}}";
    let mut world = World::new([pool("spec: {taintPolicy: TaintOnly}"), pool(other)], [("win", node("{}"))]);
    world.rest();
    assert_eq!(world.taints("win"), [MINE]);
    world.change_pool("default", "{metadata: {uid: new}, spec: {taintPolicy: Never}, status: null}");
    // A request for the new pool is in flight.
    for _ in 0..5 {
        world.step("other");
    }
    world.change_node("win", |node| node.taints = Arc::default());
    world.write_nodes();
    assert!(world.taints("win").is_empty());
}

#[test]
fn a_pool_that_selects_no_node_says_how_many_windows_nodes_there_are() {
    let mut world = World::with("spec: {nodeSelector: {team: a}}");
    world.rest();
    let (verdict, message) = world.condition(condition::READY);
    let expected = "nodeSelector {team: a} matches none of 1 Windows node: correct it, unless its node group has no nodes at present";
    assert_eq!((verdict.as_str(), message.as_str()), ("True NoNodesSelected", expected));
    world.add_node("other", &node("{}"));
    world.wait(2);
    assert!(world.condition(condition::READY).1.contains("2 Windows nodes"));
}

#[test]
fn a_pool_that_is_not_valid_keeps_its_taints_and_says_what_is_wrong() {
    let mut world = World::at_rest("{}");
    world.wait(2);
    world.change_pool("default", "spec: {taints: [{key: os, value: windows, effect: NoExecute}]}");
    world.wait(2);
    assert_eq!(world.condition(condition::READY).0, "False InvalidSpec");
    assert_eq!(world.has_taint("win"), (true, true));
}

#[test]
fn while_pods_are_unknown_an_unwanted_class_stays_and_nothing_else_waits() {
    let cases = [
        (UnknownPods::NotListed, false, 0),
        (UnknownPods::Unreadable("no answer".to_owned()), false, 1),
        (UnknownPods::Denied("pods is forbidden".to_owned()), true, 0),
    ];
    for (unknown, is_released, problems) in cases {
        let mut world = World::with("spec: {runtimeClasses: [{name: own, version: '2022'}]}");
        world.rest();
        world.advance(Duration::from_mins(2));
        world.unknown_pods = Some(unknown);
        world.change_pool("default", "spec: {runtimeClasses: null}");
        world.wait(2);
        assert_eq!(world.taints("win"), [MINE]);
        assert_eq!(world.problems(reason::PODS_NOT_SEEN).len(), problems);
        assert_eq!(world.is_released("own"), is_released, "without the permission it would wait for ever");
        world.unknown_pods = None;
        world.wait(10);
        assert_eq!(world.classes.contains_key("own"), is_released);
    }
}

#[test]
fn an_older_pool_that_was_not_looked_at_yet_keeps_younger_ones_off_its_nodes() {
    let older = pool("metadata: {name: older, creationTimestamp: '2025-01-01T00:00:00Z'}");
    let always = pool("spec: {taintPolicy: TaintOnly, runtimeClassNameFormat: 'own-{version}'}");
    let mut world = World::new([always, older], [("win", node("{}"))]);
    world.daemon_sets = vec![agent()];
    for _ in 0..30 {
        world.step("default");
    }
    assert!(world.operator.published.is_some());
    let published = world.operator.published.clone().unwrap();
    let owner = published.owner(&world.nodes["win"].labels).unwrap();
    assert_eq!((owner.pool.spec.name.as_str(), owner.ready), ("older", false));
    world.rest();
    assert!(world.taints("win").is_empty(), "a DaemonSet holds the taint of the older one");
}

#[test]
fn status_is_written_at_most_once_a_second_unless_it_records_a_taint() {
    let mut world = World::new([pool("spec: {taintPolicy: TaintOnly}")], [("win-0", node("{}"))]);
    world.wait(3);
    world.take_sent(&[]);
    for number in 1..=5 {
        world.add_node(&format!("win-{number}"), &node("{}"));
        world.rest();
    }
    assert_eq!(world.take_sent(&["WriteStatus"]).len(), 1);
    world.wait(2);
    assert_eq!(world.take_sent(&["WriteStatus"]).len(), 1);
    assert_eq!(world.status().nodes.converged, 6);
}

#[test]
fn while_a_kind_cannot_be_read_ready_is_unknown_and_no_node_gets_a_taint() {
    for (spec, kind) in [
        ("{}", "Nodes"),
        ("{}", "RuntimeClasses"),
        ("spec: {taintPolicy: TaintOnly}", "WindowsPools"),
        ("spec: {taintPolicy: TaintOnly, taints: [{key: os, value: windows, effect: PreferNoSchedule}]}", "Nodes"),
    ] {
        let mut world = World::at_rest(spec);
        world.wait(2);
        let wanted = world.taints("win");
        assert_eq!(wanted.len(), 1, "{spec}");
        for _ in 0..3 {
            world.read_fails(kind);
            world.wait(5);
        }
        // A short outage changes nothing.
        world.add_node("early", &node(WIN_2019));
        world.wait(6);
        assert_eq!(
            (world.taints("early"), world.condition(condition::READY).0),
            (wanted.clone(), "True Done".to_owned())
        );

        world.read_fails(kind);
        world.advance(Duration::from_secs(1));
        let steps: Vec<Step> = (0..4).map(|_| world.step("default")).collect();
        let [Step::Publish(_), Step::WriteStatus { .. }, ..] = steps.as_slice() else {
            panic!("{spec}: status says what is in force already: {steps:#?}")
        };
        world.wait(1);
        let unknown = "Unknown ReadFailed";
        for name in [condition::READY, condition::NODES_LABELED, condition::TAINTS_APPLIED] {
            let (verdict, message) = world.condition(name);
            assert!(verdict == unknown && message.contains(&format!("no answer about {kind}")), "{verdict}: {message}");
        }
        let before = world.at_registration();
        world.add_node("new", &node(WIN_2019));
        world.change_node("win", |node| node.taints = Arc::default());
        world.wait(40);
        assert_eq!((world.taints("win").len(), world.taints("new").len()), (0, 0), "{spec}: nor is one restored");
        assert_eq!(world.nodes["new"].labels.get("node.kubernetes.io/windows-build"), Some("10.0.17763"));
        assert_eq!(world.at_registration(), before, "{spec}");

        world.outages.clear();
        world.wait(2);
        assert_eq!((world.taints("win"), world.taints("new")), (wanted.clone(), wanted), "{spec}");
        assert_eq!(world.condition(condition::READY).0, "True Done");
    }
}

#[test]
fn a_new_pool_labels_its_nodes_while_a_kind_cannot_be_read() {
    let mut world = World::new([pool("{}")], [("win", node(WIN_2019))]);
    for _ in 0..2 {
        world.read_fails("Nodes");
        world.advance(Duration::from_secs(16));
    }
    world.rest();
    assert_eq!(world.nodes["win"].labels.get("node.kubernetes.io/windows-build"), Some("10.0.17763"));
    assert_eq!(world.taints("win"), [""; 0]);
}

#[test]
fn a_read_counts_as_failed_after_some_time_and_as_forbidden_only_while_it_is() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let after = |failures: &[(u64, bool)]| {
        let next = |before: Option<Outage>, (seconds, forbidden): &(u64, bool)| {
            Some(Outage::next(before.as_ref(), *forbidden, String::new(), at(*seconds)))
        };
        failures.iter().fold(None, next).unwrap()
    };
    for (failures, now, counts, forbidden) in [
        (&[(0, true)][..], 59, false, false),
        (&[(0, true)], 60, true, false),
        (&[(0, true), (14, true)], 50, false, false),
        (&[(0, true), (15, true)], 15, true, true),
        (&[(0, false), (15, false)], 15, true, false),
        (&[(0, false), (60, true)], 60, true, false),
        (&[(0, false), (60, true), (75, true)], 75, true, true),
        (&[(0, true), (60, true), (75, false)], 75, true, false),
    ] {
        let outage = after(failures);
        assert_eq!((outage.counts(at(now)), outage.is_forbidden()), (counts, forbidden), "{failures:?} at {now}");
    }
}

#[test]
fn a_status_that_another_writer_replaces_is_written_again_also_if_the_cache_did_not_show_it() {
    let without_times = |status: WindowsPoolStatus| {
        let mut status = WindowsPoolStatus { last_seen: None, ..status };
        let conditions = status.conditions.iter_mut();
        conditions.for_each(|condition| condition.last_transition_time = Time(Timestamp::UNIX_EPOCH));
        status
    };
    for is_shown in [true, false] {
        let mut world = World::at_rest("{}");
        world.wait(5);
        let written = without_times(world.status());
        for change in [
            "status: {conditions: [], nodes: {selected: 7, converged: 7}, summary: null}",
            "status: {taints: []}",
            "status: null",
        ] {
            if !is_shown {
                world.change_pool("default", "status: {summary: null}");
                world.advance(Duration::from_secs(5));
                while !matches!(world.step("default"), Step::WriteStatus { .. }) {}
            }
            world.change_pool("default", change);
            world.wait(5);
            assert_eq!(without_times(world.status()), written, "{change}, shown: {is_shown}");
        }
    }
}
