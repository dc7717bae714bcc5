//! Taints wait for `DaemonSets` that do not tolerate them, and for no other workload.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use winpool_core::api::Taint;
use winpool_core::api::names::{condition, reason};
use winpool_core::plan::pods::UnknownPods;
use winpool_core::plan::reconcile::Step;
use winpool_core::pod::{DaemonSet, Pod, PodProgress};

use super::cluster::{MINE, World, agent, daemon_set, failed, pool, started};
use super::status::WIN_2019;
use crate::common::{node, recorded_in, tainted, yaml};

const BUILD: &str = "node.kubernetes.io/windows-build";
/// A node without the build label.
const BARE: &str = "metadata: {labels: {node.kubernetes.io/windows-build: null}}";

/// The nodes `win` and `other`, each in a group of its own, and one pool with this spec.
fn two_nodes(spec: &str) -> World {
    let other = "metadata: {labels: {kubernetes.azure.com/agentpool: other, kubernetes.io/hostname: other, team: b}}";
    World::new([pool(spec)], [("win", node(BARE)), ("other", node(other))])
}

/// A pod of the DaemonSet `agent` on `win`.
fn pod_of_agent(spec: &str, progress: PodProgress) -> Pod {
    let controller = Some(("DaemonSet".to_owned(), "agent".to_owned()));
    let mut pod = Pod { controller, progress, ..started(yaml(spec)) };
    pod.spec.node = Some("win".to_owned());
    pod
}

fn of_team(team: &str) -> Value {
    node(&format!("metadata: {{labels: {{team: {team}}}}}"))
}

fn lose_taint(world: &mut World, name: &str) {
    world.change_node(name, |node| node.taints = Arc::default());
}

fn applied(world: &World) -> (String, String) {
    world.condition(condition::TAINTS_APPLIED)
}

#[test]
fn a_daemon_set_holds_the_taint_off_the_nodes_that_it_fits() {
    const TOLERATES: &str = "tolerations: [{key: os, value: windows, effect: NoSchedule}]";
    let affinity = |key: &str, operator: &str, value: &str| {
        let expression = format!("{{key: {key}, operator: {operator}, values: [{value}]}}");
        format!(
            "{{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: \
             {{nodeSelectorTerms: [{{matchExpressions: [{expression}]}}]}}}}}}}}"
        )
    };
    let group = "kubernetes.azure.com/agentpool";
    // The pod spec, and the nodes off which it holds the taint.
    for (spec, held) in [
        ("{os: {name: windows}}".to_owned(), &["other", "win"][..]),
        ("{nodeSelector: {kubernetes.io/os: windows}}".to_owned(), &["other", "win"]),
        (affinity("kubernetes.io/os", "In", "windows"), &["other", "win"]),
        (affinity("kubernetes.io/os", "NotIn", "linux"), &["other", "win"]),
        ("{runtimeClassName: windows-2022}".to_owned(), &["other", "win"]),
        (format!("{{nodeSelector: {{{group}: poolws}}}}"), &["win"]),
        (affinity(group, "In", "other"), &["other"]),
        ("{nodeSelector: {kubernetes.io/hostname: other}}".to_owned(), &["other"]),
        ("{os: {name: windows}, nodeSelector: {team: b}}".to_owned(), &["other"]),
        (
            "{os: {name: windows}, tolerations: [{key: os, effect: NoExecute, operator: Exists}]}".to_owned(),
            &["other", "win"],
        ),
        (format!("{{os: {{name: windows}}, {TOLERATES}}}"), &[]),
        ("{os: {name: windows}, tolerations: [{operator: Exists}]}".to_owned(), &[]),
        ("{os: {name: windows}, nodeSelector: {team: none}}".to_owned(), &[]),
        ("{nodeSelector: {kubernetes.io/os: linux}}".to_owned(), &[]),
        ("{os: {name: linux}}".to_owned(), &[]),
        (format!("{{nodeSelector: {{{group}: linux}}}}"), &[]),
        ("{nodeSelector: {team: b}}".to_owned(), &[]),
        ("{}".to_owned(), &[]),
    ] {
        let mut world = two_nodes("{}");
        world.daemon_sets = vec![daemon_set("agent", &spec)];
        world.wait(2);
        let bare: Vec<_> = ["other", "win"].into_iter().filter(|name| world.taints(name).is_empty()).collect();
        assert_eq!(bare, held, "{spec}");
        assert!(world.nodes["win"].labels.get(BUILD).is_some(), "{spec}: labels do not wait");
        let (verdict, message) = applied(&world);
        let expected = if held.is_empty() { "True Done" } else { "False DaemonSetsNotTolerating" };
        assert_eq!(verdict, expected, "{spec}: {message}");
        assert_eq!(message.contains("DaemonSet shop/agent"), !held.is_empty(), "{spec}: {message}");
    }
}

