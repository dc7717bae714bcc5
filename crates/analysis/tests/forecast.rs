//! Forecasts of the operator's changes to a whole cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::node::v1::RuntimeClass;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use winpool_analysis::explain::forecast::{Forecast, ForecastOutcome, Snapshot, forecast, forecast_of};
use winpool_analysis::explain::node::node_explanation;
use winpool_analysis::explain::pod_count::PodCount;
use winpool_analysis::explain::status::status;
use winpool_analysis::image::Images;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::pod::Pod;
use winpool_analysis::view::{Known, NODE_SELECTORS, View, after};
use winpool_core::plan::pools::pool::policy_of;
use winpool_core::plan::taints::Consent;
use winpool_core::pod::PodProgress;

use crate::common::any::{any_node, any_policy, any_pool_object};
use crate::common::{assess, node, now, planned, pool_object, read, yaml};

fn snapshot(pools: &[&str], nodes: &[(&str, Value)]) -> Snapshot {
    crate::snapshot(pools.iter().map(|changes| pool_object(changes)), nodes.iter().cloned())
}

/// Looks again at what came out: nothing may be left to do.
fn at_rest(before: Snapshot) -> ForecastOutcome {
    let outcome = forecast(before.clone());
    let again = forecast(Snapshot {
        nodes: outcome.nodes.clone(),
        classes: outcome.classes.values().cloned().collect(),
        pools: before.pools.into_iter().filter(|pool| pool.metadata.deletion_timestamp.is_none()).collect(),
        ..before
    });
    assert!(again.forecast.is_empty(), "{:#?}", again.forecast);
    outcome
}

/// `name: field from -> to` of every node, and `name action` of every class.
fn lines(forecast: &Forecast) -> Vec<String> {
    let classes = forecast.runtime_classes.iter().map(|class| format!("{} {}", class.name, class.action));
    let nodes = forecast.nodes.iter().flat_map(|node| {
        node.changes
            .iter()
            .filter(|change| change.field == "spec.taints" || change.field.contains("windows-build"))
            .map(|change| {
                let field = change.field.rsplit(['.', '/']).next().unwrap_or_default().trim_end_matches(']');
                format!("{} {field}: {} -> {}", node.name, change.from, change.to)
            })
    });
    classes.chain(nodes).collect()
}

fn running_on(node: &str) -> Pod {
    let mut pod = Pod { spec: yaml(&format!("{{nodeName: {node}}}")), ..Pod::default() };
    "shop".clone_into(&mut pod.namespace);
    "web-1".clone_into(&mut pod.name);
    pod.progress = PodProgress::Started;
    pod
}

fn of_class(class: &str, mut pod: Pod) -> Pod {
    pod.spec.runtime_class = Some(class.to_owned());
    pod
}

/// A class that winpool created, as status records it.
fn recorded_class(class: &RuntimeClass) -> Value {
    let metadata = &class.metadata;
    json!({
        "name": metadata.name, "uid": metadata.uid, "build": "Any", "isolation": "Process", "handler": class.handler,
        "state": "Applied", "nodes": 1,
    })
}

const WIN_2019: &str = "{metadata: {labels: {node.kubernetes.io/windows-build: null}}, status: {nodeInfo: {kernelVersion: 10.0.17763.6659}}}";

#[test]
fn an_empty_pool_labels_taints_and_makes_a_class_for_each_build() {
    let outcome = at_rest(snapshot(&["{}"], &[("win-2019", node(WIN_2019)), ("win-2022", node("{}"))]));
    insta::assert_yaml_snapshot!(outcome.forecast);
}

/// The cluster with a Windows node and a Linux node, and this object.
fn with_object(pool: &str, kind: &str, object: &str) -> Snapshot {
    let linux = node("{metadata: {labels: {kubernetes.io/os: linux}}, status: {nodeInfo: {operatingSystem: linux}}}");
    let mut cluster = snapshot(&[pool], &[("win", node("{}")), ("linux", linux)]);
    match WorkloadKind::with_template(kind) {
        Some(kind) => cluster.workloads.of_kind(kind).add(crate::workload_of(kind, yaml(object))),
        None => cluster.pods = Known::Complete(yaml(object)),
    }
    cluster
}

