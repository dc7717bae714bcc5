//! The trial of a taint: winpool looks at what its taint does, and takes it back.

use std::{sync::Arc, time::Duration};

use winpool_core::{
    api::{TaintTrial, names::condition},
    plan::reconcile::Note,
    pod::{Pod, Workload, WorkloadKind},
};

use super::cluster::{MINE, World, failed, intolerant, pool};
use crate::common::{marked, node, read, tainted, yaml};

const HOUR: u64 = 3600;
const WEEK: u64 = 7 * 24 * HOUR;

/// A pod for Windows that no node has, merged with `changes`.
pub fn waiting(changes: &str) -> Pod {
    let mut object: serde_json::Value = yaml(
        "{metadata: {namespace: shop, name: web, uid: web, creationTimestamp: '2026-02-01T00:00:00Z'}, \
          spec: {os: {name: windows}, containers: [{name: app}]}, status: {phase: Pending}}",
    );
    json_patch::merge(&mut object, &yaml(changes));
    serde_json::from_value(object).unwrap()
}

/// A pod of this controller.
pub fn waiting_of(kind: &str, name: &str) -> Pod {
    let group = match kind {
        "Job" => "batch/v1",
        "Deployment" | "ReplicaSet" | "StatefulSet" => "apps/v1",
        _ => "example.com/v1",
    };
    waiting(&format!(
        "metadata: {{ownerReferences: [{{apiVersion: {group}, kind: {kind}, name: {name}, uid: u, controller: true}}]}}"
    ))
}

/// A workload for Windows in the namespace `shop`, created on this day of February 2026 or on this one of March.
pub fn workload(kind: WorkloadKind, name: &str, created: &str, changes: &str) -> (WorkloadKind, Workload) {
    let mut object: serde_json::Value = yaml(&format!(
        "{{metadata: {{namespace: shop, name: {name}, creationTimestamp: '{created}T00:00:00Z'}}, \
           spec: {{template: {{spec: {{os: {{name: windows}}}}}}}}}}"
    ));
    json_patch::merge(&mut object, &yaml(changes));
    (kind, serde_json::from_value(object).unwrap())
}

pub const OLD: &str = "2026-02-01";
/// Tests begin on 2026-03-01.
const YOUNG: &str = "2026-03-02";

/// A pool whose nodes have its taint, which is on trial.
pub fn tried_with(spec: &str, nodes: &[&str]) -> World {
    let mut world = World::new([pool(spec)], nodes.iter().map(|name| (*name, node("{}"))));
    assert!(world.check());
    world.wait(2);
    assert_eq!(world.approved(), [MINE]);
    world
}

pub fn tried() -> World {
    tried_with("{}", &["win"])
}

/// The same after a pod of a kind that winpool does not read objected.
fn held() -> World {
    let mut world = tried();
    world.pods = Ok(vec![waiting_of("Workflow", "run-1")]);
    world.look_on();
    world.pods = Ok(Vec::new());
    assert!(world.taints("win").is_empty());
    world
}

pub fn trial(world: &World) -> TaintTrial {
    let trials = world.status().taint_trials;
    assert_eq!(trials.len(), 1, "{trials:#?}");
    trials[0].clone()
}

/// The number of hours from now to the next attempt.
fn pause(world: &World) -> f64 {
    let retry_at = trial(world).retry_at.unwrap().0;
    (retry_at.duration_since(world.now.time).as_secs_f64() / 360.0).round() / 10.0
}

pub fn advance(world: &mut World, seconds: u64) {
    world.advance(Duration::from_secs(seconds));
    world.rest();
}

#[test]
fn a_new_approval_is_on_trial_for_a_week() {
    let trial = trial(&tried());
    // The API server's clock may be a second ahead.
    let lasts = trial.until.unwrap().0.duration_since(trial.since.0).as_secs();
    assert_eq!(lasts, WEEK.cast_signed() - 1);
    assert_eq!((trial.failures, trial.workload, trial.retry_at), (0, None, None));
}

