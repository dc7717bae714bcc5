//! Pods for Windows lack tolerations, and get them in turn.

use std::collections::BTreeSet;

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::Toleration;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select as select_from;
use serde_json::{Value, json};
use winpool_core::api::{Taint, names};
use winpool_core::node::NodeObject;
use winpool_core::plan::attempt::RequestError;
use winpool_core::plan::nodes::NodeEvent;
use winpool_core::plan::pods::{ClusterFacts, IS_ENDING, TolerationAnswer, TolerationRequest, WindowsNodes};
use winpool_core::pod::tolerations::toleration;

use super::{World, decode, pod, world};
use crate::common::{class, node, policy, read};

const WINDOWS: &str = "os=windows:NoSchedule";

/// A uid that is one.
fn uid(name: &str) -> String {
    let number = name.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    format!("00000000-0000-4000-8000-{:012x}", number & 0xFFFF_FFFF_FFFF)
}

/// A pod for which the scheduler has found no node.
fn waiting(name: &str, spec: &Value) -> Value {
    let status = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    let mut pod = pod(name, "", spec, &status);
    pod["metadata"]["uid"] = json!(uid(name));
    pod
}

/// A pod of this workload that has started on this node.
fn started(name: &str, workload: &str, on: &str, spec: &Value) -> Value {
    let mut pod = of(workload, name, spec);
    pod["spec"]["nodeName"] = json!(on);
    pod["status"] = json!({"phase": "Running"});
    pod
}

fn of(workload: &str, name: &str, spec: &Value) -> Value {
    let mut pod = waiting(name, spec);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": workload, "uid": "u", "controller": true}]);
    pod
}

impl World {
    pub(super) fn look(&mut self) {
        let facts = ClusterFacts { nodes: &self.nodes, policy: &self.policy, classes: &self.classes };
        let windows = WindowsNodes::of(&facts, self.others.clone(), &self.reimaged);
        self.table.look(Some(windows), self.now.instant);
    }

    fn has_room_again(&mut self) -> bool {
        let facts = ClusterFacts { nodes: &self.nodes, policy: &self.policy, classes: &self.classes };
        self.table.count(&facts, self.now)
    }

    /// The next request, after a look at all pods.
    fn next(&mut self) -> Option<TolerationRequest> {
        self.table.next_help(self.now.instant)
    }

    /// All requests that may be sent now, each as `pod: taints`.
    fn all(&mut self) -> Vec<String> {
        let mut all: Vec<String> = std::iter::from_fn(|| self.next()).map(|request| described(&request)).collect();
        all.sort();
        all
    }

    fn answer(&mut self, name: &str, answer: TolerationAnswer) {
        self.table.helped(&format!("shop/{name}"), answer, self.now);
    }

    fn join(&mut self, name: &str, changes: &str) {
        let mut objects: Vec<_> = self.nodes.objects().cloned().collect();
        let node = read(&node(changes));
        let object = NodeObject { name: name.into(), uid: name.into(), node, ..NodeObject::default() };
        objects.push(object.into());
        self.nodes.observe(NodeEvent::Listed(objects), self.now.instant);
    }
}

fn described(request: &TolerationRequest) -> String {
    let taints: Vec<String> = request.taints.iter().map(ToString::to_string).collect();
    format!("{}: {}", request.pod, taints.join(" "))
}

/// The taints whose tolerations a waiting pod with this spec gets.
fn gets(world: &mut World, spec: &Value) -> Vec<String> {
    world.table.see(&decode(&waiting("web", spec)), world.now);
    world.look();
    let found = world.next().map(|request| request.taints.iter().map(ToString::to_string).collect());
    world.table.deleted("shop", "web");
    world.look();
    found.unwrap_or_default()
}

fn select(key: &str, value: &str) -> Value {
    json!({"nodeSelector": Value::from_iter([(key, value)])})
}

