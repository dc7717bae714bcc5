//! `winpool why pod` reports the nodes on which the real scheduler puts the pod as possible.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{Node, Pod},
    node::v1::RuntimeClass,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use winpool_core::{
    explain::pod::{Machine, answer},
    pod::{self, Class},
};
use winpool_e2e::{
    Dice, LIMIT, SimulatedNode,
    harness::{node_of, unschedulable},
    lend_cluster, wait_for,
};

const NODES: usize = 9;
const PODS: usize = 30;

fn any_node(dice: &mut Dice, index: usize) -> SimulatedNode {
    let kernel = dice.pick(&["10.0.17763.6659", "10.0.20348.2655", "10.0.26100.4061"]);
    let mut node = SimulatedNode::windows(kernel).name(&format!("win-{index}"));
    for (key, value, effect) in [
        ("os", "windows", "NoSchedule"),
        ("team", "a", "NoSchedule"),
        ("gpu", "", "NoExecute"),
        ("soft", "x", "PreferNoSchedule"),
    ] {
        if dice.once_in(3) {
            node = node.taint(key, value, effect);
        }
    }
    for key in ["tier", "zone"] {
        if !dice.once_in(3) {
            node = node.label(key, dice.pick(&["1", "2", "10", "x"]));
        }
    }
    if dice.once_in(2) {
        node = node.resource("example.com/gpu", dice.pick(&["1", "2"]));
    }
    node
}

fn any_requirement(dice: &mut Dice) -> Value {
    let key = dice.pick(&["tier", "zone", "node.kubernetes.io/windows-build", "none"]);
    match dice.roll(6) {
        0 => json!({"key": key, "operator": "Exists"}),
        1 => json!({"key": key, "operator": "DoesNotExist"}),
        2 => json!({"key": key, "operator": "Gt", "values": ["1"]}),
        3 => json!({"key": key, "operator": "Lt", "values": ["10"]}),
        4 => json!({"key": key, "operator": "NotIn", "values": ["1", "x", "10.0.20348"]}),
        _ => json!({"key": key, "operator": "In", "values": ["1", "2", "10.0.17763", "10.0.20348"]}),
    }
}

