//! A clean check keeps its promise for any nodes, taints, pods and templates.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::node::v1::RuntimeClass;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};
use winpool_answers::{placement::obstacles, prediction::WorkloadCheck, view};
use winpool_core::{
    api::Taint,
    plan::{CheckScope, PlannedNode, TaintQuestion},
    pod::{Class, PodSpec, Target},
};

use super::scene::{Object, minute, pod, running, workload};

const CLASS: &str = "own";

fn taints() -> [Taint; 2] {
    [Taint::os_windows(), Taint::new("team", "a", "NoSchedule")]
}

#[derive(Clone, Debug)]
struct Node {
    labels: BTreeMap<String, String>,
    taints: Vec<Taint>,
    serves: bool,
    /// Indexes of the [`taints`] that it would get.
    gets: [bool; 2],
}

prop_compose! {
    fn any_node()(
        team in prop::option::of(select(vec!["a", "b"])),
        build in select(vec!["10.0.17763", "10.0.20348"]),
        present in vec(select(vec!["gpu=x:NoSchedule", "slow:PreferNoSchedule", "os=windows:NoSchedule"]), 0..2),
        serves in prop::bool::weighted(0.8),
        gets in any::<[bool; 2]>(),
    ) -> Node {
        let fixed = [("kubernetes.io/os", "windows"), ("node.kubernetes.io/windows-build", build)];
        let labels = fixed.into_iter().chain(team.map(|team| ("team", team)));
        let present: BTreeSet<Taint> = present.iter().map(|text| text.parse().unwrap()).collect();
        let gets = [0, 1].map(|index| gets[index] && !present.contains(&taints()[index]));
        Node {
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            taints: present.into_iter().collect(),
            serves,
            gets,
        }
    }
}

fn selector() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({}),
        json!({"team": "a"}),
        json!({"team": "b"}),
        json!({"kubernetes.io/os": "windows"}),
        json!({"kubernetes.io/os": "windows", "team": "a"}),
        json!({"node.kubernetes.io/windows-build": "10.0.17763"}),
    ])
}

fn tolerations() -> impl Strategy<Value = Vec<Value>> {
    vec(
        select(vec![
            json!({"key": "os", "value": "windows", "effect": "NoSchedule"}),
            json!({"key": "team", "operator": "Exists"}),
            json!({"key": "gpu", "operator": "Exists"}),
            json!({"operator": "Exists", "effect": "NoExecute"}),
        ]),
        0..3,
    )
}

prop_compose! {
    fn any_spec()(
        says in any::<bool>(),
        selector in selector(),
        tolerations in tolerations(),
        expression in prop::option::weighted(0.3, (select(vec!["team", "node.kubernetes.io/windows-build"]), select(vec!["In", "NotIn", "Exists"]))),
        class in prop::bool::weighted(0.3),
    ) -> Value {
        let mut spec = json!({"nodeSelector": selector, "tolerations": tolerations, "containers": []});
        if says {
            spec["os"] = json!({"name": "windows"});
        }
        if let Some((key, operator)) = expression {
            let values = if operator == "Exists" { json!(null) } else { json!(["a", "10.0.20348"]) };
            spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}}});
        }
        if class {
            spec["runtimeClassName"] = json!(CLASS);
        }
        spec
    }
}

fn inner(spec: &Value) -> String {
    let text = spec.to_string();
    text[1..text.len() - 1].to_owned()
}

/// As the API server stores a pod of the template.
fn admitted(spec: &Value, class: Option<&RuntimeClass>) -> PodSpec {
    let mut spec: PodSpec = serde_json::from_value(spec.clone()).unwrap();
    if let Some(class) = class.filter(|_| spec.runtime_class.is_some()) {
        Class::from(class).admit(&mut spec);
    }
    spec
}

/// The nodes that the pod fits.
fn fitting(pod: &PodSpec, hosts: &[view::Node]) -> BTreeSet<usize> {
    hosts.iter().enumerate().filter(|(_, host)| obstacles(pod, host).is_empty()).map(|(index, _)| index).collect()
}