#[test]
fn a_daemon_set_that_is_ignored_or_tolerates_the_taint_holds_nothing() {
    let changed = [
        "{metadata: {namespace: shop, name: agent, annotations: {winpool.dev/ignore: 'true'}}, spec: {template: {spec: {os: {name: windows}}}}}",
        "{metadata: {namespace: shop, name: agent}, spec: {template: {metadata: {annotations: {winpool.dev/ignore: 'true'}}, spec: {os: {name: windows}}}}}",
    ];
    let changed = changed.map(|text| vec![serde_json::from_value(yaml(text)).unwrap()]);
    let fixed = vec![daemon_set("agent", "{os: {name: windows}, tolerations: [{operator: Exists}]}")];
    for sets in changed.into_iter().chain([fixed]) {
        let mut world = World::with("{}");
        world.daemon_sets = vec![agent()];
        world.wait(2);
        assert_eq!((world.has_taint("win"), world.status().nodes.held), ((false, false), 1));
        world.daemon_sets = sets;
        world.wait(2);
        assert_eq!((world.has_taint("win"), applied(&world).0.as_str()), ((true, true), "True Done"));
    }
}

#[test]
fn a_daemon_set_that_is_gone_holds_the_taint_for_ten_minutes_also_if_winpool_restarts() {
    type Change = fn(&mut World);
    let goes: [(&str, Change); 3] = [
        ("it is deleted", |world| world.daemon_sets.clear()),
        ("it is being deleted", |world| world.daemon_sets[0].is_over = true),
        ("it is deleted while no winpool runs", |world| {
            world.daemon_sets.clear();
            world.restart();
        }),
    ];
    for (fact, goes) in goes {
        let mut world = two_nodes("spec: {nodeSelector: {team: a}}");
        world.add_node("a", &of_team("a"));
        world.daemon_sets = vec![agent()];
        world.wait(2);
        goes(&mut world);
        world.wait(300);
        world.restart();
        world.wait(2);
        assert_eq!((world.has_taint("a"), world.status().taints[0].held_by.len()), ((false, false), 1), "{fact}");
        world.wait(600);
        assert_eq!((world.has_taint("a"), applied(&world).0.as_str()), ((true, true), "True Done"), "{fact}");
    }
}