#[test]
fn a_pod_that_waits_only_because_of_a_taint_on_trial_ends_the_trial_and_the_taint() {
    let mut world = tried();
    world.pods = Ok(vec![waiting_of("Workflow", "run-1")]);
    assert!(world.check_trials());
    assert!(!world.check_trials(), "a check is followed by a pause");
    assert_eq!(world.has_taint("win"), (true, true), "one check is not enough");
    world.wait(5);
    assert!(world.check_trials());
    assert_eq!(world.has_taint("win"), (false, false));
    let trial = trial(&world);
    assert_eq!((trial.until, trial.failures, trial.workload.as_deref()), (None, 1, Some("Workflow shop/run-1")));
    assert_eq!(world.status().managed_taints, [MINE], "the evidence stays");
    world.wait(2);
    let (condition, message) = world.condition(condition::TAINTS_APPLIED);
    assert_eq!(condition, "False TaintObjected");
    assert!(message.contains("Workflow shop/run-1") && message.contains("2026-03-01T13:00"), "{message}");
    assert_eq!(world.condition(condition::READY).0, "False TaintObjected");
    let notes = world.memory.take_notes();
    assert!(notes.iter().any(|(_, note)| matches!(note, Note::TaintObjected { .. })), "{notes:?}");
}

#[test]
fn pods_that_wait_for_other_reasons_end_no_trial() {
    let tolerates = "tolerations: [{key: os, operator: Exists}]";
    let of_old = || waiting_of("Deployment", "web");
    let cases = [
        ("nothing else", waiting("{}"), vec![], true),
        ("gated", waiting("spec: {schedulingGates: [{name: wait}]}"), vec![], false),
        ("terminating", waiting("metadata: {deletionTimestamp: '2026-03-01T12:00:00Z'}"), vec![], false),
        ("ignored", waiting("metadata: {annotations: {winpool.dev/ignore: 'true'}}"), vec![], false),
        ("another scheduler", waiting("spec: {schedulerName: mine}"), vec![], true),
        ("Linux", waiting("spec: {os: {name: linux}}"), vec![], false),
        ("no system", waiting("spec: {os: null}"), vec![], false),
        ("it tolerates the taint and lacks cpu", waiting(&format!("spec: {{{tolerates}}}")), vec![], false),
        ("it fits no node anyway", waiting("spec: {nodeSelector: {team: a}}"), vec![], false),
        (
            "labels of Windows nodes",
            waiting("spec: {os: null, nodeSelector: {kubernetes.azure.com/agentpool: poolws}}"),
            vec![],
            true,
        ),
        ("labels of any nodes", waiting("spec: {os: null, nodeSelector: {kubernetes.io/arch: amd64}}"), vec![], false),
        ("an old Deployment", of_old(), vec![workload(WorkloadKind::Deployment, "web", OLD, "{}")], true),
        ("a younger Deployment", of_old(), vec![workload(WorkloadKind::Deployment, "web", YOUNG, "{}")], false),
        ("a Deployment that is gone", of_old(), vec![], true),
        (
            "an ignored Deployment",
            of_old(),
            vec![workload(
                WorkloadKind::Deployment,
                "web",
                OLD,
                "metadata: {annotations: {winpool.dev/ignore: 'true'}}",
            )],
            false,
        ),
        (
            "a new Job of an old CronJob",
            waiting_of("Job", "web-1"),
            vec![
                workload(
                    WorkloadKind::Job,
                    "web-1",
                    YOUNG,
                    "metadata: {ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: web, uid: u, controller: true}]}",
                ),
                workload(WorkloadKind::CronJob, "web", OLD, "{}"),
            ],
            true,
        ),
        (
            "a new Job of another kind",
            waiting_of("Job", "web-1"),
            vec![workload(
                WorkloadKind::Job,
                "web-1",
                YOUNG,
                "metadata: {ownerReferences: [{apiVersion: ci/v1, kind: Run, name: web, uid: u, controller: true}]}",
            )],
            true,
        ),
    ];
    for (fact, pod, workloads, objects) in cases {
        let mut world = tried();
        world.linux = vec![[("kubernetes.io/arch", "amd64"), ("kubernetes.io/os", "linux")].into_iter().collect()];
        world.pods = Ok(vec![pod]);
        world.workloads = workloads;
        world.look_on();
        assert_eq!(world.has_taint("win"), (!objects, !objects), "{fact}");
    }
}

