//! For any cluster and any pod: with the remedy of `why pod` the pod lands, and only on nodes on which it starts.

use std::collections::BTreeMap;

use k8s_openapi::api::node::v1::RuntimeClass;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use winpool_analysis::explain::pod::{PodExplanation, answer, answer_template};
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::pod::{ClassExt, Pod, PodSpec};
use winpool_analysis::view::{self, Workload};
use winpool_core::pod::Class;

use crate::cluster;

const BUILDS: [&str; 3] = ["10.0.17763", "10.0.20348", "10.0.26100"];

prop_compose! {
    fn any_node()(
        build in option::weighted(0.7, select(BUILDS.to_vec())),
        team in option::of(select(vec!["a", "b"])),
        runtime in select(vec!["containerd://1.6.14", "containerd://2.1.5"]),
        taints in vec(select(vec!["os", "gpu"]), 0..2),
        cordoned in prop::bool::weighted(0.1),
    ) -> Value {
        let os = if build.is_some() { "windows" } else { "linux" };
        let taints: Vec<Value> = taints.iter().map(|key| json!({"key": key, "value": "windows", "effect": "NoSchedule"})).collect();
        let mut labels = json!({"kubernetes.io/os": os});
        if let Some(build) = build {
            labels["node.kubernetes.io/windows-build"] = json!(build);
        }
        if let Some(team) = team {
            labels["team"] = json!(team);
        }
        json!({
            "metadata": {"labels": labels}, "spec": {"taints": taints, "unschedulable": cordoned},
            "status": {"nodeInfo": {"containerRuntimeVersion": runtime, "kernelVersion": build.map(|build| format!("{build}.1")).unwrap_or_default(),
                "operatingSystem": os, "architecture": "amd64", "bootID": "", "kubeProxyVersion": "", "kubeletVersion": "",
                "machineID": "", "osImage": "", "systemUUID": ""}},
        })
    }
}

fn toleration() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"key": "os", "operator": "Exists"}),
        json!({"key": "gpu", "value": "windows", "effect": "NoSchedule"}),
        json!({"operator": "Exists"}),
    ])
}

prop_compose! {
    fn any_pod()(
        os in option::weighted(0.4, select(vec!["windows", "linux"])),
        selector in vec(select(vec![("kubernetes.io/os", "windows"), ("kubernetes.io/os", "linux"), ("team", "a"), ("disk", "ssd"), ("node.kubernetes.io/windows-build", BUILDS[1])]), 0..2),
        tolerations in vec(toleration(), 0..2),
        affinity in option::weighted(0.2, (select(vec!["In", "NotIn"]), select(vec!["a", "b"]))),
        class in option::weighted(0.4, select(vec!["windows-2019", "windows-2022", "hyperv", "gone"])),
        image in select(vec!["nginx", "a:ltsc2019", "a:ltsc2022", "a:ltsc2025", "mcr.microsoft.com/windows/servercore", "a:ltsc2016"]),
        host_process in prop::bool::weighted(0.1),
        node in option::weighted(0.1, 0_usize..8),
    ) -> Value {
        let selector: BTreeMap<&str, &str> = selector.into_iter().collect();
        let mut spec = json!({"nodeSelector": selector, "tolerations": tolerations, "containers": [{"name": "c", "image": image}]});
        if let Some(os) = os {
            spec["os"] = json!({"name": os});
        }
        if let Some((operator, team)) = affinity {
            spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "team", "operator": operator, "values": [team]}]}]}}});
        }
        if let Some(class) = class {
            spec["runtimeClassName"] = json!(class);
        }
        if host_process {
            spec["securityContext"] = json!({"windowsOptions": {"hostProcess": true}});
        }
        if let Some(node) = node {
            spec["nodeName"] = json!(format!("node-{node}"));
        }
        spec
    }
}