fn required(key: &str, operator: &str, values: &[&str]) -> Value {
    let terms = json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

fn tolerating(mut spec: Value, tolerations: Value) -> Value {
    spec["tolerations"] = tolerations;
    spec
}

#[test]
fn a_pod_gets_the_toleration_if_it_shows_that_it_is_for_windows() {
    let windows = || select("kubernetes.io/os", "windows");
    let named = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["win"]}]}]);
    let by_name = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": named}}}});
    for (spec, is_helped) in [
        (windows(), true),
        (select("beta.kubernetes.io/os", "windows"), true),
        (required("kubernetes.io/os", "In", &["windows"]), true),
        (required("kubernetes.io/os", "NotIn", &["linux"]), true),
        (json!({"os": {"name": "windows"}}), true),
        (json!({"securityContext": {"windowsOptions": {"runAsUserName": "a"}}}), true),
        (json!({"runtimeClassName": "windows-2022"}), true),
        (json!({"runtimeClassName": "other"}), false),
        (select("node.kubernetes.io/windows-build", "10.0.20348"), true),
        (select("kubernetes.azure.com/agentpool", "poolws"), true),
        (required("kubernetes.azure.com/agentpool", "In", &["poolws"]), true),
        (required("kubernetes.azure.com/agentpool", "In", &["poolws", "other"]), false),
        (required("kubernetes.azure.com/agentpool", "NotIn", &["poolws"]), false),
        (select("kubernetes.azure.com/agentpool", "other"), false),
        (select("kubernetes.io/hostname", "akspoolws000000"), true),
        (by_name, true),
        // A Linux pod that waits for an autoscaler fits only Windows nodes, too.
        (select("kubernetes.io/arch", "amd64"), false),
        (json!({}), false),
        (json!({"containers": [{"name": "c", "image": "app:ltsc2022"}]}), false),
        (select("kubernetes.io/os", "linux"), false),
        (json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.azure.com/agentpool": "poolws"}}), false),
        (json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "schedulingGates": [{"name": "a"}]}), false),
        (tolerating(windows(), json!([{"operator": "Exists"}])), false),
        (tolerating(windows(), json!([{"key": "os", "operator": "Exists"}])), false),
        (tolerating(windows(), json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}])), false),
        (tolerating(windows(), json!([{"key": "os", "value": "Windows", "effect": "NoSchedule"}])), true),
        (json!({"nodeSelector": {"kubernetes.io/os": "windows", "team": "none"}}), false),
    ] {
        let expected = if is_helped { vec![WINDOWS.to_owned()] } else { Vec::new() };
        assert_eq!(gets(&mut world(), &spec), expected, "{spec}");
    }
}

#[test]
fn a_pod_that_winpool_may_not_change_gets_none() {
    for change in [
        json!({"metadata": {"annotations": {"winpool.dev/ignore": "true"}}}),
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "a"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"status": {"phase": "Succeeded"}}),
    ] {
        let mut world = world();
        let mut pod = waiting("web", &select("kubernetes.io/os", "windows"));
        json_patch::merge(&mut pod, &change);
        world.table.see(&decode(&pod), world.now);
        world.look();
        assert_eq!(world.next(), None, "{change}");
    }
}

#[test]
fn a_class_for_windows_shows_it_too() {
    let mut world = world();
    let spec = json!({"runtimeClassName": "windows-2022"});
    world.classes = vec![class("{metadata: {name: windows-2022}, handler: h}")];
    assert_eq!(gets(&mut world, &spec), Vec::<String>::new(), "the class does not say so");
    world.classes = vec![class(
        "{metadata: {name: windows-2022}, handler: h, scheduling: {nodeSelector: {kubernetes.io/os: windows}}}",
    )];
    assert_eq!(gets(&mut world, &spec), [WINDOWS]);
}

#[test]
fn the_tolerations_are_those_of_pools_whose_nodes_the_pod_fits() {
    let windows = || select("kubernetes.io/os", "windows");
    let on = |team: &str| json!({"nodeSelector": {"kubernetes.io/os": "windows", "team": team}});
    let team_b =
        "{metadata: {name: b}, spec: {nodeSelector: {team: b}, taints: [{key: os, value: win-b, effect: NoSchedule}]}}";
    let team_c =
        "{metadata: {name: c}, spec: {nodeSelector: {team: c}, taints: [{key: os, value: win-c, effect: NoSchedule}]}}";
    let not_enforced = "{spec: {mode: DryRun}}";
    let always = "{spec: {taintPolicy: TaintOnly}}";
    let b = ["os=win-b:NoSchedule"];
    for (pools, spec, expected) in [
        (vec!["{}", team_b], windows(), vec![b[0], WINDOWS]),
        (vec!["{}", team_b], on("b"), b.to_vec()),
        (vec![team_b], on("a"), vec![]),
        // No node of its pool has come yet.
        (vec![team_b, team_c], on("c"), vec!["os=win-c:NoSchedule"]),
        (vec![team_b, team_c], on("d"), vec![]),
        (vec![not_enforced], windows(), vec![]),
        (vec![always], windows(), vec![]),
        (vec!["{spec: {taints: [{key: os, value: windows, effect: PreferNoSchedule}]}}"], windows(), vec![]),
    ] {
        let mut world = world();
        world.join("win-b", "metadata: {labels: {team: b}}");
        let with_name = |(number, changes): (usize, &&str)| {
            let created = format!("{{metadata: {{creationTimestamp: '2026-01-0{}T00:00:00Z'}}}}", 9 - number);
            let mut object = serde_json::to_value(crate::common::pool_object(&created)).unwrap();
            json_patch::merge(&mut object, &crate::common::yaml(changes));
            winpool_core::plan::pools::pool::Pool::read(&serde_json::from_value(object).unwrap()).unwrap()
        };
        world.policy = policy(pools.iter().enumerate().map(with_name));
        assert_eq!(gets(&mut world, &spec), expected, "{pools:?} {spec}");
    }
}