#[test]
fn a_taint_goes_only_if_that_gives_the_pod_a_node() {
    let carries = |taints: &[&str]| read(&marked(tainted(taints), "default", &[MINE]));
    let foreign = "node.kubernetes.io/not-ready:NoSchedule";
    for (fact, change, objects) in [
        ("its own taint", Some(carries(&[MINE])), true),
        ("the kubelet's own taint", Some(read(&tainted(&[MINE]))), false),
        ("another taint", Some(carries(&[MINE, foreign])), false),
        ("a refuge that is full", Some(read(&node("metadata: {annotations: {winpool.dev/ignore: 'true'}}"))), false),
        ("a refuge that does not serve", None, true),
    ] {
        let mut world = tried_with("{}", &["one", "two"]);
        let ignored = read(&node(&format!(
            "{{metadata: {{annotations: {{winpool.dev/ignore: 'true'}}}}, spec: {{taints: [{{key: {}, effect: NoSchedule}}]}}}}",
            "node.kubernetes.io/not-ready"
        )));
        let both = fact == "its own taint" || fact.starts_with("a refuge");
        world.change_node("two", |node| *node = change.clone().unwrap_or(ignored));
        if !both {
            world.change_node("one", |node| *node = change.unwrap());
        }
        world.pods = Ok(vec![waiting("{}")]);
        world.look_on();
        assert_eq!(trial(&world).failures == 1, objects, "{fact}");
    }
}

#[test]
fn a_new_leader_goes_on_with_the_removal_and_also_cleans_nodes_that_were_born_with_the_taint() {
    let mut world = tried_with("{}", &["one", "two"]);
    world.pods = Ok(vec![waiting("{}")]);
    world.blocked.insert("two".to_owned());
    world.look_on();
    assert_eq!((world.taints("one").len(), world.taints("two").len()), (0, 1));
    world.restart();
    world.blocked.clear();
    world.rest();
    world.wait(2);
    assert!(world.taints("two").is_empty());
    world.add_node("three", &marked(tainted(&[MINE]), "default", &[MINE]));
    world.add_node("four", &tainted(&[MINE]));
    world.wait(2);
    assert_eq!((world.taints("three").len(), world.taints("four").len()), (0, 1), "the last one is the kubelet's own");
    assert_eq!(trial(&world).failures, 1);
}

#[test]
fn the_hold_is_in_status_before_the_taint_goes_unless_the_status_cannot_be_written() {
    let mut world = tried();
    world.pods = Ok(vec![waiting("{}")]);
    world.refuse("WriteStatus", failed());
    world.look_on();
    assert!(world.taints("win").is_empty());
    assert_eq!(world.approved(), [MINE]);
    world.accept_all();
    world.wait(70);
    assert_eq!((world.approved().len(), trial(&world).failures), (0, 1));
}

