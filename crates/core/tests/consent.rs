//! The conditions under which a taint may be added to a node. `DaemonSets` are in `reconcile/daemon_sets.rs`.

use std::time::Instant;

use crate::common::{self, node, policy, read, with_consent};
use serde_json::Value;
use winpool_core::node::Watched;
use winpool_core::plan::nodes::assessment::assess;
use winpool_core::plan::pools::consent::LaggingClass;
use winpool_core::plan::pools::pool::Pool;
use winpool_core::plan::taints::Consent;

const MINE: &str = "os=windows:NoSchedule";
const RECORDED: &str = "status: {taints: [{taint: 'os=windows:NoSchedule'}, {taint: 'os=windows:PreferNoSchedule'}]}";

/// A pool whose classes are planned for the build of the bare node, while winpool knows the pods.
fn pool(yaml: &str) -> Pool {
    let planned_builds = read(&bare()).windows_build().into_iter().collect();
    with_consent(common::pool(yaml), |consent| (consent.planned_builds, consent.may_add) = (planned_builds, true))
}

fn bare() -> Value {
    node("{}")
}

fn with(mut value: Value, changes: &str) -> Value {
    json_patch::merge(&mut value, &common::yaml(changes));
    value
}

/// True if the node gets the taint now. Otherwise the taint is held, if the pool wants it.
fn gets_taint(pool: &Pool, object: &Value) -> bool {
    let consent = Consent::Known { name: "win", watched: &Watched::default(), now: Instant::now() };
    let assessment = assess(&read(object), &policy([pool.clone()]), consent);
    let adds = assessment.plan.taints.is_some_and(|change| change.added.iter().any(|taint| taint.key == "os"));
    assert!(!adds || assessment.taints.held.is_empty());
    adds
}

#[test]
fn a_taint_needs_a_record_and_known_pods_unless_it_waits_for_nobody() {
    let prefer = "taints: [{key: os, value: windows, effect: PreferNoSchedule}]";
    for (fact, changes, expected, while_unknown) in [
        ("recorded", RECORDED.to_owned(), true, false),
        ("not recorded", "{}".to_owned(), false, false),
        ("taintPolicy TaintOnly", format!("{{spec: {{taintPolicy: TaintOnly}}, {RECORDED}}}"), true, true),
        ("taintPolicy TaintOnly, not recorded", "{spec: {taintPolicy: TaintOnly}}".to_owned(), false, false),
        ("PreferNoSchedule", format!("{{spec: {{{prefer}}}, {RECORDED}}}"), true, true),
        ("taintPolicy Never", format!("{{spec: {{taintPolicy: Never}}, {RECORDED}}}"), false, false),
    ] {
        let known = pool(&changes);
        let unknown = with_consent(known.clone(), |consent| consent.may_add = false);
        let blind = with_consent(known.clone(), |consent| consent.cannot_read = true);
        let found = [known, unknown, blind].map(|pool| gets_taint(&pool, &bare()));
        assert_eq!(found, [expected, while_unknown, false], "{fact}");
    }
}

#[test]
fn a_class_that_does_not_tolerate_a_taint_yet_holds_only_the_nodes_that_it_selects() {
    let lagging = |selector: &[(&str, &str)], taint: &str| LaggingClass {
        name: "windows-2022".to_owned(),
        selector: selector.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: vec![taint.parse().unwrap()],
        is_missing: false,
    };
    let os = ("kubernetes.io/os", "windows");
    for (fact, class, changes, expected) in [
        ("its build", lagging(&[os, ("node.kubernetes.io/windows-build", "10.0.20348")], MINE), "{}", false),
        ("another build", lagging(&[os, ("node.kubernetes.io/windows-build", "10.0.17763")], MINE), "{}", true),
        (
            "the build that the label will have",
            lagging(&[("node.kubernetes.io/windows-build", "10.0.20348")], MINE),
            "metadata: {labels: {node.kubernetes.io/windows-build: 10.0.1}}",
            false,
        ),
        ("any build", lagging(&[os], MINE), "{}", false),
        ("a class without a selector", lagging(&[], MINE), "{}", false),
        (
            "a capability label that the node may get",
            lagging(&[os, ("runs.winpool.dev/10.0.20348", "true")], MINE),
            "{}",
            false,
        ),
        ("another team", lagging(&[os, ("team", "b")], MINE), "metadata: {labels: {team: a}}", true),
        ("another taint", lagging(&[os], "a=b:NoSchedule"), "{}", true),
    ] {
        for base in [RECORDED.to_owned(), format!("{{spec: {{taintPolicy: TaintOnly}}, {RECORDED}}}")] {
            let pool = with_consent(pool(&base), |consent| consent.lagging = vec![class.clone()]);
            let object = with(bare(), changes);
            assert_eq!(gets_taint(&pool, &object), expected, "{fact}: {base}");
        }
    }
}

#[test]
fn a_node_of_a_build_that_is_new_to_the_pool_waits_until_its_class_is_planned() {
    for (spec, expected) in
        [("", false), ("spec: {taintPolicy: TaintOnly}, ", false), ("spec: {runtimeClassDiscovery: Disabled}, ", true)]
    {
        let known = pool(&format!("{{{spec}{RECORDED}}}"));
        let new = with_consent(known.clone(), |consent| consent.planned_builds.clear());
        for (pool, expected) in [(known, true), (new, expected)] {
            assert_eq!(gets_taint(&pool, &bare()), expected, "{spec} {:?}", pool.consent.planned_builds);
        }
    }
}