#[test]
fn windows_taints_that_others_put_on_the_nodes_are_tolerated_too() {
    let mut world = world();
    world.join("gke", "spec: {taints: [{key: node.kubernetes.io/os, value: windows, effect: NoSchedule}, {key: gpu, effect: NoSchedule}]}");
    let expected = ["node.kubernetes.io/os=windows:NoSchedule", WINDOWS];
    assert_eq!(gets(&mut world, &select("kubernetes.io/os", "windows")), expected);
}

#[test]
fn a_pod_gets_four_tolerations_at_most_and_none_of_a_taint_that_only_a_node_names() {
    let taint = |text: &str| {
        let taint: Taint = text.parse().unwrap();
        json!(taint)
    };
    let made_up: Vec<Value> = (0..31).map(|number| taint(&format!("k{number}/os=windows:NoSchedule"))).collect();
    let known = ["os=Win1809:NoSchedule", "sku=windows:NoSchedule", "windows=true:NoSchedule", "OS=Windows:NoSchedule"];
    for (taints, expected) in [
        (made_up, vec![WINDOWS]),
        (vec![taint("os=Win2025:NoSchedule")], vec![WINDOWS]),
        (vec![taint(known[0])], vec![known[0], WINDOWS]),
        // The taint that the pool wants comes first.
        (
            known.map(taint).to_vec(),
            vec!["OS=Windows:NoSchedule", "os=Win1809:NoSchedule", WINDOWS, "sku=windows:NoSchedule"],
        ),
    ] {
        let mut world = world();
        let is_closed = taints.len() > 4 || !known.contains(&taint_text(&taints[0]).as_str());
        world.join("odd", &json!({"spec": {"taints": taints}}).to_string());
        assert_eq!(gets(&mut world, &select("kubernetes.io/os", "windows")), expected);
        world.nodes.count_by(world.policy.clone(), world.now.instant);
        let named =
            world.nodes.tally("default").problems().iter().any(|problem| problem.reason == "TaintsNotTolerated");
        assert_eq!(named, is_closed, "a node with others is named");
    }
}

fn taint_text(taint: &Value) -> String {
    serde_json::from_value::<Taint>(taint.clone()).unwrap().to_string()
}

#[test]
fn a_pod_that_says_nothing_is_for_windows_if_its_workload_has_started_there_and_nowhere_else() {
    let nothing = json!({});
    let elsewhere = json!({"nodeSelector": {"team": "a"}});
    let on_both = vec![started("db-0", "db", "win", &nothing), started("db-2", "db", "lin", &nothing)];
    let on_a_deleted_node = vec![started("db-0", "db", "win", &nothing), started("db-2", "db", "gone", &nothing)];
    for (before, while_there, afterwards) in [
        (vec![started("db-0", "db", "win", &nothing)], true, true),
        (vec![started("db-0", "db", "lin", &nothing)], false, false),
        (on_both, false, true),
        (on_a_deleted_node, true, true),
        (vec![started("db-0", "db", "win", &elsewhere)], false, false),
        (vec![started("db-0", "other", "win", &nothing)], false, false),
        (vec![], false, false),
    ] {
        // Whatever the order in which the watch shows them.
        for (is_first, stays) in [(true, true), (true, false), (false, true)] {
            let mut world = world();
            let waits = of("db", "db-1", &nothing);
            if !is_first {
                world.table.see(&decode(&waits), world.now);
            }
            for pod in &before {
                world.table.see(&decode(pod), world.now);
            }
            world.look();
            if !stays {
                for pod in &before {
                    world.table.deleted("shop", pod["metadata"]["name"].as_str().unwrap());
                }
            }
            if is_first {
                world.table.see(&decode(&waits), world.now);
                world.look();
            }
            let found = world.all().iter().any(|request| request.starts_with("db-1"));
            let is_helped = if stays { while_there } else { afterwards };
            assert_eq!(found, is_helped, "{before:?}, {is_first}, {stays}");
        }
    }
}

#[test]
fn a_label_that_flaps_does_not_change_what_is_known_of_a_workload() {
    let nothing = json!({});
    let flapped = "metadata: {labels: {kubernetes.io/os: linux}}\nstatus: {nodeInfo: {operatingSystem: SYSTEM}}";
    for (reported, is_helped) in [("windows", true), ("linux", false)] {
        let mut world = world();
        let pods = [started("db-0", "db", "win", &nothing), started("db-2", "db", "win-2", &nothing)];
        world.join("win-2", "{}");
        for pod in &pods {
            world.table.see(&decode(pod), world.now);
        }
        world.look();
        // The label says Linux, and a pod that runs there reports.
        world.nodes.observe(NodeEvent::Deleted("win-2".into()), world.now.instant);
        let node = read(&node(&flapped.replace("SYSTEM", reported)));
        world.others.see("win-2".into(), &node.labels);
        let object = NodeObject { name: "win-2".into(), uid: "win-2".into(), node, ..NodeObject::default() };
        world.reimaged.observe(NodeEvent::Listed(vec![object.into()]), world.now.instant);
        world.table.see(&decode(&pods[1]), world.now);
        world.look();
        world.table.see(&decode(&of("db", "db-1", &nothing)), world.now);
        world.look();
        assert_eq!(!world.all().is_empty(), is_helped, "{reported}");
        // Once the node says Windows again, everything is as before, although no pod reports.
        world.others.remove("win-2");
        world.reimaged.observe(NodeEvent::Listed(Vec::new()), world.now.instant);
        world.join("win-2", "{}");
        world.look();
        assert_eq!(!world.all().is_empty(), !is_helped, "{reported}");
    }
}

