//! The status of a pool.

use std::collections::BTreeMap;

use crate::common::{pool, pool_object, recorded_in, with_consent};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use winpool_core::api::names::{condition, reason};
use winpool_core::api::{
    ClassState, Isolation, NodeCounts, ObjectReference, Problem, RuntimeClassStatus, Taint, TaintStatus,
    WindowsPoolStatus, number,
};
use winpool_core::plan::nodes::assessment::NodeState;
use winpool_core::plan::nodes::numbers::{Overlap, Tally};
use winpool_core::plan::pods::{PodHealth, PodSummary, PoolFailures, PoolHelp};
use winpool_core::plan::pools::pool::Pool;
use winpool_core::plan::reconcile::conditions::{Observation, Verdict, status, suspended_status};
use winpool_core::pod::Cause;
use winpool_core::windows::Build;
use winpool_core::words::is_command;

const DRY_RUN: &str = "spec: {mode: DryRun}";
const APPROVED: &str =
    "status: {taints: [{taint: 'os=windows:NoSchedule', since: '2026-02-01T00:00:00Z', atRegistration: true}]}";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn class(name: &str, state: ClassState) -> RuntimeClassStatus {
    RuntimeClassStatus {
        name: name.to_owned(),
        uid: None,
        build: "10.0.17763".to_owned(),
        isolation: Isolation::Process,
        handler: "runhcs-wcow-process".to_owned(),
        state,
        nodes: 1,
    }
}

fn problem(reason: &str, object: &str, message: &str) -> Problem {
    Problem { reason: reason.to_owned(), object: ObjectReference::named(object), message: message.to_owned() }
}

/// Three nodes and a class, all right.
fn done() -> Observation {
    Observation {
        generation: Some(3),
        tally: tally(NodeCounts { selected: 3, converged: 3, ..NodeCounts::default() }, 0, 0),
        classes: vec![class("windows-2019", ClassState::Applied)],
        taints: [(Taint::os_windows(), TaintStatus { nodes: 3, at_registration: true, ..TaintStatus::default() })]
            .into(),
        ..Observation::default()
    }
}

/// The sums over so many nodes of Windows Server 2019.
fn tally(nodes: NodeCounts, unlabeled: usize, untainted: usize) -> Tally {
    let NodeCounts { converged, pending, held, contested, blocked, ignored, .. } = nodes;
    let counts = [converged, pending, held, contested, blocked, ignored];
    let states = NodeState::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    let states = states.map(|(state, count)| ((Some(Build::new(17763)), state), usize::try_from(count).unwrap()));
    let mut tally = Tally::default();
    tally.states.extend(states);
    tally.builds.insert(Build::new(17763), 3);
    (tally.unlabeled, tally.untainted) = (unlabeled, untainted);
    tally
}

/// What is seen of these nodes, while all is right with the class.
fn counted(nodes: NodeCounts, unlabeled: usize, untainted: usize) -> Observation {
    Observation { tally: tally(nodes, unlabeled, untainted), ..done() }
}

/// The nodes of these builds.
fn in_use(builds: BTreeMap<Build, usize>) -> Observation {
    let mut seen = done();
    seen.tally.builds = builds;
    seen
}

/// The status at a fixed time, without a previous one.
fn report(pool: &Pool, observation: &Observation) -> WindowsPoolStatus {
    status(pool, observation, None, at("2026-03-01T12:00:00Z"))
}

/// The conditions about winpool's work. The others have their own tests.
const WORK: [&str; 4] =
    [condition::READY, condition::NODES_LABELED, condition::TAINTS_APPLIED, condition::RUNTIME_CLASSES_APPLIED];

fn find<'s>(status: &'s WindowsPoolStatus, name: &str) -> &'s Condition {
    status.conditions.iter().find(|condition| condition.type_ == name).unwrap()
}

/// `status reason` of each of [`WORK`].
fn verdicts(status: &WindowsPoolStatus) -> [String; 4] {
    WORK.map(|name| find(status, name)).map(|c| format!("{} {}", c.status, c.reason))
}

#[test]
fn a_pool_that_is_done() {
    insta::assert_yaml_snapshot!(report(&pool(APPROVED), &done()));
}

