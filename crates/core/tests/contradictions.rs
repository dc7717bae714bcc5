//! A label that contradicts what the node reports. A kubelet writes its labels first and reports 0.2 seconds later, so for
//! that moment the label is right and the report is old.

use std::time::{Duration, Instant};

use crate::common::{marked, node, policy, pool, read, tainted};
use serde_json::{Value, json};
use winpool_core::api::NodeCounts;
use winpool_core::api::names::{self, reason};
use winpool_core::node::{LABEL_SETTLES, NodeObject, Watched};
use winpool_core::plan::nodes::assessment::{Assessment, NodeState, assess};
use winpool_core::plan::nodes::numbers::Tally;
use winpool_core::plan::nodes::{NodeEvent, NodeTable};
use winpool_core::plan::taints::Consent;

const OLD: &str = "10.0.20348";
const NEW: &str = "10.0.26100";
const OTHER: &str = "10.0.17763";

/// A node with this label, or none, that reports this build.
fn of(label: &str, reported: &str) -> Value {
    let mut node = node(&format!("status: {{nodeInfo: {{kernelVersion: {reported}.1}}}}"));
    let label = Some(label).filter(|label| !label.is_empty());
    json_patch::merge(&mut node, &json!({"metadata": {"labels": {names::WINDOWS_BUILD: label}}}));
    node
}

/// The assessment of a node, this many milliseconds after the start, after it was seen at these times.
fn stand(seen: &[(u64, Value)], later: u64, spec: &str) -> Assessment {
    let (start, pool) = (Instant::now(), pool(spec));
    let after = |milliseconds| start + Duration::from_millis(milliseconds);
    let mut watched = Watched::default();
    for (milliseconds, object) in seen {
        watched.see(&read(object), false, after(*milliseconds));
    }
    let (_, last) = seen.last().unwrap();
    assess(&read(last), &policy([pool]), Consent::Known { name: "win", watched: &watched, now: after(later) })
}

fn label_to_be(assessment: &Assessment) -> Option<&str> {
    assessment.plan.windows_build.as_ref()?.to.as_deref()
}

#[test]
fn a_new_label_is_not_corrected_before_the_kubelet_can_report_its_build() {
    let over = u64::try_from(LABEL_SETTLES.as_millis()).unwrap();
    let before = (0, of(OLD, OLD));
    let upgraded = vec![before.clone(), (5000, of(NEW, OLD))];
    let then = |event| [upgraded.clone(), vec![event]].concat();
    // What was seen when, the time of the assessment, and the label that is written.
    let cases = [
        ("the kubelet has written the label only", upgraded.clone(), 5200, None),
        ("it reports the new build too", then((5200, of(NEW, NEW))), 5200, None),
        ("it never does", upgraded.clone(), 5000 + over, Some(OLD)),
        ("it sends heartbeats, but never the build", then((6000, of(NEW, OLD))), 5000 + over, Some(OLD)),
        ("it reports yet another build", then((5200, of(NEW, OTHER))), 5000 + over, Some(OTHER)),
        ("the label changes again", then((6000, of(OTHER, OLD))), 5000 + over, Some(OLD)),
        ("the label goes", then((5200, of("", OLD))), 5200, Some(OLD)),
        ("the label becomes no build", then((5200, of("windows-2025", OLD))), 5200, Some(OLD)),
        ("a label that went", vec![before.clone(), (5000, of("", OLD))], 5000, Some(OLD)),
        ("a build is reported", vec![before.clone(), (5000, of(OLD, NEW))], 5200, None),
        ("a build is reported and the label stays", vec![before, (5000, of(OLD, NEW))], 5000 + over, Some(NEW)),
        ("it is first seen so", vec![(0, of(NEW, OLD))], 10, None),
        ("it is first seen so, and stays so", vec![(0, of(NEW, OLD))], over, Some(OLD)),
    ];
    for (fact, seen, now, expected) in cases {
        for spec in ["{}", "spec: {nodeSelector: {kubernetes.io/arch: amd64}}"] {
            assert_eq!(label_to_be(&stand(&seen, now, spec)), expected, "{fact}");
        }
    }
}

#[test]
fn a_label_that_moves_the_node_to_another_pool_is_waited_out_as_well() {
    let selects_new = format!("spec: {{nodeSelector: {{node.kubernetes.io/windows-build: {NEW}}}}}");
    let seen = [(0, of(OLD, OLD)), (5000, of(NEW, OLD))];
    assert_eq!(label_to_be(&stand(&seen, 5200, &selects_new)), None);
    assert_eq!(label_to_be(&stand(&seen, 10_100, &selects_new)), Some(OLD));
}