#[test]
fn a_group_with_nodes_of_both_systems_shows_nothing_and_its_pods_are_named_at_once() {
    for (label, is_mixed) in [(("agentpool", "a"), true), (("agentpool", "b"), false), (("disk", "a"), false)] {
        for spec in [select("agentpool", "a"), required("agentpool", "In", &["a"])] {
            let mut world = world();
            world.join("win-2", "metadata: {labels: {agentpool: a}}");
            world.others.see("lin-2".into(), &[("kubernetes.io/os", "linux"), label].into_iter().collect());
            assert_eq!(gets(&mut world, &spec).is_empty(), is_mixed, "{label:?} {spec}");
            world.table.see(&decode(&waiting("web", &spec)), world.now);
            let summary = world.summary();
            let odd: Vec<_> = summary.help.get("default").into_iter().flat_map(|help| help.unclear.values()).collect();
            assert_eq!(odd, [&Some("lin-2".into())][usize::from(!is_mixed)..], "{label:?} {spec}");
        }
    }
}

#[test]
fn pods_that_select_a_mixed_group_or_another_one_are_not_named_at_once() {
    let mut world = world();
    world.join("win-2", "metadata: {labels: {agentpool: a}}");
    world.others.see("lin-2".into(), &[("kubernetes.io/os", "linux"), ("agentpool", "a")].into_iter().collect());
    world.table.see(&decode(&waiting("web", &required("agentpool", "In", &["a", "b"]))), world.now);
    world.look();
    assert!(world.summary().help.get("default").is_none_or(|help| help.unclear.is_empty()));
}

/// The namespaces that are named because pods of them are not read.
fn unknown(world: &mut World) -> Vec<String> {
    world.summary().help.get("default").map(|help| help.unknown.iter().cloned().collect()).unwrap_or_default()
}

#[test]
fn a_pod_with_a_placement_that_is_too_long_is_named_and_others_are_helped() {
    let excluding = |hosts: usize| {
        let hosts: Vec<String> = (0..hosts).map(|number| format!("host-{number}.example.com")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let mut spec = required("kubernetes.io/hostname", "NotIn", &hosts);
        spec["nodeSelector"] = json!({"kubernetes.io/os": "windows"});
        spec
    };
    for (hosts, is_helped) in [(70, true), (1000, false)] {
        let mut world = world();
        assert_eq!(!gets(&mut world, &excluding(hosts)).is_empty(), is_helped, "{hosts}");
        world.table.see(&decode(&waiting("web", &excluding(hosts))), world.now);
        assert_eq!(unknown(&mut world).is_empty(), is_helped, "{hosts}");
    }
}

#[test]
fn a_namespace_that_fills_the_placements_is_named_and_takes_nothing_from_others() {
    let mut world = world();
    let windows = |more: &str| json!({"nodeSelector": {"kubernetes.io/os": "windows", "a": more}});
    let in_namespace = |namespace: &str, name: &str, spec: &Value| {
        let mut pod = waiting(name, spec);
        pod["metadata"]["namespace"] = json!(namespace);
        decode(&pod)
    };
    let greedy: Vec<String> = (0..1500).map(|number| format!("{number}{}", "x".repeat(15_000))).collect();
    for (number, text) in greedy.iter().enumerate() {
        world.table.see(&in_namespace("greedy", &format!("g-{number}"), &windows(text)), world.now);
    }
    world.look();
    assert_eq!(unknown(&mut world), ["greedy"]);
    // Another namespace goes on to its share, and no further.
    for (number, text) in greedy.iter().enumerate().take(900) {
        world.table.see(&in_namespace("shop", &format!("s-{number}"), &windows(&format!("s{text}"))), world.now);
        if number == 100 {
            assert_eq!(unknown(&mut world), ["greedy"]);
        }
    }
    assert_eq!(unknown(&mut world), ["greedy", "shop"]);
    assert!(!world.has_room_again());
    for number in 0..1500 {
        world.table.deleted("greedy", &format!("g-{number}"));
    }
    for number in 0..900 {
        world.table.deleted("shop", &format!("s-{number}"));
    }
    assert!(world.has_room_again(), "what was not stored is read again");
    assert!(!world.has_room_again(), "once");
    assert_eq!(unknown(&mut world), [""; 0]);
}

#[test]
fn a_namespace_that_starts_many_workloads_does_not_let_those_of_others_be_forgotten() {
    for (namespace, is_helped) in [("greedy", true), ("shop", false)] {
        let mut world = world();
        let mut starts = |namespace: &str, name: &str| {
            let mut pod = started(&format!("{name}-0"), name, "win", &json!({}));
            pod["metadata"]["namespace"] = json!(namespace);
            world.table.see(&decode(&pod), world.now);
            if name == "db" || name.ends_with("00") {
                world.look();
            }
            world.wait(1);
        };
        starts("shop", "db");
        (0..17_000).for_each(|number| starts(namespace, &format!("other-{number}")));
        world.look();
        world.table.see(&decode(&of("db", "db-1", &json!({}))), world.now);
        world.look();
        assert_eq!(world.all().iter().any(|request| request.starts_with("db-1")), is_helped, "{namespace}");
    }
}

#[test]
fn the_patch_tests_the_pod_and_all_its_tolerations() {
    let mut world = world();
    let own = json!({"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300});
    for (tolerations, tested) in [(Value::Null, Value::Null), (json!([own]), json!([own]))] {
        let spec = tolerating(select("kubernetes.io/os", "windows"), tolerations.clone());
        world.table.see(&decode(&waiting("web", &spec)), world.now);
        world.look();
        let patch = world.next().unwrap().patch;
        let added = json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"});
        let all: Vec<Value> = tolerations.as_array().into_iter().flatten().cloned().chain([added]).collect();
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid("web")},
            {"op": "test", "path": "/spec/tolerations", "value": tested},
            {"op": "add", "path": "/spec/tolerations", "value": all},
        ]);
        assert_eq!(json!(patch), expected);
        assert!(matches!(patch.0[0], PatchOperation::Test(_)));
        world.table.deleted("shop", "web");
        world.answer("web", Err(RequestError::Gone));
    }
}