/// True if a pod of this spec is for Windows in a cluster without other nodes.
fn says_windows(spec: &Value, class: &RuntimeClass) -> bool {
    let read: PodSpec = serde_json::from_value(spec.clone()).unwrap();
    let by_class = || {
        class
            .scheduling
            .as_ref()
            .and_then(|s| s.node_selector.as_ref())
            .is_some_and(|s| s.contains_key("kubernetes.io/os"))
    };
    read.target(None) == Target::Windows || !read.node_selector.is_empty() || read.runtime_class.is_some() && by_class()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn after_a_clean_check_everybody_still_fits_a_windows_node(
        nodes in vec(any_node(), 1..5),
        pods in vec((any_spec(), prop::option::of(0_usize..4)), 0..4),
        templates in vec(any_spec(), 0..4),
        agent in prop::option::of(any_spec()),
        class_selector in selector(), class_tolerations in tolerations(),
    ) {
        let class: RuntimeClass = serde_json::from_value(json!({
            "metadata": {"name": CLASS}, "handler": "h",
            "scheduling": {"nodeSelector": class_selector, "tolerations": class_tolerations},
        })).unwrap();
        let name = |index: usize| format!("win-{index}");
        let known = nodes.iter().enumerate().map(|(index, node)| PlannedNode {
            name: name(index).into(), uid: name(index).into(),
            labels: node.labels.clone().into_iter().collect(), taints: node.taints.clone(), serves: node.serves,
        });
        let candidates = |bit: usize| (0..nodes.len()).filter(|index| nodes[*index].gets[bit]).collect::<BTreeSet<_>>();
        let questions = taints().into_iter().enumerate().map(|(bit, taint)| TaintQuestion {
            pool: "default".to_owned(), taint, candidates: candidates(bit), to_approve: None, enforces: true,
        });
        let scope = CheckScope {
            nodes: known.collect(),
            questions: questions.filter(|question| !question.candidates.is_empty()).collect(),
            classes: [(CLASS.to_owned(), Class::from(&class))].into(),
            now: minute(0).parse().unwrap(),
            ..CheckScope::default()
        };
        if scope.questions.is_empty() {
            return Ok(());
        }
        let mut check = WorkloadCheck::start(scope);
        for (index, spec) in templates.iter().enumerate() {
            let Object::Workload(kind, workload) = workload("Deployment", &format!("t{index}"), &inner(spec), "{}") else { unreachable!() };
            check.workload(kind, &workload);
        }
        if let Some(spec) = &agent {
            let Object::Workload(kind, workload) = workload("DaemonSet", "agent", &inner(spec), "{}") else { unreachable!() };
            check.workload(kind, &workload);
        }
        for (index, (spec, node)) in pods.iter().enumerate() {
            let bound = node.filter(|node| *node < nodes.len());
            let pod_name = format!("p{index}");
            let object = match bound {
                Some(node) => running(&pod_name, &format!("{}, nodeName: {}", inner(spec), name(node)), "{}"),
                None => pod(&pod_name, &inner(spec), "{}"),
            };
            let Object::Pod(pod) = object else { unreachable!() };
            check.pod(&pod);
        }
        for choice in check.undecided() {
            check.decide(&choice, false);
        }
        let answer = check.finish().remove("default").unwrap();

        let host = |index: usize, taints: Vec<Taint>| view::Node {
            name: name(index), labels: nodes[index].labels.clone().into_iter().collect(), taints, ..view::Node::default()
        };
        let before: Vec<view::Node> = (0..nodes.len()).map(|index| host(index, nodes[index].taints.clone())).collect();
        let after: Vec<view::Node> = (0..nodes.len()).map(|index| {
            let put_on = answer.clean.iter().filter(|(_, uids)| uids.contains(name(index).as_str())).map(|(taint, _)| taint.clone());
            host(index, nodes[index].taints.iter().cloned().chain(put_on).collect())
        }).collect();
        let made = templates.iter().map(|spec| (spec, Some(&class)));
        // A pod has what its class gave it when it was created. One that replaces it tolerates what the class does now.
        let mut tolerant = class.clone();
        tolerant.scheduling.as_mut().unwrap().node_selector = None;
        let of_pod = |node: Option<usize>| node.filter(|node| *node < nodes.len()).map(|_| &tolerant);
        for (spec, class_of) in pods.iter().map(|(spec, node)| (spec, of_pod(*node))).chain(made) {
            if !says_windows(spec, &class) || (class_of != Some(&class) && !says_windows(spec, &RuntimeClass::default())) {
                continue;
            }
            let pod = admitted(spec, class_of);
            let (first, then) = (fitting(&pod, &before), fitting(&pod, &after));
            let still = first == then || then.iter().any(|index| nodes[*index].serves);
            prop_assert!(still, "{spec}\n{answer:#?}");
        }
        if let Some(spec) = agent.filter(|spec| says_windows(spec, &RuntimeClass::default())) {
            let pod = admitted(&spec, None);
            prop_assert_eq!(fitting(&pod, &before), fitting(&pod, &after), "{}\n{:#?}", spec, answer);
        }
        for taint in taints() {
            prop_assert!(!(answer.held.contains(&taint) && answer.clean.contains_key(&taint)));
        }
    }
}
