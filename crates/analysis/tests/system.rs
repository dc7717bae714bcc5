//! The operating system of a workload, as each answer takes it, and what follows from doubts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use winpool_analysis::explain::pod::{PodExplanation, answer_template};
use winpool_analysis::finding::Finding;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::lint::{Facts, check};
use winpool_analysis::remedy::Rank;
use winpool_analysis::view::{Known, Node, SeenNode, View};
use winpool_analysis::workload::WorkloadManifest;

use crate::cluster;

/// Two Linux nodes and two Windows nodes, in a pool of each system.
fn nodes() -> Vec<SeenNode> {
    let node = |name: &str, system: &str, pool: &str, build: Option<&str>| {
        let mut node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/os": system, "kubernetes.io/arch": "amd64", "pool": pool}},
            "spec": {},
            "status": {"nodeInfo": {
                "operatingSystem": system, "kernelVersion": "6.8", "containerRuntimeVersion": "containerd://2.0.4", "bootID": "a",
                "architecture": "amd64", "osImage": "a", "kubeProxyVersion": "v1", "kubeletVersion": "v1", "machineID": "a",
                "systemUUID": "a",
            }},
        });
        if let Some(build) = build {
            node["metadata"]["labels"]["node.kubernetes.io/windows-build"] = build.into();
            node["status"]["nodeInfo"]["kernelVersion"] = format!("{build}.1").into();
            node["spec"]["taints"] = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
        }
        crate::seen(&node)
    };
    vec![
        node("linux-1", "linux", "a", None),
        node("linux-2", "linux", "a", None),
        node("win-1", "windows", "b", Some("10.0.20348")),
        node("win-2", "windows", "b", Some("10.0.26100")),
    ]
}

fn hosts() -> Vec<Node> {
    nodes().iter().map(SeenNode::host).collect()
}

fn object(spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec.as_object_mut().unwrap().entry("containers").or_insert_with(|| json!([{"name": "c", "image": "app:1"}]));
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}})
}

fn why(spec: &Value) -> PodExplanation {
    let kind = WorkloadKind::own("Deployment").unwrap();
    answer_template(kind, &crate::workload_of(kind, object(spec)), &[], &cluster(&hosts(), &BTreeMap::new()))
}

fn found(spec: &Value) -> Vec<Finding> {
    let facts = Facts::of(&View { nodes: Known::Partial(nodes()), ..View::default() });
    let object = object(spec);
    check(&WorkloadManifest::read(&object).unwrap().unwrap(), &facts)
}

fn remedies(spec: &Value, rule: &str) -> Vec<String> {
    found(spec).into_iter().filter(|found| found.rule == rule).map(|found| found.remedy.text).collect()
}

#[test]
fn a_label_that_only_nodes_of_one_system_have_tells_the_system() {
    let windows = json!({"nodeSelector": {"pool": "b"}});
    assert_eq!((why(&windows).system.as_str(), why(&windows).doubt), ("windows", None));
    let rules: Vec<String> = found(&windows).into_iter().map(|found| found.rule).collect();
    assert!(rules.contains(&"toleration-missing".to_owned()), "{rules:?}");
    assert!(!rules.contains(&"os-selector-missing".to_owned()), "the label keeps it off Linux nodes: {rules:?}");
    // It is more certain than a name, and an image that can only be for Windows is a mistake there.
    let mistaken: &[&str] = &["image-for-another-os"];
    for (image, expected) in
        [("tool-windows:1", &[][..]), ("tool:ltsc2022", mistaken), ("mcr.microsoft.com/windows/servercore", mistaken)]
    {
        let linux = json!({"nodeSelector": {"pool": "a"}, "containers": [{"name": "c", "image": image}]});
        let rules: Vec<String> = found(&linux).into_iter().map(|found| found.rule).collect();
        assert_eq!(
            (why(&linux).system.as_str(), rules),
            ("linux", expected.iter().map(ToString::to_string).collect()),
            "{image}"
        );
    }
    for unclear in
        [json!({}), json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}), json!({"nodeSelector": {"pool": "c"}})]
    {
        assert_eq!(why(&unclear).system, "linux", "{unclear}");
    }
}

#[test]
fn a_doubt_is_named_with_the_remedy_for_linux() {
    for (spec, sign) in [
        (
            json!({"containers": [{"name": "c", "image": "tool-windows:1"}]}),
            "the name of an image has a word for Windows",
        ),
        (
            json!({"containers": [{"name": "c", "image": "app", "command": ["app.exe"]}]}),
            "a program or a path is like those of Windows",
        ),
        (json!({"tolerations": [{"key": "os", "value": "windows"}]}), "the pod tolerates a taint of Windows nodes"),
    ] {
        let answer = why(&spec);
        assert_eq!((answer.system.as_str(), answer.doubt), ("windows", Some(sign)), "{spec}");
        let found = found(&spec);
        let text = &found.iter().find(|found| found.rule == "windows-image-without-os").unwrap().message;
        assert!(text.starts_with(sign), "{text}");
        let fixes =
            found.iter().filter(|found| found.field.ends_with("tolerations") || found.field.ends_with("nodeSelector"));
        for Finding { rule, remedy, .. } in fixes {
            assert!(
                remedy.text.ends_with("; for a Linux workload instead: nodeSelector kubernetes.io/os: linux"),
                "{rule}: {remedy:?}"
            );
            assert_eq!(remedy.rank, Rank::Probable);
        }
    }
    let certain = json!({"nodeSelector": {"kubernetes.io/os": "windows"}, "containers": [{"name": "c", "image": "tool-windows:1"}]});
    assert_eq!(why(&certain).doubt, None);
    assert!(found(&certain).iter().all(|found| !found.remedy.text.contains("linux")));
}

#[test]
fn a_misspelt_system_is_named_and_corrected() {
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "Windows"}});
    assert_eq!(remedies(&spec, "os-unknown"), ["set nodeSelector kubernetes.io/os: windows"]);
    let answer = why(&spec);
    assert_eq!(answer.system, "windows");
    let remedy = answer.remedy.unwrap().text;
    assert!(remedy.contains("set nodeSelector kubernetes.io/os: windows"), "{remedy}");
}

#[test]
fn a_remedy_names_every_node_that_the_pod_then_has() {
    let spec = json!({"nodeSelector": {"kubernetes.io/os": "windows"}});
    let toleration = "add the toleration {key: os, operator: Equal, value: windows, effect: NoSchedule}";
    assert_eq!(why(&spec).remedy.map(|remedy| remedy.text), Some(format!("to land on win-1, win-2: {toleration}")));
    let open = json!({"tolerations": [{"operator": "Exists"}]});
    let linux = "to land only where it starts: set nodeSelector kubernetes.io/os: linux";
    assert_eq!(why(&open).remedy.unwrap().text, linux);
}

#[test]
fn another_processor_is_no_remedy() {
    let term = json!([{"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": term}}});
    for spec in [json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}), json!({"affinity": affinity})] {
        let answer = why(&spec);
        assert!(answer.nodes.iter().all(|node| node.starts.is_none()), "{answer:#?}");
        let remedy = answer.remedy.unwrap().text;
        assert_eq!(remedy, "no node has the processor that the pod selects: add one that does");
    }
}