#[test]
fn pods_that_wait_come_first_and_namespaces_take_turns() {
    let mut world = world();
    let windows = select("kubernetes.io/os", "windows");
    let in_namespace = |namespace: &str, mut pod: Value| {
        pod["metadata"]["namespace"] = json!(namespace);
        pod
    };
    let mut all = vec![in_namespace("shop", started("running", "db", "win", &windows))];
    all.extend((0..4).map(|number| in_namespace("flood", waiting(&format!("flood-{number}"), &windows))));
    all.extend([in_namespace("a", waiting("one", &windows)), in_namespace("shop", waiting("two", &windows))]);
    for pod in &all {
        world.table.see(&decode(pod), world.now);
    }
    world.look();
    let order: Vec<String> = std::iter::from_fn(|| world.next()).map(|request| request.pod).collect();
    assert_eq!(order, ["one", "flood-0", "two", "flood-1", "flood-2", "flood-3", "running"]);
    world.look();
    assert_eq!(world.next(), None, "all requests are under way");
}

#[test]
fn a_namespace_has_four_requests_under_way_and_one_after_a_slow_answer() {
    let mut world = world();
    let windows = select("kubernetes.io/os", "windows");
    for number in 0..20 {
        world.table.see(&decode(&waiting(&format!("web-{number:02}"), &windows)), world.now);
    }
    world.look();
    assert_eq!(world.all().len(), 4);
    world.wait(2);
    for number in 0..3 {
        world.answer(&format!("web-{number:02}"), Ok(()));
        assert_eq!(world.all(), [""; 0], "the answer was slow");
    }
    world.answer("web-03", Ok(()));
    assert_eq!(world.all().len(), 1);
    world.answer("web-04", Ok(()));
    assert_eq!(world.all().len(), 4, "the next answer was not");
    let mut other = waiting("one", &windows);
    other["metadata"]["namespace"] = json!("other");
    world.table.see(&decode(&other), world.now);
    world.look();
    assert_eq!(world.all().len(), 1, "another namespace has its own share");
}

#[test]
fn requests_that_fail_for_a_minute_are_a_refusal_and_the_end_of_an_outage_ends_all_pauses() {
    let failed = || Err(RequestError::failed("the webhook pods.example.com does not answer"));
    for (namespaces, expected) in [(["shop", "shop"], "TolerationRefused"), (["shop", "other"], "TolerationsFail")] {
        let mut world = world();
        let names = ["a", "b"].map(|name| format!("{name}-0"));
        for (name, namespace) in names.iter().zip(namespaces) {
            let mut pod = of(&name[..1], name, &select("kubernetes.io/os", "windows"));
            pod["metadata"]["namespace"] = json!(namespace);
            world.table.see(&decode(&pod), world.now);
        }
        world.look();
        let mut sent = 0;
        for _ in 0..70 {
            for request in std::iter::from_fn(|| world.next()).collect::<Vec<_>>() {
                sent += 1;
                world.table.helped(&format!("{}/{}", request.namespace, request.pod), failed(), world.now);
            }
            world.wait(1);
        }
        assert_eq!(sent, 16, "eight each, with growing pauses");
        let refused = world.summary().help["default"].refused.clone();
        assert!(refused.values().all(|(reason, why)| *reason == expected && why.contains("webhook")), "{refused:?}");
        assert_eq!(refused.len(), 2);
        let mut other = waiting("web", &select("kubernetes.io/os", "windows"));
        other["metadata"]["namespace"] = json!("third");
        world.table.see(&decode(&other), world.now);
        world.look();
        assert_eq!(world.all().len(), 1);
        world.table.helped("third/web", Ok(()), world.now);
        assert_eq!(world.all().len(), 2, "the API server answers again");
    }
}