#[test]
fn the_next_trial_begins_after_a_pause_with_a_clean_check_and_each_failure_doubles_the_pause() {
    let mut world = tried();
    for (failures, hours) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (6, 24), (7, 24)] {
        world.pods = Ok(vec![waiting_of("Workflow", &format!("run-{failures}"))]);
        world.look_on();
        assert!(world.taints("win").is_empty(), "{failures}");
        assert_eq!(trial(&world).failures, failures);
        assert!((pause(&world) - f64::from(u32::try_from(hours).unwrap())).abs() < 0.2, "{}", pause(&world));
        world.pods = Ok(Vec::new());
        advance(&mut world, hours * HOUR - 120);
        assert!(!world.check(), "no check before the time");
        advance(&mut world, 120);
        world.pods = Ok(vec![intolerant("win")]);
        assert!(world.check());
        world.wait(2);
        assert_eq!(world.condition(condition::TAINTS_APPLIED).0, "False WorkloadsNotTolerating");
        world.pods = Ok(Vec::new());
        advance(&mut world, 70);
        assert!(world.check());
        world.wait(2);
        assert_eq!(world.has_taint("win"), (true, true));
        assert_eq!(trial(&world).failures, failures, "failures are not forgotten");
    }
}

#[test]
fn a_changed_spec_ends_the_pause_also_for_a_new_leader() {
    for restarts in [false, true] {
        let mut world = held();
        assert!(!world.check());
        world.change_pool("default", "spec: {runtimeClassNameFormat: 'win-{version}'}");
        if restarts {
            world.restart();
        }
        world.wait(20);
        assert!(world.check());
        world.wait(5);
        world.check();
        world.wait(2);
        assert_eq!(world.has_taint("win"), (true, true), "{restarts}");
    }
}

#[test]
fn a_workload_that_is_right_or_gone_ends_the_pause_if_winpool_reads_its_kind() {
    let tolerates = "spec: {template: {spec: {tolerations: [{key: os, operator: Exists}]}}}";
    let ignored = "metadata: {annotations: {winpool.dev/ignore: 'true'}}";
    for (fact, changes, ends) in [
        ("unchanged", Some("{}"), false),
        ("it tolerates the taint", Some(tolerates), true),
        ("it is ignored", Some(ignored), true),
        ("it is gone", None, true),
    ] {
        let mut world = tried();
        world.workloads = vec![workload(WorkloadKind::Deployment, "web", OLD, "{}")];
        world.pods = Ok(vec![waiting_of("Deployment", "web")]);
        world.look_on();
        assert!(world.taints("win").is_empty(), "{fact}");
        world.pods = Ok(Vec::new());
        world.workloads =
            changes.map(|changes| workload(WorkloadKind::Deployment, "web", OLD, changes)).into_iter().collect();
        world.wait(10);
        world.check_trials();
        world.check();
        world.wait(2);
        assert_eq!(world.has_taint("win"), (ends, ends), "{fact}");
    }
    let mut world = held();
    world.look_on();
    assert!(!world.check(), "each run of a workflow is a new object");
}

#[test]
fn a_trial_ends_only_by_a_complete_look_after_its_time() {
    let mut world = tried();
    world.check_trials();
    advance(&mut world, WEEK);
    world.restart();
    world.pods = Ok(vec![waiting("{}")]);
    world.look_on();
    assert!(world.taints("win").is_empty(), "downtime ends no trial");

    let mut world = tried();
    advance(&mut world, WEEK);
    let check = world.with_cluster(|cluster, memory, now| memory.start_trial_check(cluster, now));
    assert!(check.is_some());
    world.with_cluster(|cluster, memory, now| memory.trial_checked(cluster, Err("no answer".to_owned()), now));
    world.wait(2);
    assert_eq!(world.status().taint_trials.len(), 1, "a check that fails ends no trial");
    world.wait(5);
    assert!(world.check_trials());
    world.wait(5);
    assert_eq!(world.status().taint_trials.len(), 1, "one check is not enough");
    assert!(world.check_trials());
    world.wait(2);
    assert!(world.status().taint_trials.is_empty());
    world.pods = Ok(vec![waiting("{}")]);
    world.look_on();
    assert_eq!(world.has_taint("win"), (true, true), "later a pod waits");
    assert!(!world.check_trials(), "nobody checks any more");
}