#[test]
fn a_daemon_set_that_came_after_the_taint_holds_it_only_where_it_runs_and_is_named() {
    let created = |year: u32| {
        let created = format!("{year}-01-01T00:00:00Z").parse().ok();
        vec![DaemonSet { created, ..agent() }]
    };
    // The year in which it was created, the progress of its pod on `win`, and the taints that `win` then gets.
    for (year, progress, expected) in [
        (2001, PodProgress::Waiting, [].as_slice()),
        (2099, PodProgress::Waiting, &[MINE]),
        (2099, PodProgress::Started, &[]),
    ] {
        let mut world = two_nodes("{}");
        world.wait(2);
        assert_eq!((world.taints("win"), world.taints("other")), (vec![MINE.to_owned()], vec![MINE.to_owned()]));
        world.daemon_sets = created(year);
        world.pods = vec![pod_of_agent("{os: {name: windows}}", progress)];
        world.wait(2);
        lose_taint(&mut world, "win");
        world.wait(2);
        let case = format!("{year} {progress:?}");
        assert_eq!(world.taints("win"), expected, "{case}");
        let [taint] = world.status().taints.try_into().unwrap();
        let holds = expected.is_empty();
        assert_eq!((taint.held_by.len(), taint.waiting), (usize::from(holds), i64::from(holds)), "{case}");
        assert_eq!(taint.without_pods, ["DaemonSet shop/agent"], "{case}");
        assert_eq!(taint.at_registration, year == 2099, "{case}");
        let [problem] = world.problems(reason::DAEMON_SET_WITHOUT_PODS).try_into().unwrap();
        let nodes = if holds { "1 node " } else { "2 nodes " };
        assert!(problem.message.contains(nodes) && problem.message.contains("key: os"), "{case}: {}", problem.message);
    }
}

