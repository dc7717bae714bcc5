//! Forecasts of the operator's changes to a whole cluster.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use winpool_analysis::explain::forecast::{self, ForecastOutcome, Snapshot};
use winpool_analysis::explain::node::node_explanation;
use winpool_analysis::explain::status::{self, ClusterStatus};
use winpool_analysis::image::Images;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::view::{Known, NODE_SELECTORS, View};
use winpool_core::plan::pools::pool::policy_of;

use crate::common::any::{any_node, any_pool_object};
use crate::common::{node, now, pool_object};

fn snapshot(pools: &[&str], nodes: &[(&str, Value)]) -> Snapshot {
    crate::snapshot(pools.iter().map(|changes| pool_object(changes)), nodes.iter().cloned())
}

fn forecast(snapshot: &Snapshot) -> ForecastOutcome {
    forecast::forecast(snapshot).unwrap()
}

fn status(snapshot: &Snapshot, is_assumed: bool) -> ClusterStatus {
    status::status(snapshot, is_assumed).unwrap()
}

#[test]
fn a_status_shows_what_pools_report_about_their_present_spec_and_nodes() {
    let [reported, found] = [json!({"contested": 1, "blocked": 2}), json!({"pending": 3})];
    // No node has the label yet, so none can be converged.
    for (generation, selected, state, is_assumed, expected) in [
        (1, 3, "blocked", false, &reported),
        (2, 3, "blocked", false, &found),
        (1, 2, "blocked", false, &found),
        (1, 3, "converged", false, &found),
        (1, 3, "blocked", true, &found),
    ] {
        let nodes = json!({"selected": selected, "contested": 1, state: 2});
        let pool = json!({
            "metadata": {"generation": generation}, "status": {"observedGeneration": 1, "nodes": nodes},
        });
        let pools = [pool.to_string()];
        let mut cluster =
            snapshot(&pools.each_ref().map(String::as_str), &["a", "b", "c"].map(|name| (name, node("{}"))));
        cluster.pods = Known::NotRead;
        let shown = status(&cluster, is_assumed);
        assert_eq!(json!(shown.nodes_by_state), *expected, "{generation} {selected} {state} {is_assumed}");
        let is_told = shown.notes.iter().any(|note| note.contains("changed since winpool wrote its status"));
        assert_eq!(is_told, *expected == found && !is_assumed, "{:?}", shown.notes);
        assert_eq!(shown.builds[0].node_count, 3);
        assert_eq!(shown.pods_without_class, None, "pods are not known");
    }
}

#[test]
fn a_status_reports_held_taints_and_a_pool_in_dry_run_owns_no_node() {
    let condition = json!({
        "type": "TaintsApplied", "status": "False", "reason": "DaemonSetsNotTolerating", "message": "os=windows:NoSchedule held",
        "lastTransitionTime": "2026-03-01T00:00:00Z",
    });
    for (mode, count, state) in [("Enforce", "held", "held"), ("DryRun", "pending", "unowned")] {
        let status = json!({"observedGeneration": 1, "nodes": {"selected": 1, count: 1}, "conditions": [condition]});
        let pool = json!({"spec": {"mode": mode}, "status": status}).to_string();
        let shown = self::status(&snapshot(&[&pool], &[("win", node("{}"))]), false);
        assert_eq!(json!(shown.nodes_by_state), json!({state: 1}));
        let [pool] = shown.pools.as_slice() else { panic!("{shown:#?}") };
        assert_eq!(
            (pool.mode.as_str(), pool.held_taints.as_slice()),
            (mode, &["os=windows:NoSchedule".to_owned()][..])
        );
        let reasons: Vec<_> = pool.problems.iter().map(|problem| problem.message.as_str()).collect();
        assert_eq!(reasons.contains(&"os=windows:NoSchedule held"), mode == "DryRun", "{reasons:?}");
    }
}