/// `Deployment shop/web 2` for each.
fn named(found: &[PodCount]) -> Vec<String> {
    found.iter().map(|PodCount { object, pods }| format!("{object} {pods}")).collect()
}

#[test]
fn daemon_sets_that_would_make_no_pods_hold_the_taint() {
    const TOLERATION: &str = "tolerations: [{key: os, operator: Equal, value: windows, effect: NoSchedule}]";
    let on_windows = "nodeSelector: {kubernetes.io/os: windows}";
    for (annotation, spec, holds) in [
        ("{}", on_windows.to_owned(), true),
        ("{}", "runtimeClassName: windows-2022".to_owned(), true),
        ("{}", format!("runtimeClassName: windows-2022, {TOLERATION}"), false),
        ("{}", format!("{on_windows}, {TOLERATION}"), false),
        ("{winpool.dev/ignore: 'true'}", on_windows.to_owned(), false),
        ("{}", "nodeSelector: {kubernetes.io/os: linux}".to_owned(), false),
        ("{}", "nodeSelector: {kubernetes.io/os: windows, team: elsewhere}".to_owned(), false),
        ("{}", String::new(), false),
    ] {
        let set = format!(
            "{{metadata: {{namespace: shop, name: agent, annotations: {annotation}}}, spec: {{template: {{spec: {{{spec}}}}}}}}}"
        );
        for (pool, held) in [("{}", true), ("spec: {mode: DryRun}", true), ("spec: {taintPolicy: TaintOnly}", false)] {
            if pool.contains("DryRun") && spec.contains("runtimeClassName") {
                // A pool in dry run creates no RuntimeClass.
                continue;
            }
            let outcome = at_rest(with_object(pool, "DaemonSet", &set));
            let found = &outcome.forecast.summary.pools[0];
            assert_eq!(!found.held_taints.is_empty(), holds && held, "{pool} {set}");
            let expected = if holds && held { vec!["DaemonSet shop/agent 1".to_owned()] } else { Vec::new() };
            assert_eq!((named(&found.without_pods), found.helped.len()), (expected, 0), "{pool} {set}");
        }
    }
}

#[test]
fn workloads_whose_pods_get_tolerations_are_named() {
    let pod = |name: &str, owner: &str, spec: &str| {
        format!(
            "{{metadata: {{namespace: shop, name: {name}, uid: 1d5e0a5c-0000-4000-8000-000000000000, labels: {{pod-template-hash: 5d8f7}}, \
             ownerReferences: {owner}}}, spec: {{{spec}}}, status: {{phase: Running, containerStatuses: [{{state: {{running: {{}}}}}}]}}}}"
        )
    };
    let of = |version: &str, kind: &str, name: &str| {
        format!("[{{apiVersion: {version}, kind: {kind}, name: {name}, controller: true}}]")
    };
    let set = of("apps/v1", "ReplicaSet", "web-5d8f7");
    let windows = "os: {name: windows}";
    let template =
        |spec: &str| format!("{{metadata: {{namespace: shop, name: web}}, spec: {{template: {{spec: {{{spec}}}}}}}}}");
    for (kind, object, expected) in [
        (
            "Pod",
            format!("[{}, {}]", pod("web-a", &set, windows), pod("web-b", &set, windows)),
            Some("Deployment shop/web 2"),
        ),
        (
            "Pod",
            format!("[{}]", pod("report-29000000-x", &of("batch/v1", "Job", "report-29000000"), windows)),
            Some("CronJob shop/report 1"),
        ),
        ("Pod", format!("[{}]", pod("once", "[]", windows)), Some("Pod shop/once 1")),
        ("Pod", format!("[{}]", pod("runs", "[]", "nodeName: win")), Some("Pod shop/runs 1")),
        ("Pod", format!("[{}]", pod("runs", "[]", "nodeName: linux")), None),
        ("Pod", format!("[{}]", pod("once", "[]", "os: {name: linux}")), None),
        ("Pod", format!("[{}]", pod("once", "[]", "os: {name: windows}, tolerations: [{operator: Exists}]")), None),
        // The author of a manifest may leave out what the API server adds.
        (
            "Pod",
            "[{metadata: {namespace: shop, name: new}, spec: {os: {name: windows}}}]".to_owned(),
            Some("Pod shop/new 1"),
        ),
        ("Pod", "[{metadata: {namespace: shop, name: new}, spec: {runtimeClassName: windows-2022}}]".to_owned(), None),
        ("Deployment", template(windows), Some("Deployment shop/web 0")),
        ("Deployment", template("runtimeClassName: windows-2022"), None),
        ("Deployment", template("nodeSelector: {kubernetes.io/os: linux}"), None),
    ] {
        let of_pool = |spec: &str| at_rest(with_object(spec, kind, &object)).forecast.summary.pools[0].clone();
        let expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
        let pool = of_pool("{}");
        assert_eq!(
            (named(&pool.helped), pool.held_taints.len(), pool.without_pods.len()),
            (expected, 0, 0),
            "{object}"
        );
        for spec in [
            "spec: {taintPolicy: TaintOnly}",
            "spec: {taintPolicy: Never}",
            "spec: {mode: DryRun}",
            "spec: {nodeSelector: {team: elsewhere}}",
        ] {
            let pool = of_pool(spec);
            assert_eq!((pool.helped, pool.without_pods), (Vec::new(), Vec::new()), "{spec} {object}");
        }
    }
}