#[test]
fn conditions_say_what_is_left_to_do() {
    struct Case {
        fact: &'static str,
        spec: &'static str,
        observation: Observation,
        /// Of [`WORK`].
        verdicts: [&'static str; 4],
    }
    let pending = NodeCounts { selected: 3, converged: 1, pending: 2, ..NodeCounts::default() };
    let blocked = NodeCounts { selected: 3, converged: 2, blocked: 1, ..NodeCounts::default() };
    let with = |state| vec![class("windows-2019", state)];
    let conflict = problem(reason::CLASS_CONFLICT, "RuntimeClass windows-2019", "is not winpool's");
    let unknown = problem(reason::BUILD_UNKNOWN, "Node a", "no build");
    let denied = problem(reason::ADMISSION_DENIED, "Node a", "policy x says no");
    let cases = [
        Case {
            fact: "no node yet",
            spec: "{}",
            observation: Observation::default(),
            verdicts: ["True NoNodesSelected", "True NoNodesSelected", "True NoNodesSelected", "True Done"],
        },
        Case { fact: "all done", spec: "{}", observation: done(), verdicts: ["True Done"; 4] },
        Case {
            fact: "the class of others does what is needed",
            spec: "{}",
            observation: Observation { classes: with(ClassState::Satisfied), ..done() },
            verdicts: ["True Done"; 4],
        },
        Case {
            fact: "nodes are being written",
            spec: "{}",
            observation: counted(pending, 1, 2),
            verdicts: ["False InProgress", "False InProgress", "False InProgress", "True Done"],
        },
        Case {
            fact: "only labels are missing",
            spec: "{}",
            observation: counted(pending, 2, 0),
            verdicts: ["False InProgress", "False InProgress", "True Done", "True Done"],
        },
        Case {
            fact: "a class is yet to be written",
            spec: "{}",
            observation: Observation { classes: with(ClassState::Pending), ..done() },
            verdicts: ["False InProgress", "True Done", "True Done", "False InProgress"],
        },
        Case {
            fact: "a node without a readable build holds up its label, not the pool",
            spec: "{}",
            observation: Observation { problems: vec![unknown], ..counted(blocked, 1, 0) },
            verdicts: ["True Done", "False BuildUnknown", "True Done", "True Done"],
        },
        Case {
            fact: "a refused taint does not hold up the pool either",
            spec: "{}",
            observation: Observation { problems: vec![denied], ..counted(blocked, 0, 1) },
            verdicts: ["True Done", "True Done", "False AdmissionDenied", "True Done"],
        },
        Case {
            fact: "a conflict keeps the pool from being ready",
            spec: "{}",
            observation: Observation { classes: with(ClassState::Conflict), problems: vec![conflict], ..done() },
            verdicts: ["False ClassConflict", "True Done", "True Done", "False ClassConflict"],
        },
        Case {
            fact: "a dry run with nothing to change",
            spec: DRY_RUN,
            observation: done(),
            verdicts: ["True DryRun", "True Done", "True Done", "True Done"],
        },
        Case {
            fact: "a dry run with changes is ready: it does all that it can do",
            spec: DRY_RUN,
            observation: Observation { classes: with(ClassState::Pending), ..counted(pending, 1, 2) },
            verdicts: ["True DryRun", "False DryRun", "False DryRun", "False DryRun"],
        },
    ];
    for Case { fact, spec, observation, verdicts: expected } in cases {
        let status = report(&pool(spec), &observation);
        assert_eq!(verdicts(&status), expected, "{fact}");
        let types: Vec<_> = status.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(
            types,
            condition::always().collect::<Vec<_>>(),
            "{fact}: see AT_TIMES in crates/core/src/api/names.rs"
        );
        assert!(status.conditions.iter().all(|c| !c.message.is_empty()), "{fact}: {:#?}", status.conditions);
        assert!(status.conditions.iter().all(|c| c.observed_generation == observation.generation), "{fact}");
    }
}

#[test]
fn messages_count_and_name_what_they_are_about() {
    let nodes = NodeCounts { selected: 9, converged: 4, pending: 3, blocked: 2, ..NodeCounts::default() };
    let busy = Observation { classes: vec![class("windows-2019", ClassState::Pending)], ..counted(nodes, 5, 0) };
    let message = |spec: &str, observation: &Observation, index: usize| -> String {
        report(&pool(spec), observation).conditions[index].message.clone()
    };
    assert_eq!(message("{}", &busy, 0), "winpool has yet to change 3 nodes and 1 RuntimeClass");
    assert_eq!(message("{}", &busy, 1), "5 nodes not labelled yet");
    assert_eq!(message(DRY_RUN, &busy, 0), "dry run: winpool would change 3 nodes and 1 RuntimeClass");
    let blocked = Observation { classes: vec![], ..counted(NodeCounts { pending: 0, selected: 6, ..nodes }, 5, 0) };
    assert_eq!(message("{}", &blocked, 0), "4 of 6 nodes converged; winpool cannot change 2 nodes, see problems");
    let of_one = |ignored| NodeCounts { selected: 3, converged: 3 - ignored, ignored, ..NodeCounts::default() };
    let ignoring = |ignored| counted(of_one(ignored), 0, 0);
    let said = |ignored| [0, 1, 2].map(|index| message("{}", &ignoring(ignored), index));
    assert_eq!(said(0), ["3 of 3 nodes converged", "every node is labelled", "every node is tainted"]);
    let but_one = "winpool ignores 1 node; every other node is";
    let expected = [
        "2 of 3 nodes converged; winpool ignores 1 node",
        &format!("{but_one} labelled"),
        &format!("{but_one} tainted"),
    ];
    assert_eq!(said(1), expected);
    let none = "winpool ignores 3 nodes; the pool selects no other node";
    assert_eq!(said(3), ["0 of 3 nodes converged; winpool ignores 3 nodes", none, none]);
    let failing = |counts: &[(Cause, usize)]| {
        let failures = PoolFailures { counts: counts.iter().copied().collect(), ..PoolFailures::default() };
        let summary = PodSummary { pools: [("default".to_owned(), failures)].into(), ..PodSummary::default() };
        Observation { health: PodHealth::Seen { summary: summary.into(), unseen: None }, ..done() }
    };
    let lacks = failing(&[(Cause::NoNode, 299), (Cause::OsName, 1)]);
    let cannot_run = "3 of 3 nodes converged; 300 pods cannot run because of Windows, see WorkloadsHealthy";
    assert_eq!(message("{}", &lacks, 0), cannot_run);
    assert_eq!(verdicts(&report(&pool("{}"), &lacks))[0], "True Done", "winpool has done all that it can");
    assert_eq!(message("{}", &failing(&[]), 0), "3 of 3 nodes converged");
    let untainted = |spec: &str, untainted| message(spec, &counted(of_one(0), 0, untainted), 2);
    let mode = |mode: &str| format!("spec: {{mode: {mode}, taintPolicy: Never}}");
    for never in ["Enforce", "DryRun"].map(mode) {
        assert_eq!(untainted(&never, 0), "taintPolicy is Never: winpool adds no taint", "{never}");
    }
    assert_eq!(untainted(&mode("DryRun"), 1), "dry run: 1 node would be freed of old taints");
    assert_eq!(untainted(&mode("Enforce"), 1), "1 node cannot be freed of old taints, see problems");
    let conflicts = Observation {
        classes: vec![class("a", ClassState::Conflict)],
        problems: vec![problem(reason::CLASS_CONFLICT, "RuntimeClass a", "is in the way")],
        ..done()
    };
    assert_eq!(message("{}", &conflicts, 3), "RuntimeClass a is in the way");
}

#[test]
fn an_invalid_pool_keeps_what_was_reported_and_says_what_is_wrong() {
    let before = report(&pool("{}"), &done());
    let error = Pool::read(&pool_object("spec: {taints: [{key: os, value: windows, effect: NoExecute}]}")).unwrap_err();
    let suspended = |generation, previous| {
        let now = at("2026-03-02T12:00:00Z");
        suspended_status("default", reason::INVALID_SPEC, &error.to_string(), generation, previous, now)
    };
    let after = suspended(Some(4), Some(&before));
    let unknown = "Unknown InvalidSpec";
    assert_eq!(verdicts(&after), ["False InvalidSpec", unknown, unknown, unknown]);
    assert_eq!((after.observed_generation, after.nodes, &after.builds), (Some(4), before.nodes, &before.builds));
    assert_eq!((&after.taints, &after.runtime_classes), (&before.taints, &before.runtime_classes));
    assert_eq!((after.problems.len(), after.problems[0].reason.as_str()), (1, reason::INVALID_SPEC));
    let message = &after.conditions[0].message;
    assert!(message.contains("spec.taints[0].effect") && message.contains("NoSchedule"), "{message}");

    assert_eq!(verdicts(&suspended(Some(1), None)), verdicts(&after));
}

#[test]
fn held_taints_keep_the_pool_from_being_ready_and_the_condition_says_why() {
    let nodes = NodeCounts { selected: 3, held: 3, ..NodeCounts::default() };
    let status = report(&pool("{}"), &counted(nodes, 0, 3));
    assert_eq!(verdicts(&status)[0], "False Waiting", "the pods are not listed yet");
    let held = Verdict { status: "Unknown", reason: reason::PODS_NOT_SEEN, message: "cannot read pods".to_owned() };
    let observation = Observation { held: Some(held), ..counted(nodes, 0, 3) };
    let status = report(&pool("{}"), &observation);
    assert_eq!(verdicts(&status), ["False PodsNotSeen", "True Done", "Unknown PodsNotSeen", "True Done"]);
    assert_eq!(status.conditions[2].message, "cannot read pods");
    assert_eq!(status.taints, [], "what was never put on is not recorded");
}

#[test]
fn overlapping_is_said_only_where_older_pools_own_nodes() {
    let overlap = Overlap { nodes: 2, example: "win-1".to_owned(), owner: "older".to_owned() };
    let mut observation = done();
    observation.tally.overlap = Some(overlap);
    let status = report(&pool("{}"), &observation);
    let condition = find(&status, condition::OVERLAPPING);
    assert_eq!(condition.status, "True");
    assert!(condition.message.contains("2 nodes") && condition.message.contains("win-1 of older"));
    assert!(!report(&pool("{}"), &done()).conditions.iter().any(|c| c.type_ == condition::OVERLAPPING));
}

#[test]
fn a_transition_time_changes_only_when_the_condition_turns() {
    let times = |status: &WindowsPoolStatus| WORK.map(|name| find(status, name).last_transition_time.0);
    let [first, later, last] = ["2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z", "2026-03-01T14:00:00Z"].map(at);
    let start = status(&pool("{}"), &done(), None, first);
    assert!(start.conditions.iter().all(|condition| condition.last_transition_time.0 == first));

    let busy = NodeCounts { selected: 3, pending: 3, ..NodeCounts::default() };
    let turned = status(&pool("{}"), &counted(busy, 0, 3), Some(&start), later);
    assert_eq!(times(&turned), [later, first, later, first]);

    let less = NodeCounts { selected: 3, converged: 2, pending: 1, ..NodeCounts::default() };
    let still = status(&pool("{}"), &counted(less, 0, 1), Some(&turned), last);
    assert_eq!(times(&still), times(&turned));
    assert_ne!(still.conditions[0].message, turned.conditions[0].message);
}

#[test]
fn the_same_observation_gives_the_same_status_at_any_time_but_for_last_seen() {
    for observation in [done(), counted(NodeCounts { selected: 3, pending: 3, ..NodeCounts::default() }, 1, 2)] {
        let first = report(&pool("{}"), &observation);
        let text = serde_json::to_string(&first).unwrap();
        let stored: WindowsPoolStatus = serde_json::from_str(&text).unwrap();
        let again = |time: &str| status(&pool("{}"), &observation, Some(&stored), at(time));
        assert_eq!(serde_json::to_string(&again("2026-03-01T12:09:59Z")).unwrap(), text);
        let late = WindowsPoolStatus { last_seen: first.last_seen.clone(), ..again("2027-01-01T00:00:00Z") };
        assert_eq!(serde_json::to_string(&late).unwrap(), text);
    }
}

#[test]
fn a_status_is_bounded_whatever_the_cluster_shows() {
    let long = "é".repeat(5000);
    let problems: Vec<_> =
        (0..50).map(|n| problem(reason::CLASS_CONFLICT, &format!("RuntimeClass {n}"), &long)).collect();
    let observation = Observation {
        classes: (0..100).map(|n| class(&n.to_string(), ClassState::Conflict)).collect(),
        problems,
        ..in_use((1..=100).map(|n| (Build::new(n), 1)).collect())
    };
    let ever_applied = (0..100).map(|n| Taint::new(&format!("t{n:03}"), "", "NoSchedule")).collect();
    let knows_pods = with_consent(pool("{}"), |consent| consent.may_add = true);
    let status = report(&Pool { managed_taints: ever_applied, ..knows_pods }, &observation);
    let sizes = (status.builds.len(), status.runtime_classes.len(), status.taints.len(), status.problems.len());
    assert_eq!(sizes, (32, 80, 32, 10));
    let messages = status.problems.iter().map(|p| &p.message).chain(status.conditions.iter().map(|c| &c.message));
    for message in messages {
        assert!(message.chars().count() <= 1025, "1024 characters and an ellipsis");
    }
    assert!(status.problems[0].message.ends_with('…'));
    assert!(recorded_in(&status).contains(&"os=windows:NoSchedule".to_owned()), "what the pool wants now comes first");
}

#[test]
fn a_namespace_that_fills_a_status_leaves_places_to_others() {
    let workloads =
        || (0..50).map(|n| format!("Deployment flood/web-{n:02}")).chain(["Deployment shop/web".to_owned()]);
    let (young, old) = (at("2026-02-28T12:00:00Z"), at("2026-02-27T12:00:00Z"));
    let helped = workloads().map(|name| (name.as_str().into(), if name.contains("shop") { old } else { young }));
    let help = PoolHelp { helped: helped.collect(), ..PoolHelp::default() };
    let summary = PodSummary { help: [("default".to_owned(), help)].into(), ..PodSummary::default() };
    let observation = Observation {
        problems: workloads().map(|name| problem(reason::TOLERATION_REFUSED, &name, "no")).collect(),
        health: PodHealth::Seen { summary: summary.into(), unseen: None },
        ..done()
    };
    let status = report(&pool("{}"), &observation);
    let problems = status.problems.iter().map(|problem| problem.object.to_string());
    let helped = status.helped_workloads.iter().map(|workload| workload.name.clone());
    for named in [problems.collect::<Vec<_>>(), helped.collect()] {
        let of_shop = named.iter().filter(|name| *name == "Deployment shop/web").count();
        assert_eq!((named.len(), of_shop), (10, 1), "{named:?}");
    }
}

#[test]
fn builds_are_summed_up_with_product_and_class() {
    let builds = [(14393, 2), (17763, 5), (29000, 1)].map(|(build, nodes)| (Build::new(build), nodes)).into();
    // The third build has no class: no more than a few builds without a name get one.
    let classes = ["windows-2016", "windows-2019"].map(|name| class(name, ClassState::Applied)).to_vec();
    let observation = Observation { classes, ..in_use(builds) };
    insta::assert_yaml_snapshot!(report(&pool("{}"), &observation).builds);
    let undiscovered = report(&pool("spec: {runtimeClassDiscovery: Disabled}"), &observation);
    assert!(undiscovered.builds.iter().all(|build| build.runtime_class.is_none()));
}

#[test]
fn counts_fit_the_api() {
    assert_eq!((number(0), number(12), number(usize::MAX)), (0, 12, i64::MAX));
}

#[test]
fn foreign_text_becomes_short_plain_lines() {
    let evil = format!("no\r\nforged\u{1b}[2J\u{9b}31m\u{202e}{}", "x".repeat(100_000));
    let problem = Problem {
        reason: reason::ADMISSION_DENIED.to_owned(),
        object: ObjectReference::node("a"),
        message: evil.clone(),
    };
    let observation = Observation {
        problems: vec![problem; 50],
        held: Some(Verdict { status: "Unknown", reason: reason::PODS_NOT_SEEN, message: evil }),
        ..Observation::default()
    };
    let status = report(&pool("{}"), &observation);
    let problems = status.problems.iter().map(|problem| &problem.message);
    for text in problems.chain(status.conditions.iter().map(|condition| &condition.message)) {
        assert!(text.len() <= 1027 && !text.contains(is_command), "{text}");
    }
    assert!(json!(status).to_string().len() < 20_000);
}
