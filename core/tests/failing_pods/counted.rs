//! What is counted of the pods that fail, how long, and how many of them are read.

use serde_json::{Value, json};
use winpool_core::plan::failing_pods::{ClusterFacts, PodAnswer, PodHealth, PodStep};

use super::{World, counts, creating, decode, does_not_start, pod, refused, runs, waits, world};

#[test]
fn a_pod_without_a_node_counts_if_no_node_has_the_labels_that_it_selects() {
    let windows = |changes: Value| {
        let mut spec = json!({"nodeName": null, "nodeSelector": {"kubernetes.io/os": "windows"}});
        json_patch::merge(&mut spec, &changes);
        spec
    };
    let build = |build: &str| json!({"nodeSelector": {"node.kubernetes.io/windows-build": build}});
    for (fact, spec, counts_it) in [
        ("another build", windows(build("10.0.17763")), true),
        ("this build, but the node is full", windows(build("10.0.20348")), false),
        ("a Linux pod", json!({"nodeName": null, "nodeSelector": {"kubernetes.io/os": "linux", "a": "b"}}), false),
        ("it says nothing", json!({"nodeName": null, "nodeSelector": {"a": "b"}}), false),
        ("a label that no node has", windows(json!({"nodeSelector": {"team": "a"}})), true),
        ("gated", windows(json!({"schedulingGates": [{"name": "g"}], "nodeSelector": {"team": "a"}})), false),
    ] {
        let mut world = world();
        let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        world.pods = vec![pod("web-5d8f7-a", "", &spec, &status)];
        let failures = world.round();
        assert_eq!(counts(&failures) == [("no_node", 1)], counts_it, "{fact}: {failures:?}");
    }
}

#[test]
fn memory_is_bounded_whatever_pods_require() {
    let mut world = world();
    let facts = ClusterFacts { nodes: &world.nodes, policy: &world.policy, classes: &world.classes };
    let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    for number in 0..50 {
        let values: Vec<String> = (0..2000).map(|value| format!("a-long-value-{number}-{value}")).collect();
        let terms = json!([{"matchExpressions": [{"key": "team", "operator": "In", "values": values}]}]);
        let affinity =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        let spec = json!({"nodeName": null, "os": {"name": "windows"}, "affinity": affinity});
        let pod = decode(&pod(&format!("web-5d8f7-{number}"), "", &spec, &status));
        world.table.see_unscheduled(&pod, &facts);
    }
    let kept = format!("{:?}", world.table).len();
    assert!(kept < 100_000, "{kept} bytes for 50 pods");
}

#[test]
fn refused_pods_count_once_for_their_controller_and_end_ten_minutes_after_the_last() {
    let mut world = world();
    for second in 0..45 {
        for pod in 0..8 {
            let name = format!("web-5d8f7-{second}x{pod}");
            world.pods.push(refused(&name, "PodOSNotSupported"));
            world.event(&name, "PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS");
        }
        world.wait(1);
    }
    assert_eq!(counts(&world.round()), [("os_name", 1)]);
    assert!(world.reads <= 10, "{} of 360 pods were read", world.reads);
    world.pods.clear();
    world.wait(9 * 60);
    world.event("web-5d8f7-last", "PodOSNotSupported", "");
    assert_eq!(counts(&world.round()), [("os_name", 1)]);
    world.wait(9 * 60);
    assert_eq!(counts(&world.round()), [("os_name", 1)]);
    world.wait(60);
    assert_eq!(counts(&world.round()), []);
}

#[test]
fn a_pod_that_is_gone_was_ended_all_the_same() {
    let mut world = world();
    world.event("agent-x", "NodeAffinity", "Predicate NodeAffinity failed");
    let failures = world.round();
    assert_eq!(counts(&failures), [("labels_changed", 1)]);
    assert_eq!(failures.workloads[0].object.to_string(), "Pod shop/agent-x");
}

#[test]
fn failures_end_with_the_round_that_shows_the_pods_healthy_or_gone() {
    let other_build = "The container operating system does not match the host operating system.";
    let sandbox = "failed to get sandbox image \"pause\": no match for platform in manifest";
    for (fact, pods) in
        [("healthy", vec![runs("web-5d8f7-a"), runs("web-5d8f7-b"), runs("web-5d8f7-c")]), ("gone", vec![])]
    {
        let mut world = world();
        world.pods = vec![
            waits("web-5d8f7-a", "win", "nginx", "no match for platform in manifest"),
            does_not_start("web-5d8f7-b", "app", other_build),
            creating("web-5d8f7-c"),
        ];
        world.event("web-5d8f7-b", "Failed", other_build);
        world.event("web-5d8f7-c", "FailedCreatePodSandBox", sandbox);
        assert_eq!(counts(&world.round()), [("other_build", 1), ("no_variant", 1), ("pause_image", 1)], "{fact}");
        assert_eq!(counts(&world.round()).len(), 3, "{fact}: not yet");
        world.pods = pods;
        assert_eq!(counts(&world.round()), [], "{fact}");
        world.wait(30);
        world.round();
        let before = world.reads;
        world.round();
        assert_eq!(world.reads, before, "{fact}: nothing is left to read");
    }
}

