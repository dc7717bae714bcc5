//! The schedule of workload checks, and the validity of their results.

use std::time::Duration;

use winpool_answers::prediction::WorkloadCheck;
use winpool_core::{
    api::names::condition,
    plan::reconcile::{CheckTask, Step},
    pod::WorkloadKind,
};

use super::{
    cluster::{MINE, World, failed, intolerant, of_class, pool},
    status::WIN_2019,
};
use crate::common::{node, yaml};

/// A pool whose node runs a pod that does not tolerate the taint, after the first check.
fn held() -> World {
    let mut world = World::with("{}");
    world.pods = Ok(vec![intolerant("win")]);
    assert!(world.check());
    world.wait(2);
    assert_eq!(world.condition(condition::TAINTS_APPLIED).0, "False WorkloadsNotTolerating");
    world
}

/// The pools `a` and `b` with one node each, `win-a` and `win-b`.
fn two_pools() -> World {
    let spec = "nodeSelector: {team: TEAM}, runtimeClassNameFormat: '{pool}-{version}'";
    let of_team = |team: &str| pool(&format!("{{metadata: {{name: {team}}}, spec: {{{spec}}}}}").replace("TEAM", team));
    let in_team = |team: &str| node(&format!("metadata: {{labels: {{team: {team}}}}}"));
    World::new([of_team("a"), of_team("b")], [("win-a", in_team("a")), ("win-b", in_team("b"))])
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn one_listing_serves_all_pools() {
    let mut world = two_pools();
    let check = world.due_check().unwrap();
    let asked: Vec<_> = check.scope().questions.iter().map(|question| question.pool.clone()).collect();
    assert_eq!(asked, ["a", "b"]);
    assert!(world.start_check().is_none(), "one at a time");
    world.end_check(check);
    assert_eq!((world.taints("win-a").len(), world.taints("win-b").len()), (1, 1));
}

#[test]
fn questions_that_had_no_room_in_a_check_come_first_in_the_next_one() {
    let pools = ["a", "b", "c", "d", "e"].map(|name| {
        let taints: Vec<String> =
            (0..16).map(|number| format!("{{key: taint-{number}, effect: NoSchedule}}")).collect();
        pool(&format!(
            "{{metadata: {{name: {name}}}, spec: {{nodeSelector: {{team: {name}}}, taints: [{}], \
              runtimeClassNameFormat: '{name}-{{version}}'}}}}",
            taints.join(", ")
        ))
    });
    let nodes = ["a", "b", "c", "d", "e"].map(|team| (team, node(&format!("metadata: {{labels: {{team: {team}}}}}"))));
    let mut world = World::new(pools, nodes);
    world.pods = Ok(["a", "b", "c", "d"].map(intolerant).to_vec());
    assert!(world.check());
    world.advance(seconds(11));
    assert!(world.check());
    assert_eq!((world.taints("d").len(), world.taints("e").len()), (0, 16));
}

#[test]
fn without_a_waiting_node_there_is_no_check() {
    for spec in ["spec: {taintPolicy: Always}", "spec: {taintPolicy: Never}", "spec: {nodeSelector: {team: b}}"] {
        assert!(World::with(spec).due_check().is_none(), "{spec}");
    }
    let mut lagging = World::with("{}");
    lagging.class(
        "{metadata: {name: windows-2022, labels: {winpool.dev/pool: default, app.kubernetes.io/managed-by: winpool}}, \
          handler: runhcs-wcow-process}",
    );
    lagging.refuse("Patch", failed());
    assert!(lagging.due_check().is_none(), "its class does not tolerate the taint yet");
    lagging.wait(2);
    assert!(lagging.condition(condition::TAINTS_APPLIED).1.contains("windows-2022"));
}

#[test]
fn a_listing_is_followed_by_a_pause_of_ten_seconds_and_of_ten_times_its_duration_or_once_that_if_it_failed() {
    for (fails, duration, pause) in
        [(false, 0, 10), (false, 1, 10), (false, 3, 30), (false, 60, 600), (true, 1, 10), (true, 4, 10), (true, 60, 60)]
    {
        let mut world = World::with("{}");
        drop(world.due_check().unwrap());
        world.advance(seconds(duration));
        world.finish_check(if fails { Err("a time-out".to_owned()) } else { Ok([].into()) });
        world.advance(seconds(pause - 1));
        assert!(world.due_check().is_none(), "{duration}");
        world.advance(seconds(1));
        assert!(world.due_check().is_some(), "{duration}");
    }
}

#[test]
fn a_held_taint_is_checked_again_every_minute_and_at_once_when_a_class_changes() {
    let mut world = held();
    // The check ended two seconds ago.
    world.advance(seconds(57));
    assert!(world.due_check().is_none());
    world.advance(seconds(1));
    let check = world.due_check().unwrap();
    world.end_check(check);

    world.advance(seconds(11));
    assert!(world.due_check().is_none());
    world.class("{metadata: {name: foreign}, handler: h}");
    assert!(world.due_check().is_some(), "a new class");
}

#[test]
fn a_taint_that_goes_when_the_node_is_ready_hides_no_workload() {
    for key in ["node.kubernetes.io/not-ready", "readiness.k8s.io/cni"] {
        let starting = format!("spec: {{taints: [{{key: {key}, effect: NoSchedule}}]}}");
        let mut world = World::new([pool("{}")], [("win", node(&starting))]);
        let web = "{metadata: {namespace: shop, name: web}, spec: {template: {spec: {os: {name: windows}}}}}";
        world.workloads = vec![(WorkloadKind::Deployment, yaml(web))];
        assert!(world.check());
        world.wait(2);
        assert_eq!(world.condition(condition::TAINTS_APPLIED).0, "False WorkloadsNotTolerating", "{key}");
    }
}

#[test]
fn a_pool_in_dry_run_gives_no_pod_a_class_and_shows_what_it_would_give() {
    let web = "{metadata: {namespace: shop, name: web}, spec: {template: {spec: {os: {name: windows}}}}}";
    let tainted = |pools: [&str; 2]| {
        let mut world = World::installed("assign-class", pools.map(pool), [("win", node("{}"))]);
        world.workloads = vec![(WorkloadKind::Deployment, yaml(web))];
        world.check();
        world.wait(2);
        (world.taints("win"), world.condition(condition::TAINTS_APPLIED).0)
    };
    let default = |mode: &str| {
        format!(
            "spec: {{mode: {mode}, nodeSelector: {{team: a}}, runtimeClasses: [{{name: own, version: '2022'}}], \
               podDefaults: {{runtimeClassName: own}}}}"
        )
    };
    let other = "metadata: {name: other}";
    assert_eq!(tainted([&default("Enforce"), other]).0, [MINE]);
    assert_eq!(tainted([&default("DryRun"), other]).0, [""; 0], "the policy does not act for it");
    let of_others = default("Enforce").replace("runtimeClassName: own", "runtimeClassName: windows-2022");
    assert_eq!(tainted([&of_others, other]).0, [""; 0], "the policy gives only classes of its pool");
    let dry = "spec: {mode: DryRun, podDefaults: {runtimeClassName: windows-2022}}";
    assert_eq!(tainted([dry, "{metadata: {name: other}, spec: {nodeSelector: {team: a}}}"]).1, "False DryRun");
}

#[test]
fn workloads_of_listed_kinds_are_asked_for_by_name_every_five_seconds() {
    let mut world = World::with("{}");
    world.workloads = (0..12)
        .map(|number| {
            let object = format!("{{metadata: {{namespace: shop, name: web-{number:02}}}, spec: {{template: {{spec: {{os: {{name: windows}}}}}}}}}}");
            (WorkloadKind::Deployment, yaml(&object))
        })
        .collect();
    world.pods = Ok(vec![intolerant("win")]);
    assert!(world.check());
    world.advance(seconds(4));
    assert!(world.start_check().is_none());
    world.advance(seconds(1));
    let Some(CheckTask::Named { pool, workloads, scope }) = world.start_check() else { panic!("nobody is asked") };
    assert_eq!((pool.as_str(), workloads.len()), ("default", 10));
    assert!(workloads.iter().all(|(kind, ..)| *kind == WorkloadKind::Deployment), "a pod has no template");
    let fixed: winpool_core::pod::Workload = yaml(
        "{metadata: {name: a}, spec: {template: {spec: {os: {name: windows}, tolerations: [{operator: Exists}]}}}, \
         status: {updatedReplicas: 1}}",
    );
    let check = WorkloadCheck::start(*scope);
    let settled = [&world.workloads[0].1, &fixed].map(|workload| check.is_settled(WorkloadKind::Deployment, workload));
    assert_eq!(settled, [false, true]);

    world.memory.asked("default", false);
    world.advance(seconds(4));
    assert!(world.start_check().is_none());
    world.advance(seconds(1));
    assert!(matches!(world.start_check(), Some(CheckTask::Named { .. })));
    world.memory.asked("default", true);
    assert!(world.due_check().is_some(), "a fixed workload ends the hold in seconds");
}

#[test]
fn a_result_is_dropped_if_its_subject_changed_meanwhile() {
    type Change = fn(&mut World);
    const SELECTS: &str = "scheduling: {nodeSelector: {kubernetes.io/os: windows}}";
    const TOLERATES: &str = "scheduling: {tolerations: [{key: a, operator: Exists}]}";
    let cases: [(&str, Change, bool); 13] = [
        ("nothing changed", |_| {}, true),
        ("a class has other labels", |world| world.change_class("foreign", "metadata: {labels: {a: b}}"), true),
        ("a class selects other nodes", |world| world.change_class("foreign", SELECTS), false),
        ("a class tolerates something else", |world| world.change_class("foreign", TOLERATES), false),
        ("a class is gone", |world| drop(world.classes.remove("foreign")), false),
        ("a class of Linux changed", |world| world.change_class("linux", TOLERATES), true),
        ("a class of Linux is gone", |world| drop(world.classes.remove("linux")), true),
        ("a class of Linux becomes one of Windows", |world| world.change_class("linux", SELECTS), false),
        ("a class of another pool changed", |world| world.change_class("other", TOLERATES), true),
        (
            "a class is of another pool from now on",
            |world| world.change_class("foreign", "scheduling: {nodeSelector: {team: b}}"),
            false,
        ),
        ("a class is new", |world| world.class("{metadata: {name: new}, handler: h}"), true),
        (
            "the spec changed",
            |world| world.change_pool("default", "spec: {retiredTaints: [{key: a, effect: NoSchedule}]}"),
            false,
        ),
        ("a node registered", |world| world.add_node("new", &node("{}")), true),
    ];
    for (fact, change, is_good) in cases {
        let in_team = node("metadata: {labels: {team: a}}");
        let mut world = World::new([pool("spec: {nodeSelector: {team: a}}")], [("win", in_team)]);
        world.class("{metadata: {name: foreign}, handler: h}");
        world.class("{metadata: {name: linux}, handler: h, scheduling: {nodeSelector: {kubernetes.io/os: linux}}}");
        world.class("{metadata: {name: other}, handler: h, scheduling: {nodeSelector: {team: b}}}");
        world.pods = Ok(vec![of_class("foreign"), of_class("linux"), of_class("other")]);
        world.check_during(change);
        assert_eq!(world.taints("win") == [MINE], is_good, "{fact}");
    }
}

#[test]
fn a_class_that_changes_all_the_time_voids_no_check_of_workloads_that_do_not_use_it() {
    const BUSY: &str = "{metadata: {name: busy}, handler: h, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}";
    let mut change = 0;
    let mut busy = |world: &mut World| {
        change += 1;
        world.change_class("busy", &format!("scheduling: {{tolerations: [{{key: a-{change}, operator: Exists}}]}}"));
    };
    for is_used in [false, true] {
        let mut world = World::with("{}");
        world.class(BUSY);
        world.pods = Ok(vec![of_class("foreign")]);
        world.pods.as_mut().unwrap().extend(is_used.then(|| of_class("busy")));
        world.check_during(&mut busy);
        busy(&mut world);
        world.rest();
        assert_eq!(world.taints("win") == [MINE], !is_used);
        world.add_node("new", &node("{}"));
        world.rest();
        assert_eq!(world.taints("new") == [MINE], !is_used, "it is approved");
    }
}

#[test]
fn a_node_that_registers_during_the_first_check_is_not_covered_by_it() {
    let mut world = World::with("{}");
    world.check_during(|world| drop(world.nodes.insert("later".to_owned(), crate::common::read(&node("{}")))));
    assert_eq!((world.taints("win").len(), world.taints("later").len()), (1, 0));
    world.advance(seconds(11));
    assert!(world.check());
    assert_eq!(world.taints("later"), [MINE]);
}

#[test]
fn a_check_that_failed_is_reported_and_repeated() {
    let mut world = World::with("{}");
    world.fail_check("the server is down");
    let (verdict, message) = world.condition(condition::TAINTS_APPLIED);
    assert_eq!(verdict, "Unknown WorkloadCheckFailed");
    assert!(message.contains("the server is down"), "{message}");
    assert_eq!(world.condition(condition::READY).0, "False WorkloadCheckFailed");
    world.wait(10);
    assert!(world.check());
    assert_eq!(world.taints("win"), [MINE]);
}

#[test]
fn status_says_what_holds_a_taint_in_a_dry_run_too() {
    for (spec, pods, expected) in [
        ("{}", Err("pods is forbidden".to_owned()), "pods is forbidden"),
        ("{}", Ok(vec![intolerant("win")]), "Pod shop/web"),
        ("{metadata: {finalizers: null}, spec: {mode: DryRun}}", Ok(vec![intolerant("win")]), "would be held"),
    ] {
        let mut world = World::with(spec);
        world.pods = pods;
        assert!(world.check());
        world.wait(2);
        let (verdict, message) = world.condition(condition::TAINTS_APPLIED);
        assert_eq!((verdict.as_str(), world.has_taint("win")), ("False WorkloadsNotTolerating", (false, false)));
        assert!(message.contains(expected), "{message}");
        let writes = world.take_sent(&["Create", "Patch", "SetFinalizer"]);
        assert_eq!(writes.is_empty(), spec.contains("DryRun"), "{writes:?}");
    }
}

#[test]
fn while_nothing_is_due_the_loop_sleeps_until_the_next_check() {
    let world = held();
    let due = world.memory.check_due(world.now.instant).unwrap();
    assert!(due > world.now.instant && due <= world.now.instant + seconds(10));
    let mut idle = World::with("spec: {taintPolicy: Always}");
    idle.rest();
    idle.wait(3);
    let Step::Wait(Some(until)) = idle.step("default") else { panic!("something is to be done") };
    assert!(until > idle.now.instant);
}

#[test]
fn a_class_that_lags_holds_only_the_nodes_that_it_selects() {
    let mut world = World::new([pool("{}")], [("win-2019", node(WIN_2019)), ("win-2022", node("{}"))]);
    world.class(
        "{metadata: {name: windows-2019, labels: {winpool.dev/pool: default, app.kubernetes.io/managed-by: winpool}}, \
          handler: runhcs-wcow-process, scheduling: {nodeSelector: {kubernetes.io/os: windows, \
          node.kubernetes.io/windows-build: 10.0.17763}}}",
    );
    world.refuse("Patch", failed());
    // It has a user, which does not tolerate the taint as long as its class does not.
    let web = "{metadata: {namespace: shop, name: web}, spec: {template: {spec: {runtimeClassName: windows-2019}}}}";
    world.workloads = vec![(WorkloadKind::Deployment, yaml(web))];
    assert!(world.check());
    world.wait(2);
    assert_eq!((world.taints("win-2019"), world.taints("win-2022")), (vec![], vec![MINE.to_owned()]));
    assert!(world.status().approved_taints.is_empty(), "a new node might need the class");
    assert!(world.condition(condition::TAINTS_APPLIED).1.contains("windows-2019"));
    world.add_node("new", &node("{}"));
    world.rest();
    assert_eq!(world.taints("new"), [""; 0]);

    world.accept_all();
    world.wait(70);
    assert!(world.check());
    world.wait(2);
    assert_eq!((world.taints("win-2019").len(), world.taints("new").len(), world.approved().len()), (1, 1, 1));
}

#[test]
fn a_pool_that_waits_for_a_class_makes_no_other_pool_check_more_often() {
    let mut world = two_pools();
    world.class(
        "{metadata: {name: a-2022, labels: {winpool.dev/pool: a, app.kubernetes.io/managed-by: winpool}}, \
          handler: runhcs-wcow-process}",
    );
    world.refuse("Patch", failed());
    world.pods = Ok(vec![intolerant("win-b")]);
    assert!(world.check());
    let mut checks = 0;
    for _ in 0..59 {
        world.advance(seconds(1));
        checks += usize::from(world.check());
    }
    assert_eq!(checks, 0);
    world.advance(seconds(1));
    assert!(world.check());
}

#[test]
fn a_clean_check_from_before_a_class_was_widened_adds_no_taint() {
    let mut world = World::checked("{}");
    world.wait(20);
    world.refuse("Patch", failed());
    world.change_pool("default", "spec: {taints: [{key: dedicated, effect: NoSchedule}]}");
    // It starts before the pool has a plan for its class.
    let Some(CheckTask::Everything(scope)) = world.start_check() else { panic!("no check") };
    world.end_check(WorkloadCheck::start(*scope));
    world.pods = Ok(vec![intolerant("win")]);
    world.wait(20);
    world.accept_all();
    world.wait(20);
    assert_eq!(world.taints("win"), [MINE], "the pod does not tolerate the new taint");
    assert!(world.check());
    world.wait(2);
    assert!(world.condition(condition::TAINTS_APPLIED).1.contains("dedicated"));
}