#[test]
fn a_trial_outlives_its_approval_and_a_new_approval_begins_another() {
    let mut world = tried();
    let since = trial(&world).since;
    world.add_node("new", &node("{}"));
    world.change_node("new", |node| node.ignore = Some("true".into()));
    world.change_node("new", |node| node.taints = Arc::default());
    world.change_node("new", |node| node.ignore = None);
    world.pods = Ok(vec![intolerant("new")]);
    advance(&mut world, 100);
    world.check();
    world.wait(2);
    assert_eq!((world.approved().len(), trial(&world).since), (0, since.clone()));
    world.pods = Ok(Vec::new());
    advance(&mut world, 70);
    world.check();
    world.wait(2);
    assert_eq!(world.approved(), [MINE]);
    assert!(trial(&world).since.0 > since.0);
}

#[test]
fn always_ends_trials_and_holds() {
    for mut world in [tried(), held()] {
        world.change_pool("default", "spec: {taintPolicy: Always}");
        world.wait(5);
        assert_eq!(world.has_taint("win"), (true, true));
        assert!(world.status().taint_trials.is_empty());
        world.pods = Ok(vec![waiting("{}")]);
        assert!(!world.check_trials());
    }
}

#[test]
fn a_pool_in_dry_run_is_not_looked_after_and_keeps_its_hold() {
    let mut world = held();
    world.change_pool("default", "spec: {mode: DryRun}");
    world.wait(5);
    assert!(!world.check_trials());
    assert_eq!(trial(&world).failures, 1);
}

const TWO: &str =
    "spec: {taints: [{key: os, value: windows, effect: NoSchedule}, {key: team, value: a, effect: NoSchedule}]}";

#[test]
fn of_two_taints_on_trial_those_go_without_which_the_pod_has_a_node() {
    let team = "team=a:NoSchedule";
    for (tolerations, stays) in
        [("[]", vec![]), ("[{key: os, operator: Exists}]", vec![MINE]), ("[{key: team, operator: Exists}]", vec![team])]
    {
        let mut world = World::with(TWO);
        world.check();
        world.wait(2);
        assert_eq!(world.taints("win"), [MINE, team]);
        world.pods = Ok(vec![waiting(&format!("spec: {{tolerations: {tolerations}}}"))]);
        world.look_on();
        assert_eq!(world.taints("win"), stays, "{tolerations}");
    }
}

#[test]
fn a_taint_that_left_for_one_on_trial_comes_back_with_the_hold_and_goes_with_the_next_trial() {
    let retired = "os=win:NoSchedule";
    let spec = "spec: {retiredTaints: [{key: os, value: win, effect: NoSchedule}], \
                 taints: [{key: os, value: windows, effect: NoSchedule}]}";
    let mut world = World::new([pool(spec)], [("old", tainted(&[retired])), ("bare", node("{}"))]);
    world.check();
    world.wait(2);
    let taints = |world: &World| (world.taints("old"), world.taints("bare"));
    assert_eq!(taints(&world), (vec![MINE.to_owned()], vec![MINE.to_owned()]));
    world.pods = Ok(vec![waiting("spec: {tolerations: [{key: os, value: win}]}")]);
    world.look_on();
    assert_eq!(taints(&world), (vec![retired.to_owned()], vec![]));
    world.pods = Ok(Vec::new());
    advance(&mut world, 2 * HOUR);
    world.check();
    world.wait(2);
    assert_eq!(taints(&world), (vec![MINE.to_owned()], vec![MINE.to_owned()]));
}

#[test]
fn status_says_that_nodes_keep_a_taint_to_which_a_pod_objects() {
    let mut world = tried_with("{}", &["win-1", "win-2"]);
    world.blocked.insert("win-1".to_owned());
    world.pods = Ok(vec![waiting_of("Workflow", "run-1")]);
    world.look_on();
    world.wait(5);
    assert_eq!((world.taints("win-1").len(), world.taints("win-2").len()), (1, 0));
    let (verdict, message) = world.condition(condition::TAINTS_APPLIED);
    assert_eq!(verdict, "False TaintObjected");
    assert!(message.contains("winpool cannot change 1 node, see problems"), "{message}");
}