#[test]
fn a_pod_that_always_fails_is_refused_alone() {
    let mut world = world();
    let windows = select("kubernetes.io/os", "windows");
    world.table.see(&decode(&of("large", "large-0", &windows)), world.now);
    world.look();
    for number in 0..70 {
        let name = format!("web-{number}");
        world.table.see(&decode(&waiting(&name, &windows)), world.now);
        world.look();
        for request in std::iter::from_fn(|| world.next()).collect::<Vec<_>>() {
            let answer = if request.pod == "large-0" { Err(RequestError::failed("too large")) } else { Ok(()) };
            world.answer(&request.pod, answer);
        }
        world.table.deleted("shop", &name);
        world.wait(1);
    }
    let refused = world.summary().help["default"].refused.clone();
    let (workload, (reason, _)) = refused.first_key_value().unwrap();
    assert_eq!((&**workload, *reason, refused.len()), ("StatefulSet shop/large", "TolerationRefused", 1));
    world.wait(50);
    assert_eq!(world.next(), None, "it waits for a minute, and then longer");
}

#[test]
fn a_pod_is_not_changed_while_the_scheduler_looks_at_it_for_the_first_time() {
    let windows = select("kubernetes.io/os", "windows");
    let without_answer = || {
        let mut world = world();
        let of_gate = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        for conditions in [of_gate, json!([])] {
            let mut new = waiting("web", &windows);
            new["status"]["conditions"] = conditions;
            world.table.see(&decode(&new), world.now);
            world.look();
            assert_eq!(world.next(), None);
        }
        world
    };
    let mut answered = without_answer();
    answered.table.see(&decode(&waiting("web", &windows)), answered.now);
    answered.look();
    assert_eq!(answered.all().len(), 1, "at once after the answer");
    answered.wait(2);
    assert_eq!(answered.next(), None, "once");

    let mut silent = without_answer();
    silent.wait(2);
    assert_eq!(silent.all().len(), 1, "another scheduler may give no answer");
}

fn tolerations() -> Vec<Toleration> {
    vec![toleration(&WINDOWS.parse().unwrap())]
}

/// A world with a request for the pod `web` under way.
fn asked() -> World {
    let mut world = world();
    world.table.see(&decode(&waiting("web", &select("kubernetes.io/os", "windows"))), world.now);
    world.look();
    world.next().unwrap();
    world
}

#[test]
fn a_pod_is_not_asked_again_until_the_watch_has_had_time_to_show_its_tolerations() {
    let mut world = asked();
    world.answer("web", Ok(()));
    world.look();
    assert_eq!(world.next(), None);
    world.wait(4);
    assert!(world.summary().help.is_empty(), "the watch does not show it yet");
    world.table.see(&decode(&tolerant(names::FIELD_MANAGER, "2026-01-01T00:00:00Z")), world.now);
    world.look();
    world.wait(60);
    assert_eq!(world.next(), None, "the watch shows them");
}

/// The pod `web` with the toleration, which this manager wrote at this time.
fn tolerant(manager: &str, time: &str) -> Value {
    let mut pod = waiting("web", &tolerating(select("kubernetes.io/os", "windows"), json!(tolerations())));
    pod["metadata"]["managedFields"] =
        json!([{"manager": "kubelet", "time": time}, {"manager": manager, "time": time}]);
    pod
}

#[test]
fn a_workload_is_named_as_helped_by_what_its_pods_say_in_a_new_process_too() {
    const LONG_AGO: &str = "1970-01-02T00:00:00Z";
    for (manager, time, expected) in [
        (names::FIELD_MANAGER, LONG_AGO, Some(LONG_AGO)),
        (names::FIELD_MANAGER, "9999-12-01T00:00:00Z", Some("2026-03-01T12:00:00Z")),
        (names::FIELD_MANAGER, "9999-12-31T23:59:59Z", None),
        ("kubectl", LONG_AGO, None),
    ] {
        let mut world = world();
        world.table.see(&decode(&tolerant(manager, time)), world.now);
        world.look();
        let helped = world.summary().help.get("default").map(|help| help.helped.clone()).unwrap_or_default();
        let last = helped.get("Deployment shop/web").map(ToString::to_string);
        assert_eq!(last.as_deref(), expected, "{manager} {time}");
        world.table.help.begin_term();
        world.look();
        let again = world.summary().help.get("default").map(|help| help.helped.clone()).unwrap_or_default();
        assert_eq!(again, helped, "another leader may have written the status since");
    }
}