#[test]
fn a_pod_is_read_until_its_status_follows_its_event() {
    let mut world = world();
    let message = "The container operating system does not match the host operating system.";
    world.pods = vec![runs("web-5d8f7-a")];
    world.event("web-5d8f7-a", "Failed", message);
    assert_eq!(counts(&world.round()), []);
    world.pods = vec![does_not_start("web-5d8f7-a", "app", message)];
    assert_eq!(counts(&world.round()), [("other_build", 1)]);
}

#[test]
fn a_round_reads_few_pods_and_no_workload_crowds_out_the_others() {
    let mut world = world();
    let message = "The container operating system does not match the host operating system.";
    for (workload, pod) in (0..30).flat_map(|workload| (0..30).map(move |pod| (workload, pod))) {
        let name = format!("web{workload}-{pod}");
        world.pods.push(does_not_start(&name, "app", message));
        world.event(&name, "Failed", message);
    }
    world.round();
    assert_eq!(world.reads, 50);
    let failures = world.round();
    assert_eq!((world.reads, counts(&failures)), (100, vec![("other_build", 100)]), "ten pods of ten workloads");
}

#[test]
fn ten_workloads_are_named_and_all_pods_of_the_page_count() {
    let mut world = world();
    for number in 0..600 {
        let mut pod = waits(&format!("w{number}-a"), "win", "nginx", "no match for platform in manifest");
        pod["metadata"]["ownerReferences"] = json!([]);
        world.pods.push(pod);
    }
    let failures = world.round();
    assert_eq!(counts(&failures), [("no_variant", 500)]);
    assert_eq!((failures.workloads.len(), failures.more), (10, 490));
}

#[test]
fn pods_that_another_listing_shows_are_not_listed_again() {
    let mut world = world();
    let spec = json!({"nodeName": null, "nodeSelector": {"kubernetes.io/os": "windows", "team": "a"}});
    let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    let unscheduled = pod("web-5d8f7-a", "", &spec, &status);
    world.pods = vec![waits("web-5d8f7-b", "win", "nginx", "no match for platform in manifest")];
    world.wait(15);
    let facts = ClusterFacts { nodes: &world.nodes, policy: &world.policy, classes: &world.classes };
    world.table.see_unscheduled(&decode(&unscheduled), &facts);
    world.table.saw_unscheduled(true, world.now.instant);
    assert_eq!(world.table.next(world.now.instant), PodStep::List { only_with_node: true });
    world.table.see(&decode(&world.pods[0]), &facts, world.now);
    world.table.answer(PodAnswer::Listed, &facts, world.now);
    assert!(matches!(world.table.next(world.now.instant), PodStep::Wait(_)));
    assert_eq!(counts(&world.failures()), [("no_variant", 1), ("no_node", 1)]);
    // That listing has ended.
    assert_eq!(counts(&world.round()), [("no_variant", 1)]);
}

#[test]
fn a_missing_permission_is_said_until_it_is_there() {
    let mut world = world();
    world.allowed = false;
    world.round();
    let unseen = |world: &World| match world.table.health(None, world.now.instant) {
        PodHealth::Seen { unseen, .. } => unseen,
        PodHealth::Off | PodHealth::NotYet => panic!("it has looked"),
    };
    assert_eq!(unseen(&world).as_deref(), Some("it may not list pods: pods is forbidden"));
    world.allowed = true;
    world.round();
    assert_eq!(unseen(&world), None);
}

#[test]
fn an_event_about_something_that_cannot_be_a_pod_is_ignored() {
    let mut world = world();
    for name in ["", "a,metadata.namespace=kube-system", "a/../b", "a\u{1b}[2J", &"a".repeat(254)] {
        world.event(name, "NodeAffinity", "Predicate NodeAffinity failed");
    }
    assert_eq!((counts(&world.round()), world.reads), (vec![], 0));
}

#[test]
fn a_pod_that_cannot_be_read_delays_no_report() {
    let mut world = world();
    world.pods = vec![waits("web-5d8f7-a", "win", "nginx", "no match for platform in manifest")];
    world.event("broken", "Failed", "0xc0370101");
    world.wait(15);
    let facts = ClusterFacts { nodes: &world.nodes, policy: &world.policy, classes: &world.classes };
    assert!(matches!(world.table.next(world.now.instant), PodStep::List { .. }));
    world.table.see(&decode(&world.pods[0]), &facts, world.now);
    world.table.answer(PodAnswer::Listed, &facts, world.now);
    assert!(matches!(world.table.next(world.now.instant), PodStep::Read(_)));
    world.table.answer(PodAnswer::Failed("no".to_owned()), &facts, world.now);
    assert!(matches!(world.table.next(world.now.instant), PodStep::Wait(_)));
    assert_eq!(counts(&world.failures()), [("no_variant", 1)]);
}

#[test]
fn a_refused_pod_that_is_being_deleted_counts_for_its_controller() {
    let mut world = world();
    let mut pod = refused("web-5d8f7-a", "NodeAffinity");
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.pods = vec![pod];
    world.event("web-5d8f7-a", "NodeAffinity", "Predicate NodeAffinity failed");
    let failures = world.round();
    assert_eq!(failures.workloads[0].object.to_string(), "Deployment shop/web");
}
