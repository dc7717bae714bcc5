//! What is counted of the pods that fail, and how long.

use serde_json::{Value, json};
use winpool_core::api::names::reason;

use super::{World, counts, creating, decode, does_not_start, pod, refused, runs, waits, world};
use crate::common::class;

const SANDBOX: &str = "failed to get sandbox image \"pause\": no match for platform in manifest";

fn unschedulable(name: &str, spec: &Value) -> Value {
    let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    let mut with_node = json!({"nodeName": null});
    json_patch::merge(&mut with_node, spec);
    pod(name, "", &with_node, &status)
}

#[test]
fn a_pod_without_a_node_counts_if_no_node_has_the_labels_that_it_selects() {
    let windows = |changes: Value| {
        let mut spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
        json_patch::merge(&mut spec, &changes);
        spec
    };
    let build = |build: &str| json!({"nodeSelector": {"node.kubernetes.io/windows-build": build}});
    for (fact, spec, counts_it) in [
        ("another build", windows(build("10.0.17763")), true),
        ("this build, but the node is full", windows(build("10.0.20348")), false),
        ("a Linux pod", json!({"nodeSelector": {"kubernetes.io/os": "linux", "a": "b"}}), false),
        ("it says nothing", json!({"nodeSelector": {"a": "b"}}), false),
        ("a label that no node has", windows(json!({"nodeSelector": {"team": "a"}})), true),
        ("gated", windows(json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"team": "a"}})), false),
    ] {
        let mut world = world();
        world.pods = vec![unschedulable("web-5d8f7-a", &spec)];
        let failures = world.count();
        assert_eq!(counts(&failures) == [("no_node", 1)], counts_it, "{fact}: {failures:?}");
    }
}

/// The classes that are said to have no node, or pods that were created too early, and the workloads with a problem of their
/// own.
fn said(world: &mut World) -> (Vec<&'static str>, usize) {
    world.list();
    let summary = world.summary();
    let class = summary.classes.get("windows-2022").cloned().unwrap_or_default();
    let of_class = [
        (class.is_unserved, reason::CLASS_WITHOUT_NODES),
        (!class.created_too_early.is_empty(), reason::PODS_CREATED_TOO_EARLY),
    ];
    let own =
        summary.pools["default"].workloads.iter().filter(|failure| !failure.message.contains("see the problem of"));
    (of_class.into_iter().filter(|(is_said, _)| *is_said).map(|(_, reason)| reason).collect(), own.count())
}

#[test]
fn pods_of_a_class_that_selects_no_node_have_the_problem_of_the_class_and_no_other() {
    let mut world = world();
    let of_class = "{metadata: {name: windows-2022, labels: {winpool.dev/pool: default}}, handler: h, \
                    scheduling: {nodeSelector: {kubernetes.io/os: windows, node.kubernetes.io/windows-build: 10.0.17763}}}";
    world.classes = vec![class(of_class)];
    let selector = json!({"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": "10.0.17763"});
    world.pods =
        vec![unschedulable("web-5d8f7-a", &json!({"runtimeClassName": "windows-2022", "nodeSelector": selector}))];
    // The class has the selector of its pod, so that pod was not created too early.
    assert_eq!(said(&mut world), (vec![reason::CLASS_WITHOUT_NODES], 0));
    assert_eq!(counts(&world.count()), [("no_node", 1)]);

    // The class gets another selector, which the pod does not have.
    world.classes = vec![class(&of_class.replace("10.0.17763", "10.0.20348"))];
    assert_eq!(said(&mut world), (vec![reason::PODS_CREATED_TOO_EARLY], 0));

    // No pool has the class, so no problem of a class would say it.
    world.classes = vec![class(&of_class.replace("winpool.dev/pool", "team"))];
    assert_eq!(said(&mut world).1, 1);
}

#[test]
fn memory_is_bounded_whatever_pods_require() {
    for (pods, values, limit) in [(50, 2000, 100_000), (5000, 60, 40 << 20)] {
        let mut world = world();
        for number in 0..pods {
            let values: Vec<String> = (0..values).map(|value| format!("a-long-value-{number}-{value}")).collect();
            let terms = json!([{"matchExpressions": [{"key": "team", "operator": "In", "values": values}]}]);
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
            let spec = json!({"os": {"name": "windows"}, "affinity": {"nodeAffinity": required}});
            world.table.see(&decode(&unschedulable(&format!("web-5d8f7-{number}"), &spec)), world.now);
        }
        let kept = format!("{:?}", world.table).len();
        assert!(kept < limit, "{kept} bytes for {pods} pods");
    }
}

#[test]
fn refused_pods_count_once_for_their_controller_and_end_ten_minutes_after_the_last() {
    let mut world = world();
    for second in 0..45 {
        for pod in 0..8 {
            world.pods.push(refused(&format!("web-5d8f7-{second}x{pod}"), "PodOSNotSupported"));
        }
        world.list();
        world.wait(1);
    }
    assert_eq!(counts(&world.count()), [("os_name", 1)]);
    world.pods.clear();
    world.wait(9 * 60);
    world.pods.push(refused("web-5d8f7-last", "PodOSNotSupported"));
    assert_eq!(counts(&world.count()), [("os_name", 1)]);
    world.pods.clear();
    world.wait(9 * 60);
    assert_eq!(counts(&world.count()), [("os_name", 1)], "the pod is gone, and was ended all the same");
    world.wait(60);
    assert_eq!(counts(&world.count()), []);
}