fn any_spec(dice: &mut Dice) -> Value {
    let mut spec = json!({"os": {"name": "windows"}, "tolerations": []});
    let tolerations = spec["tolerations"].as_array_mut().unwrap();
    for toleration in [
        json!({"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}),
        json!({"key": "os", "operator": "Equal", "value": "Windows"}),
        json!({"key": "team", "operator": "Exists"}),
        json!({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}),
        json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}),
        json!({"operator": "Exists", "effect": "NoSchedule"}),
    ] {
        if dice.once_in(2) {
            tolerations.push(toleration);
        }
    }
    if dice.once_in(4) {
        tolerations.push(json!({"operator": "Exists"}));
    }
    if dice.once_in(3) {
        spec["nodeSelector"] = json!({dice.pick(&["tier", "zone"]): dice.pick(&["1", "2"])});
    }
    if dice.once_in(2) {
        let mut terms = Vec::new();
        for _ in 0..=dice.roll(2) {
            let mut term = json!({"matchExpressions": [any_requirement(dice)]});
            if dice.once_in(2) {
                term["matchExpressions"].as_array_mut().unwrap().push(any_requirement(dice));
            }
            if dice.once_in(4) {
                let name = format!("win-{}", dice.roll(NODES));
                term["matchFields"] =
                    json!([{"key": "metadata.name", "operator": dice.pick(&["In", "NotIn"]), "values": [name]}]);
            }
            terms.push(term);
        }
        spec["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    }
    if dice.once_in(3) {
        spec["runtimeClassName"] = json!(dice.pick(&["windows-2019", "windows-2022", "any"]));
    }
    if dice.once_in(5) {
        spec["gpu"] = json!(dice.pick(&["1", "2"]));
    }
    spec
}

/// One pod of a group of which no two fit on one node, because all want the same port of it: the nodes on which some of
/// them land are all nodes on which one may.
fn one_of(group: usize, index: usize, spec: &Value) -> Value {
    let mut spec = spec.clone();
    let mut container =
        json!({"name": "c", "image": "servercore", "ports": [{"containerPort": 80, "hostPort": 10_000 + group}]});
    if let Some(gpu) = spec.as_object_mut().unwrap().remove("gpu") {
        container["resources"] = json!({"limits": {"example.com/gpu": gpu}});
    }
    spec["containers"] = json!([container]);
    // Where there are no controllers there are no tokens to mount.
    spec["automountServiceAccountToken"] = json!(false);
    json!({"metadata": {"name": format!("pod-{group}-{index}"), "labels": {"group": group.to_string()}}, "spec": spec})
}

fn is_decided(pod: &Pod) -> bool {
    node_of(pod).is_some() || unschedulable(pod).is_some()
}

#[tokio::test]
async fn the_nodes_that_why_calls_possible_are_those_on_which_the_scheduler_puts_the_pod() {
    let cluster = lend_cluster().await.unwrap();
    let client = cluster.client();
    let dice = &mut Dice::new(7);
    for index in 0..NODES {
        any_node(dice, index).join(&client).await.unwrap();
    }
    for index in 0..NODES {
        cluster.node_ready(&format!("win-{index}")).await.unwrap();
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let cordon = json!({"spec": {"unschedulable": true}});
    nodes.patch("win-0", &PatchParams::default(), &Patch::Merge(cordon)).await.unwrap();
    let classes: Api<RuntimeClass> = Api::all(client.clone());
    for (name, build) in [("windows-2019", Some("10.0.17763")), ("windows-2022", Some("10.0.20348")), ("any", None)] {
        let mut class = json!({"metadata": {"name": name}, "handler": "h", "scheduling": {
            "nodeSelector": {"kubernetes.io/os": "windows"},
            "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
        }});
        if let Some(build) = build {
            class["scheduling"]["nodeSelector"]["node.kubernetes.io/windows-build"] = json!(build);
        }
        classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    }
    // The taint of a cordon comes from a controller.
    let cordoned = async || {
        let taints = nodes.get("win-0").await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        Ok(taints.iter().any(|taint| taint.key == "node.kubernetes.io/unschedulable").then_some(()))
    };
    wait_for("the cordoned node is tainted", LIMIT, cordoned).await.unwrap();

    let known = classes.list(&ListParams::default()).await.unwrap().items;
    let known = known.iter().map(|class| (class.name_any(), Class::from(class))).collect();
    let read = |pod: &Pod| -> pod::Pod { serde_json::from_value(serde_json::to_value(pod).unwrap()).unwrap() };
    let machines: Vec<Machine> = nodes.list(&ListParams::default()).await.unwrap().iter().map(Machine::from).collect();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let (mut possible, mut impossible, mut nowhere) = (0, 0, 0);
    for group in 0..PODS {
        let spec = any_spec(dice);
        let mut predicted = BTreeSet::new();
        for index in 0..NODES {
            let written: Pod = serde_json::from_value(one_of(group, index, &spec)).unwrap();
            let before = answer(&read(&written), &machines, &known);
            let admitted = pods.create(&PostParams::default(), &written).await.unwrap();
            let after = answer(&read(&admitted), &machines, &known);
            assert_eq!(before.nodes, after.nodes, "what admission does to a pod is foreseen: {spec:#}");
            predicted = after.nodes.iter().filter(|node| node.possible).map(|node| node.name.clone()).collect();
            let fine = predicted.is_empty() == after.remedy.is_some();
            assert!(fine, "a remedy where it lands nowhere, and only there: {after:#?}");
        }
        let selected = ListParams::default().labels(&format!("group={group}"));
        let mut seen = BTreeMap::new();
        let decided = wait_for("the scheduler has decided", LIMIT, async || {
            let all = pods.list(&selected).await?;
            seen = all.iter().map(|pod| (pod.name_any(), node_of(pod).map(str::to_owned))).collect();
            Ok(all.iter().all(is_decided).then_some(()))
        });
        decided.await.unwrap_or_else(|error| panic!("{error}: {seen:?}"));
        let bound: BTreeSet<String> = seen.values().flatten().cloned().collect();
        assert_eq!(bound, predicted, "{spec:#}");
        possible += bound.len();
        impossible += NODES - bound.len();
        nowhere += usize::from(bound.is_empty());
        // Their extended resources are free again for the next group.
        pods.delete_collection(&DeleteParams::default().grace_period(0), &selected).await.unwrap();
        let gone = async || Ok(pods.list(&selected).await?.items.is_empty().then_some(()));
        wait_for("the pods are gone", LIMIT, gone).await.unwrap();
    }
    println!(
        "{PODS} pods on {NODES} nodes: {possible} possible, {impossible} not, {nowhere} pods nowhere, all as predicted"
    );
    assert!(possible > 40 && impossible > 40 && nowhere > 2, "{possible} {impossible} {nowhere}");
}