#[test]
fn a_refused_workload_waits_twice_as_long_each_time_and_is_named() {
    let denied = || Err(RequestError::Denied("pods \"web\" is forbidden: no toleration here".to_owned()));
    for (answer, says) in [
        (denied as fn() -> _, "pods is forbidden: no toleration here"),
        (|| Ok(()), "a mutating webhook or admission policy reverts it"),
    ] {
        let mut world = asked();
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            world.answer("web", answer());
            if answer().is_ok() {
                world.wait(5);
                assert_eq!(world.next(), None, "the watch does not show the toleration");
            }
            let refused = world.summary().help["default"].refused.clone();
            let (workload, (_, why)) = refused.first_key_value().unwrap();
            assert!(&**workload == "Deployment shop/web" && why.starts_with(says), "{why}");
            world.table.see(&decode(&waiting("web-2", &select("kubernetes.io/os", "windows"))), world.now);
            world.wait(minutes * 60 - 1);
            world.look();
            assert_eq!(world.next(), None, "another pod of the workload waits as long");
            world.table.deleted("shop", "web-2");
            world.wait(1);
            assert!(world.next().is_some(), "after {minutes} minutes");
        }
        world.table.deleted("shop", "web");
        assert!(world.summary().help.is_empty(), "a refusal is named while a pod lacks the toleration");
    }
}

#[test]
fn a_pod_that_ends_before_the_watch_shows_it_does_not_delay_its_workload() {
    let policy = "ValidatingAdmissionPolicy 'winpool-confine-pods' denied request: winpool may patch only pods that";
    for answer in [RequestError::Gone, RequestError::Denied(format!("{policy} do not say Linux and {IS_ENDING}"))] {
        let mut world = asked();
        world.answer("web", Err(answer));
        assert!(world.summary().help.is_empty());
        world.table.deleted("shop", "web");
        world.table.see(&decode(&waiting("web", &select("kubernetes.io/os", "windows"))), world.now);
        world.look();
        assert!(world.next().is_some(), "the next pod of its name");
    }
}

#[test]
fn a_failed_request_is_repeated_and_a_test_that_always_fails_is_a_refusal() {
    let mut world = asked();
    let failed = || Err(RequestError::failed("failed"));
    for (answer, pause) in [(failed(), 1), (Err(RequestError::Stale), 1), (failed(), 2), (Err(RequestError::Stale), 4)]
    {
        world.answer("web", answer);
        world.wait(pause - 1);
        assert_eq!(world.next(), None);
        world.wait(1);
        assert!(world.next().is_some());
    }
    for _ in 0..4 {
        world.answer("web", Err(RequestError::Stale));
        world.wait(64);
        world.next();
    }
    assert!(
        world.summary().help["default"].refused.values().any(|(_, why)| why.contains("the test of the patch fails"))
    );
}

#[test]
fn a_new_leader_begins_anew() {
    let mut world = asked();
    world.answer("web", Err(RequestError::Denied("no".to_owned())));
    world.table.help.begin_term();
    assert!(world.next().is_some());
    world.table.help.begin_term();
    world.answer("web", Ok(()));
    assert!(world.summary().help.is_empty(), "an answer to a request of an earlier term");
}

#[test]
fn a_node_waits_for_each_pod_that_runs_there_to_be_tried_once_and_for_two_minutes_at_most() {
    let windows = json!({"os": {"name": "windows"}});
    for (answer, waits) in [
        (Ok(()), false),
        (Err(RequestError::Denied("no".to_owned())), false),
        (Err(RequestError::Gone), false),
        (Err(RequestError::Stale), true),
        (Err(RequestError::failed("failed")), true),
    ] {
        let mut world = world();
        let awaited = |world: &mut World| {
            let (nodes, until) = world.table.help.awaited(world.now.instant);
            (nodes.into_iter().map(|name| name.to_string()).collect::<Vec<_>>(), until.is_some())
        };
        world.table.see(&decode(&started("web-0", "web", "win", &windows)), world.now);
        world.table.see(&decode(&waiting("pending", &windows)), world.now);
        world.look();
        assert_eq!(awaited(&mut world), (vec!["win".to_owned()], true));
        assert_eq!(world.all().len(), 2);
        world.answer("web-0", answer.clone());
        assert_eq!(awaited(&mut world).0.len(), usize::from(waits), "{answer:?}");
        if matches!(answer, Err(RequestError::Denied(_))) {
            world.table.see(&decode(&started("web-1", "web", "win", &windows)), world.now);
            world.look();
            assert_eq!((awaited(&mut world).0.len(), world.all().len(), awaited(&mut world).0.len()), (1, 0, 0));
        }
        world.wait(120);
        world.look();
        assert_eq!(awaited(&mut world), (vec![], false), "{answer:?}");
    }
}

#[test]
fn a_later_pod_does_not_let_a_node_wait_longer() {
    let mut world = world();
    let windows = json!({"os": {"name": "windows"}});
    for number in 0..4 {
        world.table.see(&decode(&started(&format!("web-{number}"), "web", "win", &windows)), world.now);
        world.look();
        for request in std::iter::from_fn(|| world.next()).collect::<Vec<_>>() {
            world.answer(&request.pod, Err(RequestError::Stale));
        }
        let (nodes, _) = world.table.help.awaited(world.now.instant);
        assert_eq!(nodes.len(), usize::from(number < 3), "after {} seconds", number * 45);
        world.wait(45);
    }
}