#[test]
fn a_node_that_waits_for_its_label_gets_everything_else() {
    let seen = [(0, of(OLD, OLD)), (5000, of(NEW, OLD))];
    let assessment = stand(&seen, 5200, "spec: {taintPolicy: Never}");
    assert!(assessment.plan.is_empty(), "{:?}", assessment.plan);
    assert_eq!(assessment.state(), NodeState::Pending);
    assert!(assessment.label_settles.is_some());
}

#[test]
fn a_node_keeps_everything_until_its_kubelet_confirms_another_system() {
    let marked = marked(tainted(&["os=windows:NoSchedule"]), "default", &["os=windows:NoSchedule"]);
    let policy = policy([pool("status: {taints: [{taint: 'os=windows:NoSchedule'}]}")]);
    for (label, reported, is_released) in [
        (Some("linux"), "windows", false),
        (None, "windows", false),
        (Some("windows"), "linux", false),
        (Some("windows"), "windows", false),
        (Some("linux"), "linux", true),
        (Some("linux"), "", true),
        (None, "linux", true),
        (None, "", true),
    ] {
        let mut node = marked.clone();
        let seen = json!({
            "metadata": {"labels": {names::OS: label}}, "status": {"nodeInfo": {"operatingSystem": reported}},
        });
        json_patch::merge(&mut node, &seen);
        let plan = assess(&read(&node), &policy, Consent::Given).plan;
        assert_eq!(!plan.is_empty(), is_released, "label {label:?}, reported {reported:?}: {plan:?}");
    }
}

/// The sums of the pool `default` with this spec over this node.
fn tally_of(node: &Value, spec: &str) -> Tally {
    let (mut table, now) = (NodeTable::default(), Instant::now());
    table.count_by(policy([pool(spec)]), now);
    let object = NodeObject { name: "win".into(), node: read(node), ..NodeObject::default() };
    table.observe(NodeEvent::Listed(vec![object.into()]), now);
    table.tally("default").clone()
}

#[test]
fn a_node_that_claims_windows_and_reports_another_system_is_counted_and_named() {
    let claims = |reported: &str| {
        let mut node = node("{metadata: {labels: {node.kubernetes.io/windows-build: null}}}");
        json_patch::merge(&mut node, &json!({"status": {"nodeInfo": {"operatingSystem": reported}}}));
        node
    };
    let counts = |blocked| NodeCounts { selected: 1, blocked, pending: 1 - blocked, ..NodeCounts::default() };
    for spec in ["{}", "spec: {mode: DryRun}"] {
        let tally = tally_of(&claims("linux"), spec);
        assert_eq!(tally.counts(), counts(1), "{spec}");
        let problems = tally.problems();
        let [problem] = problems.as_slice() else { panic!("{spec}: {problems:?}") };
        assert_eq!((problem.reason.as_str(), problem.object.name.as_str()), (reason::OPERATING_SYSTEM_DIFFERS, "win"));
        assert!(tally.seen().builds.is_empty(), "{spec}: no RuntimeClass for what it reports");
        assert!(tally.held.is_empty() && tally.unfinished == 0, "{spec}: nothing waits because of it");
        // Its kubelet confirms one of the two.
        assert_eq!(tally_of(&claims("windows"), spec).counts(), counts(0), "{spec}");
        let mut reimaged = claims("linux");
        json_patch::merge(&mut reimaged, &json!({"metadata": {"labels": {names::OS: "linux"}}}));
        assert_eq!(tally_of(&reimaged, spec), Tally::default(), "{spec}");
    }
    let mut ignored = claims("linux");
    json_patch::merge(&mut ignored, &json!({"metadata": {"annotations": {names::IGNORE: "true"}}}));
    let tally = tally_of(&ignored, "{}");
    assert_eq!((tally.counts().ignored, tally.problems().len()), (1, 0), "you know about it");
}

#[test]
fn a_node_whose_version_cannot_be_read_is_named_also_if_a_label_has_its_build() {
    for label in [Some(OLD), None] {
        let mut banana = node("{status: {nodeInfo: {kernelVersion: banana}}}");
        json_patch::merge(&mut banana, &json!({"metadata": {"labels": {names::WINDOWS_BUILD: label}}}));
        let tally = tally_of(&banana, "{}");
        let [problem] = tally.problems().try_into().unwrap();
        assert_eq!((problem.reason.as_str(), problem.object.name.as_str()), (reason::BUILD_UNKNOWN, "win"));
        let builds: Vec<String> = tally.builds.keys().map(ToString::to_string).collect();
        assert_eq!(builds, Vec::from_iter(label));
    }
}