#[test]
fn a_node_is_pending_exactly_if_the_operator_would_change_it() {
    const POOL: &str = "spec: {runtimeClassHostMatch: Compatible}";
    const OF_2022: &str = "runs.winpool.dev/10.0.20348";
    let modern = "{metadata: {labels: {node.kubernetes.io/windows-build: 10.0.26100}}, \
                  status: {nodeInfo: {kernelVersion: 10.0.26100.4061, containerRuntimeVersion: 'containerd://2.0.4'}}}";
    let fresh = snapshot(&[POOL], &[("win-2022", node("{}")), ("win-2025", node(modern))]);
    let settled = forecast(&fresh);
    let classes: Vec<_> = settled.classes.into_values().collect();
    let done = Snapshot { nodes: settled.nodes, classes, ..fresh.clone() };
    let mut lacking = done.clone();
    let labels = &mut lacking.nodes.get_mut("win-2025").unwrap().labels;
    assert_eq!(labels.get(OF_2022), Some("true"));
    *labels = winpool_simulation::request::labels(labels, [(OF_2022, None)]);
    for (cluster, pending) in [(fresh, 2), (done, 0), (lacking, 1)] {
        let (nodes, policy) = (cluster.nodes.clone(), policy_of(&cluster.pools));
        let outcome = forecast(&cluster);
        for (name, node) in &nodes {
            let explained = node_explanation(name, node, &policy, &cluster.classes, &outcome);
            assert_eq!(explained.state == "pending", !explained.changes.is_empty(), "{explained:#?}");
            assert_eq!(explained.state == "converged", explained.changes.is_empty(), "{explained:#?}");
        }
        assert_eq!(outcome.forecast.nodes.len(), pending);
        let expected = BTreeMap::from([("pending".to_owned(), pending), ("converged".to_owned(), 2 - pending)]);
        let expected: BTreeMap<_, _> = expected.into_iter().filter(|(_, nodes)| *nodes > 0).collect();
        assert_eq!(status(&cluster, false).nodes_by_state, expected);
    }
}

#[test]
fn an_invalid_pool_is_reported_and_left_alone() {
    let wrong = pool_object("spec: {runtimeClasses: [{name: a, version: none}]}");
    let invalid = crate::snapshot([wrong], [("win", node("{}"))]);
    let outcome = forecast(&invalid);
    assert!(outcome.forecast.is_empty());
    assert_eq!(outcome.forecast.summary.pools[0].mode, "Invalid");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_left_to_do_after_a_forecast(
        a in any_pool_object("a"), b in any_pool_object("b"), nodes in vec(any_node(), 0..5),
    ) {
        let names: Vec<String> = (0..nodes.len()).map(|index| format!("win-{index}")).collect();
        let snapshot = crate::snapshot(a.into_iter().chain(b), names.iter().map(String::as_str).zip(nodes));
        let first = forecast(&snapshot);
        let classes = first.classes.values().cloned().collect();
        let again = forecast(&Snapshot { nodes: first.nodes, classes, ..snapshot });
        prop_assert!(again.forecast.is_empty(), "{:#?}", again.forecast);
    }
}

#[test]
fn the_labels_that_a_namespace_selects_tell_nodes_apart() {
    let labelled =
        |team: &str| crate::seen(&node(&format!("{{metadata: {{name: win-{team}, labels: {{team: {team}}}}}}}")));
    let kind = WorkloadKind::own("Deployment").unwrap();
    let set = json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"template": {"spec": {
        "nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "a:1"}]}}}});
    let selector = BTreeMap::from([(NODE_SELECTORS[1].to_owned(), "team=b".to_owned())]);
    let mut view = View { namespace_labels: BTreeMap::from([("shop".to_owned(), selector)]), ..View::default() };
    for team in ["a", "b"] {
        view.nodes.add(labelled(team));
    }
    view.pools.add((None, pool_object("{spec: {taintPolicy: TaintOnly}}").into()));
    view.workloads.of_kind(kind).add(crate::workload_of(kind, set));
    let outcome = forecast::forecast_of(view, &Images::default(), now()).unwrap();
    let workloads = &outcome.forecast.workloads;
    assert_eq!(workloads.len(), 1, "{workloads:?}");
    assert_eq!((workloads[0].nodes_now, workloads[0].nodes_after), (1, 0), "{workloads:?}");
}