#[test]
fn a_pod_that_its_author_puts_on_a_node_needs_no_toleration() {
    for is_bound in [true, false] {
        let mut pod = running_on("win-2019");
        (pod.is_bound, pod.progress) = (is_bound, PodProgress::Waiting);
        pod.spec.os = Some("windows".to_owned());
        let placed =
            Snapshot { pods: Known::Complete(vec![pod]), ..snapshot(&["{}"], &[("win-2019", node(WIN_2019))]) };
        let pool = &at_rest(placed).forecast.summary.pools[0];
        assert_eq!(pool.helped.len(), usize::from(is_bound));
    }
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
    let settled = at_rest(fresh.clone());
    let classes: Vec<_> = settled.classes.into_values().collect();
    let done = Snapshot { nodes: settled.nodes, classes, ..fresh.clone() };
    let mut lacking = done.clone();
    let labels = &mut lacking.nodes.get_mut("win-2025").unwrap().labels;
    assert_eq!(labels.get(OF_2022), Some("true"));
    *labels = winpool_analysis::view::relabelled(labels, [(OF_2022, None)]);
    for (cluster, pending) in [(fresh, 2), (done, 0), (lacking, 1)] {
        let (nodes, policy) = (cluster.nodes.clone(), policy_of(&cluster.pools));
        let outcome = forecast(cluster.clone());
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
fn pods_that_run_do_not_stop_a_taint() {
    for pool in ["{}", "spec: {taintPolicy: TaintOnly}"] {
        let busy = Snapshot {
            pods: Known::Complete(vec![running_on("win"), running_on("elsewhere")]),
            ..snapshot(&[pool], &[("win", node("{}"))])
        };
        let outcome = at_rest(busy);
        assert_eq!(lines(&outcome.forecast), ["windows-2022 Create", "win taints: null -> \"os=windows:NoSchedule\""]);
        assert_eq!(outcome.forecast.summary.silent_workloads.len(), 1);
    }
}

#[test]
fn pods_that_cannot_be_read_hold_the_taint() {
    let blind = Snapshot {
        pods: Known::Forbidden("pods is forbidden".to_owned()),
        ..snapshot(&["{}"], &[("win", node("{}"))])
    };
    let outcome = at_rest(blind);
    let pool = &outcome.forecast.summary.pools[0];
    assert_eq!(pool.held_taints, ["os=windows:NoSchedule"]);
    assert!(pool.problems[0].message.contains("pods is forbidden"), "{pool:#?}");
}

#[test]
fn of_the_kinds_that_cannot_be_listed_only_daemon_sets_hold_the_taint() {
    for (kind, holds) in
        [(WorkloadKind::own("CronJob").unwrap(), false), (WorkloadKind::own("DaemonSet").unwrap(), true)]
    {
        let mut partial = snapshot(&["{}"], &[("win", node("{}"))]);
        *partial.workloads.of_kind(kind) = Known::Forbidden("it is forbidden".to_owned());
        let (policy, classes) = (policy_of(&partial.pools), partial.classes.clone());
        let outcome = at_rest(partial);
        let pool = &outcome.forecast.summary.pools[0];
        assert_eq!(pool.held_taints.len(), usize::from(holds), "{kind:?}");
        let of_node = node_explanation("win", &outcome.nodes["win"], &policy, &classes, &outcome).reasons;
        for told in [pool.problems.iter().map(|problem| problem.message.clone()).collect(), of_node] {
            let is_told = told
                .iter()
                .any(|message| message.contains("held: winpool cannot read pods or DaemonSets: it is forbidden"));
            assert_eq!(is_told, holds, "{told:?}");
        }
    }
}

#[test]
fn dry_run_writes_nothing_and_says_what_it_would() {
    let outcome = at_rest(snapshot(&["spec: {mode: DryRun}"], &[("win-2019", node(WIN_2019))]));
    assert!(outcome.forecast.is_empty());
    let pool = &outcome.forecast.summary.pools[0];
    assert_eq!((pool.mode.as_str(), pool.would_change), ("DryRun", 1));
    assert_eq!(pool.problems[0].message, "would be created");
}

#[test]
fn deleting_a_pool_removes_its_marks_and_unused_classes() {
    let made = forecast(snapshot(&["{}"], &[("win-2019", node(WIN_2019)), ("win-2022", node("{}"))]));
    let recorded: Vec<_> = made.classes.values().map(|class| recorded_class(class)).collect();
    let deleted = json!({
        "metadata": {"deletionTimestamp": "2026-02-01T00:00:00Z", "finalizers": ["winpool.dev/cleanup"]},
        "status": {"taints": [{"taint": "os=windows:NoSchedule"}], "runtimeClasses": recorded},
    });
    let uses = of_class("windows-2022", running_on("win-2022"));
    let outcome = forecast(Snapshot {
        nodes: made.nodes,
        classes: made.classes.into_values().collect(),
        pods: Known::Complete(vec![uses]),
        ..snapshot(&[&deleted.to_string()], &[])
    });
    insta::assert_yaml_snapshot!(outcome.forecast);
}

#[test]
fn an_invalid_pool_is_reported_and_left_alone() {
    let wrong = pool_object("spec: {runtimeClasses: [{name: a, version: none}]}");
    let invalid = crate::snapshot([wrong], [("win", node("{}"))]);
    let outcome = forecast(invalid);
    assert!(outcome.forecast.is_empty());
    assert_eq!(outcome.forecast.summary.pools[0].mode, "Invalid");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_forecast_changes_a_node_as_the_patch_does(node in any_node(), policy in any_policy()) {
        let plan = assess(&read(&node), &policy).plan;
        prop_assert_eq!(after(&read(&node), &plan), read(&planned(&node, &policy, Consent::Given)));
    }

    #[test]
    fn nothing_is_left_to_do_after_a_forecast(
        a in any_pool_object("a"), b in any_pool_object("b"), nodes in vec(any_node(), 0..5),
    ) {
        let names: Vec<String> = (0..nodes.len()).map(|index| format!("win-{index}")).collect();
        let snapshot = crate::snapshot(a.into_iter().chain(b), names.iter().map(String::as_str).zip(nodes));
        let first = forecast(snapshot.clone());
        let classes = first.classes.values().cloned().collect();
        let again = forecast(Snapshot { nodes: first.nodes, classes, ..snapshot });
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
    let outcome = forecast_of(view, &Images::default(), now());
    let workloads = &outcome.forecast.workloads;
    assert_eq!(workloads.len(), 1, "{workloads:?}");
    assert_eq!((workloads[0].nodes_now, workloads[0].nodes_after), (1, 0), "{workloads:?}");
}