#[test]
fn a_workload_that_does_not_say_its_system_is_named_after_ten_minutes_without_a_node() {
    let unschedulable = |name: &str, spec: &Value| decode(&of("db", name, spec));
    let tolerates = tolerating(json!({}), json!([{"operator": "Exists"}]));
    for (spec, is_named) in [
        (json!({}), true),
        (select("kubernetes.io/arch", "amd64"), true),
        (select("kubernetes.io/os", "linux"), false),
        (select("kubernetes.io/os", "windows"), false),
        (select("disk", "none"), false),
        (tolerates, false),
    ] {
        let mut world = world();
        world.table.begin_list();
        world.table.see(&unschedulable("db-0", &spec), world.now);
        world.table.end_list();
        world.look();
        let named =
            |world: &mut World| world.summary().help.get("default").is_some_and(|help| !help.unclear.is_empty());
        assert!(!named(&mut world), "{spec}");
        world.wait(599);
        world.table.see(&unschedulable("db-0", &spec), world.now);
        assert!(!named(&mut world), "{spec}");
        world.wait(1);
        assert_eq!(named(&mut world), is_named, "{spec}");
    }
}

/// The end of a request for a pod.
#[derive(Clone, Copy, Debug)]
enum End {
    Accepted,
    /// The API server executes it, and the answer is lost.
    Lost,
    Refused(fn() -> RequestError),
}

#[derive(Clone, Copy, Debug)]
enum Happens {
    /// All requests that may be sent are sent.
    Send,
    /// The request of this number ends.
    Ends(usize, End),
    /// The watch shows the pod of this number as it is now.
    Show(usize),
    Wait(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let failed = || RequestError::failed("no answer");
    let denied = || RequestError::Denied("no toleration here".to_owned());
    let refused = [failed, || RequestError::Stale, || RequestError::Conflict, denied].map(End::Refused);
    let ends = select_from([End::Accepted, End::Lost].into_iter().chain(refused).collect::<Vec<_>>());
    prop_oneof![
        Just(Happens::Send),
        (0..9_usize, ends).prop_map(|(number, end)| Happens::Ends(number, end)),
        (0..9_usize).prop_map(Happens::Show),
        (0..200_u64).prop_map(Happens::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn whatever_becomes_of_requests_every_pod_gets_its_toleration_at_last(happens in vec(happens(), 0..80)) {
        let mut world = world();
        let mut pods: Vec<Value> = (0..9).map(|number| waiting(&format!("web-{number}"), &select("kubernetes.io/os", "windows"))).collect();
        // Two namespaces, and two workloads in the first.
        pods[8]["metadata"]["namespace"] = json!("other");
        pods[7]["metadata"]["ownerReferences"] = json!([]);
        for pod in &pods {
            world.table.see(&decode(pod), world.now);
        }
        world.look();
        let mut in_flight: Vec<TolerationRequest> = Vec::new();
        let end = |world: &mut World, pods: &mut [Value], request: &TolerationRequest, end: End| {
            let number: usize = request.pod.trim_start_matches("web-").parse().unwrap();
            if matches!(end, End::Accepted | End::Lost) {
                pods[number]["spec"]["tolerations"] = json!(request.taints.iter().map(toleration).collect::<Vec<_>>());
            }
            let answer = match end {
                End::Accepted => Ok(()),
                End::Lost => Err(RequestError::failed("no answer")),
                End::Refused(error) => Err(error()),
            };
            world.table.helped(&format!("{}/{}", request.namespace, request.pod), answer, world.now);
        };
        for happens in happens {
            match happens {
                Happens::Send => in_flight.extend(std::iter::from_fn(|| world.next())),
                Happens::Ends(..) if in_flight.is_empty() => {}
                Happens::Ends(number, how) => {
                    let request = in_flight.remove(number % in_flight.len());
                    end(&mut world, &mut pods, &request, how);
                }
                Happens::Show(number) => world.table.see(&decode(&pods[number]), world.now),
                Happens::Wait(seconds) => world.wait(seconds),
            }
            world.look();
            let asked: BTreeSet<_> = in_flight.iter().map(|request| &request.pod).collect();
            prop_assert_eq!(asked.len(), in_flight.len(), "one request for each pod");
            let of_shop = in_flight.iter().filter(|request| request.namespace == "shop").count();
            prop_assert!(of_shop <= 4, "{}", of_shop);
        }
        // From now on everything is accepted and shown. The longest pause is an hour.
        for _ in 0..70 {
            in_flight.extend(std::iter::from_fn(|| world.next()));
            for request in std::mem::take(&mut in_flight) {
                end(&mut world, &mut pods, &request, End::Accepted);
            }
            for pod in &pods {
                world.table.see(&decode(pod), world.now);
            }
            world.look();
            world.wait(60);
        }
        let lacking = pods.iter().filter(|pod| pod["spec"]["tolerations"].is_null()).count();
        prop_assert_eq!(lacking, 0);
    }
}