#[test]
fn a_list_shows_pods_that_ended_long_ago_and_they_count_only_if_it_was_just_now() {
    for (created, expected) in [("2026-03-01T11:55:00Z", 1), ("2026-03-01T11:45:00Z", 0), ("2026-03-01T12:05:00Z", 1)] {
        let mut world = world();
        let mut pod = refused("web-5d8f7-a", "NodeAffinity");
        pod["metadata"]["creationTimestamp"] = json!(created);
        world.pods = vec![pod];
        assert_eq!(counts(&world.count()).len(), expected, "{created}");
    }
    // The kubelet ends an old pod.
    let mut world = world();
    let mut pod = runs("web-5d8f7-a");
    pod["metadata"]["creationTimestamp"] = json!("2026-02-01T00:00:00Z");
    world.pods = vec![pod.clone()];
    assert_eq!(counts(&world.count()), []);
    pod["status"] = json!({"phase": "Failed", "reason": "NodeAffinity"});
    world.pods = vec![pod];
    assert_eq!(counts(&world.count()), [("labels_changed", 1)]);
}

#[test]
fn failures_end_when_the_pods_are_healthy_or_gone() {
    let other_build = "The container operating system does not match the host operating system.";
    for (fact, pods) in
        [("healthy", vec![runs("web-5d8f7-a"), runs("web-5d8f7-b"), runs("web-5d8f7-c")]), ("gone", vec![])]
    {
        let mut world = world();
        world.pods = vec![
            waits("web-5d8f7-a", "win", "nginx", "no match for platform in manifest"),
            does_not_start("web-5d8f7-b", "app", other_build),
            creating("web-5d8f7-c"),
        ];
        world.list();
        world.event("web-5d8f7-c", SANDBOX);
        assert_eq!(counts(&world.count()), [("other_build", 1), ("no_variant", 1), ("pause_image", 1)], "{fact}");
        assert_eq!(counts(&world.count()).len(), 3, "{fact}: not yet");
        world.pods = pods;
        assert_eq!(counts(&world.count()), [], "{fact}");
    }
}

#[test]
fn a_failure_counts_until_the_container_starts_although_an_older_kubelet_does_not_repeat_it() {
    let mut world = world();
    world.pods = vec![waits("web-5d8f7-a", "win", "nginx", "no match for platform in manifest")];
    assert_eq!(counts(&world.count()), [("no_variant", 1)]);
    world.pods = vec![waits("web-5d8f7-a", "win", "nginx", "Back-off pulling image \"nginx\"")];
    assert_eq!(counts(&world.count()), [("no_variant", 1)]);
    world.pods = vec![runs("web-5d8f7-a")];
    assert_eq!(counts(&world.count()), []);
}

#[test]
fn an_event_counts_for_a_pod_that_waits_for_its_sandbox_from_the_kubelet_of_its_node() {
    let cases: [(&str, Value, &str, &str, usize); 6] = [
        ("it waits there", creating("web-5d8f7-a"), "win", "web-5d8f7-a", 1),
        ("another node reports it", creating("web-5d8f7-a"), "other", "web-5d8f7-a", 0),
        ("no pod has this name", creating("web-5d8f7-a"), "win", "web-5d8f7-b", 0),
        ("it runs", runs("web-5d8f7-a"), "win", "web-5d8f7-a", 0),
        ("it has no node", pod("web-5d8f7-a", "", &json!({"nodeName": null}), &json!({})), "", "web-5d8f7-a", 0),
        ("no pod can have this name", creating("web-5d8f7-a"), "win", "a/../b", 0),
    ];
    for (fact, pod, node, name, expected) in cases {
        let mut world = world();
        world.pods = vec![pod];
        world.list();
        for number in 0..130 {
            world.event(&format!("forged-{number}"), SANDBOX);
        }
        world.event_on(node, name, SANDBOX);
        assert_eq!(counts(&world.count()).len(), expected, "{fact}");
    }
}

#[test]
fn a_pod_that_a_kubelet_ended_counts_by_an_event_also_if_it_is_gone() {
    let message = "Predicate NodeAffinity failed";
    let ended = |name: &str| {
        let mut pod = runs(name);
        pod["status"] = json!({"phase": "Failed"});
        pod
    };
    for (fact, node, after, expected) in [
        ("it still seems to run", "win", vec![runs("web-5d8f7-a")], 1),
        ("its status does not say why it failed", "win", vec![ended("web-5d8f7-a")], 1),
        ("it was deleted", "win", vec![], 1),
        ("another node reports it", "other", vec![], 0),
    ] {
        let mut world = world();
        world.pods = vec![runs("web-5d8f7-a")];
        world.list();
        world.table.begin_list();
        for pod in &after {
            world.table.see(&decode(pod), world.now);
        }
        if after.is_empty() {
            world.table.deleted("shop", "web-5d8f7-a");
        }
        world.table.end_list();
        world.event_of(node, "web-5d8f7-a", "NodeAffinity", message);
        world.event_of(node, "forged", "NodeAffinity", message);
        let failing = world.summary().pools.get("default").map_or(0, |pool| pool.counts.values().sum());
        assert_eq!(failing, expected, "{fact}");
    }
}

#[test]
fn ten_workloads_are_named_and_all_pods_count() {
    let mut world = world();
    for number in 0..600 {
        let mut pod = waits(&format!("w{number}-a"), "win", "nginx", "no match for platform in manifest");
        pod["metadata"]["ownerReferences"] = json!([]);
        world.pods.push(pod);
    }
    let failures = world.count();
    assert_eq!(counts(&failures), [("no_variant", 600)]);
    assert_eq!((failures.workloads.len(), failures.more), (10, 590));
}

#[test]
fn a_refused_pod_that_is_being_deleted_counts_for_its_controller() {
    let mut world = world();
    let mut pod = refused("web-5d8f7-a", "NodeAffinity");
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.pods = vec![pod];
    let failures = world.count();
    assert_eq!(failures.workloads[0].object.to_string(), "Deployment shop/web");
}