fn classes() -> BTreeMap<String, Class> {
    let classes = [
        ("windows-2019", "runhcs-wcow-process", BUILDS[0]),
        ("windows-2022", "runhcs-wcow-process", BUILDS[1]),
        ("hyperv", "runhcs-wcow-hypervisor", BUILDS[2]),
    ];
    let class = |(name, handler, build): (&str, &str, &str)| {
        let class: RuntimeClass = serde_json::from_value(json!({
            "metadata": {"name": name}, "handler": handler, "scheduling": {
                "nodeSelector": {"kubernetes.io/os": "windows", "node.kubernetes.io/windows-build": build},
                "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}]},
        }))
        .unwrap();
        (name.to_owned(), Class::from(&class))
    };
    classes.map(class).into()
}

/// The API server refuses pods of a class that does not exist, or that contradicts their selector.
fn is_refused(spec: &PodSpec) -> bool {
    let classes = classes();
    let class = spec.runtime_class.as_ref().map(|name| classes.get(name));
    class.is_some_and(|class| class.is_none_or(|class| class.conflict(spec).is_some()))
}

fn template(spec: &PodSpec) -> Workload {
    Workload { name: "agent".to_owned(), pod: spec.clone(), ..Workload::default() }
}

/// True if it lands, and starts on every node where it may land, as far as that is known.
fn is_fine(answer: &PodExplanation) -> bool {
    let mut possible = answer.nodes.iter().filter(|node| node.possible).peekable();
    possible.peek().is_some() && possible.all(|node| node.starts != Some(false))
}

/// Returns the pod spec with the edits of the remedy.
fn remedied(told: &PodExplanation, spec: &Value) -> Option<PodSpec> {
    let remedy = told.remedy.as_ref().filter(|remedy| !remedy.edits.is_empty())?;
    let mut pod = json!({"spec": spec});
    let patch = remedy.json_patch(&pod, "");
    json_patch::patch(&mut pod, &patch).unwrap();
    Some(serde_json::from_value(pod["spec"].take()).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn a_remedied_pod_lands_only_where_it_starts(nodes in vec(any_node(), 1..9), spec in any_pod()) {
        let machine = |(index, node): (usize, &Value), is_settled: bool| {
            let (mut node, name) = (node.clone(), format!("node-{index}"));
            node["metadata"]["name"] = json!(name);
            node["metadata"]["labels"]["kubernetes.io/hostname"] = json!(name);
            if is_settled {
                node["spec"]["unschedulable"] = json!(false);
            }
            crate::machine(&node)
        };
        let machines: Vec<view::Node> = nodes.iter().enumerate().map(|each| machine(each, false)).collect();
        let settled: Vec<view::Node> = nodes.iter().enumerate().map(|each| machine(each, true)).collect();
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
        let told = answer(&pod, &cluster(&machines, &classes()));
        prop_assert_eq!(told.remedy.is_none(), is_fine(&told) && !is_refused(&pod.spec), "{:#?}", told);
        if let Some(spec) = remedied(&told, &spec).filter(|_| !is_refused(&pod.spec)) {
            prop_assert!(!is_refused(&spec), "{:#?}", told);
            let remedied = Pod { spec, ..Pod::default() };
            let after = answer(&remedied, &cluster(&settled, &classes()));
            prop_assert!(is_fine(&after), "{:#?} {:#?}", told, after);
            prop_assert_eq!(after.system, told.system);
        }
        let told = answer_template(WorkloadKind::own("DaemonSet").unwrap(), &template(&pod.spec), &[], &cluster(&machines, &classes()));
        prop_assert_eq!(told.remedy.is_none(), is_fine(&told) && !is_refused(&pod.spec), "{:#?}", told);
        if let Some(spec) = remedied(&told, &spec).filter(|_| !is_refused(&pod.spec)) {
            prop_assert!(!is_refused(&spec), "{:#?}", told);
            let after = answer_template(WorkloadKind::own("DaemonSet").unwrap(), &template(&spec), &[], &cluster(&settled, &classes()));
            prop_assert!(is_fine(&after), "{:#?} {:#?}", told, after);
        }
    }
}