#[test]
fn a_daemon_set_holds_the_taint_off_nodes_that_come_to_a_pool_or_lose_a_reason_to_be_left_alone() {
    type Change<'a> = &'a dyn Fn(&mut World);
    let older = "{metadata: {name: older, creationTimestamp: '2025-01-01T00:00:00Z'}, \
                 spec: {nodeSelector: {team: b}, runtimeClassNameFormat: 'older-{version}'}}";
    let ignore = |world: &mut World, ignored: Option<&str>| {
        world.change_node("other", |node| node.ignore = ignored.map(Into::into));
    };
    let cases: [(&str, &str, &[&str], Change<'_>); 4] = [
        ("a wider selector", "spec: {nodeSelector: {team: a}}", &[], &|world| {
            world.change_pool("default", "spec: {nodeSelector: null}");
        }),
        ("an older pool that hands it over", "{}", &[older], &|world| {
            world.change_pool("older", "spec: {mode: DryRun}");
        }),
        ("it is no longer ignored", "{}", &[], &|world| ignore(world, None)),
        ("the end of a dry run", "spec: {mode: DryRun}", &[], &|world| {
            world.change_pool("default", "spec: {mode: Enforce}");
        }),
    ];
    for (fact, spec, others, change) in cases {
        let other = node("metadata: {labels: {kubernetes.azure.com/agentpool: other, team: b}}");
        let pools = others.iter().map(|other| pool(other)).chain([pool(spec)]);
        let mut world = World::new(pools, [("win", of_team("a")), ("other", other)]);
        ignore(&mut world, fact.contains("ignored").then_some("true"));
        world.daemon_sets = vec![daemon_set("agent", "{os: {name: windows}, nodeSelector: {team: b}}")];
        world.wait(2);
        change(&mut world);
        world.wait(10);
        assert_eq!((world.taints("win"), world.taints("other")), (vec![MINE.to_owned()], vec![]), "{fact}");
        assert!(world.at_registration().is_empty(), "{fact}");
        assert!(applied(&world).1.contains("DaemonSet shop/agent (1 node)"), "{fact}: {:?}", applied(&world));
    }
}

#[test]
fn pods_of_other_workloads_hold_nothing() {
    let mut world = World::with("{}");
    let runs = started(yaml("{os: {name: windows}, nodeName: win}"));
    let waits =
        Pod { name: "next".to_owned(), progress: PodProgress::Waiting, ..started(yaml("{os: {name: windows}}")) };
    world.pods = vec![runs, waits];
    world.wait(2);
    assert_eq!((world.has_taint("win"), applied(&world).0.as_str()), ((true, true), "True Done"));
}

#[test]
fn a_daemon_set_that_no_longer_tolerates_the_taint_takes_it_off_no_node_and_holds_it_off_new_ones() {
    let mut world = World::at_rest("{}");
    world.wait(2);
    assert_eq!(world.has_taint("win"), (true, true));
    world.daemon_sets = vec![agent()];
    world.add_node("new", &node("{}"));
    world.wait(2);
    assert_eq!((world.taints("win"), world.taints("new").len()), (vec![MINE.to_owned()], 0));
    assert!(world.at_registration().is_empty());
    assert_eq!(recorded_in(&world.status()), [MINE], "the evidence stays");
    world.daemon_sets.clear();
    world.wait(601);
    assert_eq!(world.has_taint("new"), (true, true));
}

#[test]
fn status_names_at_most_ten_daemon_sets_with_the_number_of_nodes() {
    for (spec, words) in [("{}", "held"), ("{metadata: {finalizers: null}, spec: {mode: DryRun}}", "would be held")] {
        let mut world = two_nodes(spec);
        let name = |number: usize| format!("agent-{number:02}");
        world.daemon_sets = (0..12).map(|number| daemon_set(&name(number), "{os: {name: windows}}")).collect();
        world.daemon_sets[3] = daemon_set(&name(3), "{os: {name: windows}, nodeSelector: {team: b}}");
        world.wait(2);
        let (verdict, message) = applied(&world);
        assert_eq!((verdict.as_str(), world.has_taint("win")), ("False DaemonSetsNotTolerating", (false, false)));
        for part in [
            &format!("{MINE} {words}"),
            "DaemonSet shop/agent-00 (2 nodes), ",
            "DaemonSet shop/agent-03 (1 node), ",
            "DaemonSet shop/agent-09 (2 nodes) and 2 more",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains("agent-10"), "{message}");
        let writes = world.take_sent(&["Create", "Patch", "SetFinalizer"]);
        assert_eq!(writes.is_empty(), spec.contains("DryRun"), "{writes:?}");
    }
}

#[test]
fn nodes_are_written_once_the_first_list_of_pods_is_complete_or_impossible() {
    for (unknown, is_labelled) in [
        (UnknownPods::NotListed, false),
        (UnknownPods::Unreadable("no answer".to_owned()), true),
        (UnknownPods::Denied("pods is forbidden".to_owned()), true),
    ] {
        let mut world = World::new([pool("{}")], [("win", node(BARE))]);
        world.unknown_pods = Some(unknown.clone());
        world.wait(20);
        assert_eq!(world.nodes["win"].labels.get(BUILD).is_some(), is_labelled, "{unknown:?}");
        assert!(world.taints("win").is_empty(), "{unknown:?}");
        world.unknown_pods = None;
        world.wait(2);
        assert_eq!(world.has_taint("win"), (true, true), "{unknown:?}");
    }
}

#[test]
fn while_pods_or_daemon_sets_are_unknown_no_taint_is_added_and_nodes_may_still_register_with_it() {
    let denied = |kind: &str| Some(UnknownPods::Denied(format!("{kind} is forbidden")));
    for (pods, sets, verdict, words) in [
        (Some(UnknownPods::NotListed), None, "False Waiting", "until winpool has listed the pods"),
        (Some(UnknownPods::Unreadable("no answer".to_owned())), None, "Unknown PodsNotSeen", "no answer"),
        (denied("pods"), None, "Unknown PodsNotSeen", "pods is forbidden"),
        (None, denied("daemonsets"), "Unknown PodsNotSeen", "daemonsets is forbidden"),
    ] {
        let mut world = World::at_rest("{}");
        world.wait(2);
        (world.unknown_pods, world.unknown_daemon_sets) = (pods, sets);
        world.add_node("new", &node(WIN_2019));
        lose_taint(&mut world, "win");
        world.wait(10);
        assert_eq!((world.taints("win").len(), world.taints("new").len()), (0, 0), "{verdict}");
        assert_eq!(world.nodes["new"].labels.get(BUILD), Some("10.0.17763"), "{verdict}");
        assert_eq!(world.at_registration(), [MINE], "{verdict}");
        let (found, message) = applied(&world);
        assert!(found == verdict && message.contains(words), "{found}: {message}");
        (world.unknown_pods, world.unknown_daemon_sets) = (None, None);
        world.wait(2);
        assert_eq!((world.has_taint("win"), world.has_taint("new")), ((true, true), (true, true)), "{verdict}");
    }
}

#[test]
fn nodes_may_register_with_a_taint_unless_a_daemon_set_may_run_on_nodes_of_the_pool() {
    const TEAM: &str = "spec: {nodeSelector: {team: a}}";
    let of_windows =
        |selector: &str| daemon_set("agent", &format!("{{os: {{name: windows}}, nodeSelector: {selector}}}"));
    for (fact, spec, nodes, sets, expected) in [
        ("no DaemonSet", "{}", vec![node("{}")], vec![], true),
        ("no node", "{}", vec![], vec![], true),
        ("no node, and a DaemonSet", "{}", vec![], vec![agent()], false),
        ("a DaemonSet", "{}", vec![node("{}")], vec![agent()], false),
        ("every node has the taint already", "{}", vec![tainted(&[MINE])], vec![agent()], false),
        ("a DaemonSet for nodes that do not exist yet", "{}", vec![node("{}")], vec![of_windows("{group: b}")], false),
        ("a DaemonSet for nodes of another team", TEAM, vec![of_team("a")], vec![of_windows("{team: b}")], true),
        ("a DaemonSet for nodes of this team", TEAM, vec![of_team("a")], vec![of_windows("{team: a}")], false),
        ("TaintOnly", "spec: {taintPolicy: TaintOnly}", vec![node("{}")], vec![agent()], true),
        ("Never", "spec: {taintPolicy: Never}", vec![node("{}")], vec![], false),
        ("a dry run", "spec: {mode: DryRun}", vec![node("{}")], vec![], false),
    ] {
        let mut world = World::new([pool(spec)], ["win-0", "win-1"].into_iter().zip(nodes));
        world.daemon_sets = sets;
        world.wait(2);
        assert_eq!(world.at_registration() == [MINE], expected, "{fact}: {:?}", world.at_registration());
    }
}

#[test]
fn a_taint_is_recorded_in_the_status_write_that_directly_precedes_publication() {
    let mut world = World::with("{}");
    let mut steps = Vec::new();
    while !matches!(steps.last(), Some(Step::Publish(policy)) if policy.entries().iter().all(|entry| entry.ready)) {
        steps.push(world.step("default"));
    }
    let [.., Step::WriteStatus { status, .. }, Step::Publish(policy)] = steps.as_slice() else { panic!("{steps:#?}") };
    assert_eq!(recorded_in(status), [MINE]);
    assert_eq!(policy.pool("default").unwrap().managed_taints, [Taint::os_windows()]);
}

#[test]
fn a_taint_keeps_its_time_when_the_spec_changes() {
    for (before, changes) in [
        ("{}", "{runtimeClassNameFormat: 'win-{version}'}"),
        ("{}", "{nodeSelector: {team: a}}"),
        ("spec: {nodeSelector: {team: a}}", "{nodeSelector: null}"),
        ("spec: {taintPolicy: TaintOnly}", "{taintPolicy: TaintAndTolerate}"),
    ] {
        let mut world = World::new([pool(before)], [("a", of_team("a"))]);
        world.wait(2);
        let since = world.status().taints[0].since.clone().unwrap();
        world.change_pool("default", &format!("spec: {changes}"));
        world.wait(20);
        assert_eq!(world.status().taints[0].since, Some(since), "{changes}");
    }
}

#[test]
fn no_node_may_register_with_the_taint_while_a_class_does_not_tolerate_the_taint() {
    let mut world = World::at_rest("{}");
    world.advance(Duration::from_secs(700));
    world.refuse("Patch", failed());
    world.change_class("windows-2022", "scheduling: {tolerations: null}");
    world.wait(2);
    assert!(world.at_registration().is_empty());
    world.add_node("new", &node("{}"));
    world.rest();
    assert!(world.taints("new").is_empty());

    world.accept_all();
    world.wait(70);
    assert_eq!(world.has_taint("new"), (true, true));
}

#[test]
fn no_node_may_register_with_the_taint_when_the_pool_stops_enforcing() {
    for (stops, starts) in [
        ("spec: {taintPolicy: Never}", "spec: {taintPolicy: TaintAndTolerate}"),
        ("spec: {mode: DryRun}", "spec: {mode: Enforce}"),
    ] {
        let mut world = World::at_rest("{}");
        world.wait(2);
        world.change_pool("default", stops);
        world.wait(2);
        assert!(world.at_registration().is_empty(), "{stops}");
        assert_eq!(world.taints("win").is_empty(), stops.contains("Never"), "{stops}");
        let scheduling = world.classes["windows-2022"].scheduling.clone().unwrap();
        assert_eq!(scheduling.tolerations.unwrap().len(), 1, "{stops}: classes tolerate the taint all the same");
        lose_taint(&mut world, "win");
        world.daemon_sets = vec![agent()];
        world.change_pool("default", starts);
        world.wait(10);
        assert_eq!(world.has_taint("win"), (false, false), "{starts}");
    }
}

#[test]
fn a_class_that_tolerates_one_more_taint_does_not_lag_for_the_first() {
    let mut world = World::at_rest("{}");
    world.advance(Duration::from_mins(2));
    let taints = "[{key: os, value: windows, effect: NoSchedule}, {key: team/os, value: win, effect: NoSchedule}]";
    world.change_pool("default", &format!("spec: {{taints: {taints}}}"));
    world.rest();
    world.add_node("new", &node("{}"));
    for second in 0..4 {
        world.wait(1);
        assert_eq!(world.has_taint("new"), (true, true), "{second}");
    }
    world.wait(4);
    assert_eq!((world.at_registration().len(), world.taints("new").len()), (2, 2));
}

#[test]
fn a_daemon_set_that_comes_while_a_taint_waits_for_its_class_holds_the_taint() {
    let mut world = World::at_rest("{}");
    world.wait(2);
    world.refuse("Patch", failed());
    let taints = "[{key: os, value: windows, effect: NoSchedule}, {key: team/os, value: win, effect: NoSchedule}]";
    world.change_pool("default", &format!("spec: {{taints: {taints}}}"));
    world.wait(2);
    world.daemon_sets = vec![agent()];
    world.accept_all();
    world.wait(70);
    assert_eq!((world.taints("win"), world.at_registration()), (vec![MINE.to_owned()], vec![]));
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
    world.wait(2);
    assert_eq!((world.taints("win-2019"), world.taints("win-2022")), (vec![], vec![MINE.to_owned()]));
    assert!(world.at_registration().is_empty(), "a new node might need the class");
    assert!(applied(&world).1.contains("windows-2019"));
    world.add_node("new", &node("{}"));
    world.rest();
    assert_eq!(world.taints("new"), [MINE], "its class tolerates the taint");

    world.accept_all();
    world.wait(70);
    assert_eq!((world.has_taint("win-2019").1, world.at_registration().len()), (true, 1));
}

#[test]
fn while_nothing_is_due_the_loop_sleeps() {
    for sets in [vec![], vec![agent()]] {
        let mut idle = World::with("{}");
        idle.daemon_sets = sets;
        idle.wait(3);
        let Step::Wait(Some(until)) = idle.step("default") else { panic!("something is to be done") };
        assert!(until > idle.now.instant + Duration::from_secs(30));
    }
}
