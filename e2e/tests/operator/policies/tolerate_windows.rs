//! Pods and `DaemonSets` that say Windows get tolerations for Windows nodes.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::BUILD;
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{Harness, merge};
use winpool_e2e::needs;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{
    WINDOWS_NODES, admitted, admitted_until, assert_no_panic, class_status, install, pod, pods, pool, required,
    restart, rolled_out, runs_on,
};

/// The tolerations that the API server adds to every pod.
fn of_kubernetes(toleration: &Value) -> bool {
    toleration["key"]
        .as_str()
        .is_some_and(|key| key.starts_with("node.kubernetes.io/") && key != "node.kubernetes.io/os")
}

/// `key=value:effect` of each toleration of a pod's spec.
fn tolerations(spec: &Value) -> Vec<String> {
    let all = spec["tolerations"].as_array().into_iter().flatten().filter(|toleration| !of_kubernetes(toleration));
    let text = |toleration: &Value, field: &str| toleration[field].as_str().unwrap_or_default().to_owned();
    all.map(|t| format!("{}={}:{}", text(t, "key"), text(t, "value"), text(t, "effect"))).collect()
}

fn tolerates(pod: &Pod) -> Vec<String> {
    tolerations(&json!(pod.spec))
}

fn affinity(terms: &Value) -> Value {
    json!({"affinity": required(terms)})
}

fn os_in(values: &Value) -> Value {
    json!({"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": values}]})
}

async fn scene(harness: &Harness) {
    let taint = |key: &str, effect: &str| json!({"key": key, "value": "windows", "effect": effect});
    let spec = json!({
        "taints": [taint("a/os", "NoSchedule"), taint("advice/os", "PreferNoSchedule")],
        "retiredTaints": [{"key": "os", "value": "Win1809", "effect": "NoSchedule"}],
        "nodeSelector": {"pool": "a"},
    });
    let classes = [class_status("of-a", "10.0.17763", "Applied"), class_status("foreign", "10.0.20348", "Conflict")];
    pool(harness, "a", spec, json!({"runtimeClasses": classes})).await;
    pool(harness, "b", json!({"taints": [taint("b/os", "NoSchedule")], "nodeSelector": {"pool": "b"}}), json!({}))
        .await;
    // winpool adds no tolerations for these pools, and neither does the policy.
    for (name, field, value) in
        [("dry", "mode", "DryRun"), ("only", "taintPolicy", "TaintOnly"), ("never", "taintPolicy", "Never")]
    {
        let mut spec = json!({"taints": [taint(&format!("{name}/os"), "NoSchedule")]});
        spec[field] = json!(value);
        pool(harness, name, spec, json!({})).await;
    }
    let _: k8s_openapi::api::node::v1::RuntimeClass =
        harness.create(json!({"metadata": {"name": "of-a"}, "handler": "h"})).await;
    let linux = json!({"nodeSelector": {"kubernetes.io/os": "linux"}});
    let _: k8s_openapi::api::node::v1::RuntimeClass =
        harness.create(json!({"metadata": {"name": "foreign"}, "handler": "h", "scheduling": linux})).await;
    install(&harness.client, "tolerate-windows").await;
    let windows = pod(&json!({"os": {"name": "windows"}}));
    let default = pods(&harness.client, "default");
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    let all = |pod: &Pod| tolerates(pod).len() == 3;
    admitted_until(&default, &windows, "pods tolerate", all).await;
    let set = workload("DaemonSet", "probe", json!({"os": {"name": "windows"}}));
    let all = |set: &DaemonSet| tolerations(&json!(set)["spec"]["template"]["spec"]).len() == 3;
    admitted_until(&sets, &set, "DaemonSets tolerate", all).await;
}

#[tokio::test]
async fn workloads_that_say_windows_tolerate_the_pools_that_they_may_run_in() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    scene(&harness).await;
    let namespaces = ["default", "kube-system"].map(|namespace| {
        (pods(&harness.client, namespace), Api::<DaemonSet>::namespaced(harness.client.clone(), namespace))
    });
    let (of_a, of_b) = (["a/os=windows:NoSchedule", "os=Win1809:NoSchedule"], ["b/os=windows:NoSchedule"]);
    let all: Vec<&str> = of_a.into_iter().chain(of_b).collect();
    let os = |os: &str| json!({"kubernetes.io/os": os});
    let one_of_a = json!({"os": {"name": "windows"}, "tolerations": [{"key": "a/os", "operator": "Exists"}]});
    let cases: Vec<(Value, Vec<&str>)> = vec![
        (json!({"os": {"name": "windows"}}), all.clone()),
        (json!({"nodeSelector": os("windows")}), all.clone()),
        (json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}), all.clone()),
        (json!({"nodeSelector": {BUILD: "10.0.17763"}}), all.clone()),
        (affinity(&json!([os_in(&json!(["windows"]))])), all.clone()),
        (affinity(&json!([{}, os_in(&json!(["windows"]))])), all.clone()),
        (affinity(&json!([{}])), vec![]),
        (json!({"nodeSelector": {"kubernetes.io/os": "windows", "pool": "a"}}), of_a.to_vec()),
        (json!({"nodeSelector": {"kubernetes.io/os": "windows", "pool": "c"}}), vec![]),
        // No operating system, or another one.
        (json!({}), vec![]),
        (affinity(&json!([os_in(&json!(["windows", "linux"]))])), vec![]),
        (
            affinity(&json!([os_in(&json!(["windows"])), {"matchExpressions": [{"key": "a", "operator": "Exists"}]}])),
            vec![],
        ),
        // Tolerated already, in part or in full.
        (json!({"os": {"name": "windows"}, "tolerations": [{"operator": "Exists"}]}), vec!["=:"]),
        (one_of_a, vec!["a/os=:", "os=Win1809:NoSchedule", "b/os=windows:NoSchedule"]),
    ];
    for (spec, mut expected) in cases {
        let sorted = |mut tolerations: Vec<String>| {
            tolerations.sort();
            tolerations
        };
        expected.sort_unstable();
        for (pods, sets) in &namespaces {
            let pod: Pod = admitted(pods, &pod(&spec)).await.unwrap();
            let namespace = pod.metadata.namespace.as_deref();
            assert_eq!(sorted(tolerates(&pod)), expected, "pod {spec} in {namespace:?}");
            let set: DaemonSet = admitted(sets, &workload("DaemonSet", "probe", spec.clone())).await.unwrap();
            let template = json!(set)["spec"]["template"]["spec"].take();
            assert_eq!(sorted(tolerations(&template)), expected, "DaemonSet {spec} in {namespace:?}");
            let by_labels = spec["nodeSelector"].is_object() || spec["affinity"].is_object();
            if !expected.is_empty() && !by_labels {
                assert_eq!(template["nodeSelector"], os("windows"), "its controller looks at the selector alone");
            } else {
                assert_eq!(template["nodeSelector"], spec["nodeSelector"], "{spec}");
            }
        }
    }
    let [(default, sets), _] = &namespaces;
    // By its class alone: the pool of that class, and which others depends on who is asked first.
    let by_class = json!({"runtimeClassName": "of-a"});
    let pod_of_a: Pod = admitted(default, &pod(&by_class)).await.unwrap();
    let set: DaemonSet = admitted(sets, &workload("DaemonSet", "probe", by_class)).await.unwrap();
    let template = json!(set)["spec"]["template"]["spec"].take();
    for tolerated in [tolerates(&pod_of_a), tolerations(&template)] {
        assert!(of_a.iter().all(|taint| tolerated.contains(&(*taint).to_owned())), "{tolerated:?}");
    }
    assert_eq!(template["nodeSelector"], os("windows"));

    // Its class has a name that a pool needs, and another system.
    let foreign = json!({"runtimeClassName": "foreign"});
    let set: DaemonSet = admitted(sets, &workload("DaemonSet", "probe", foreign.clone())).await.unwrap();
    assert_eq!(json!(set)["spec"]["template"]["spec"]["nodeSelector"], json!(null));
    let bound = json!({"nodeName": "win", "os": {"name": "windows"}});
    for (spec, selector) in [(json!({}), json!(null)), (foreign, os("linux")), (bound, json!(null))] {
        let pod: Pod = admitted(default, &pod(&spec)).await.unwrap();
        assert_eq!((tolerates(&pod), &json!(pod.spec)["nodeSelector"]), (vec![], &selector), "{spec}");
    }
    assert_no_panic(&harness.server);
}

#[tokio::test]
async fn pods_and_daemon_sets_with_the_annotation_ignore_are_left_alone() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    scene(&harness).await;
    let windows = json!({"os": {"name": "windows"}});
    let annotated = |mut object: Value, place: &str, value: &str| {
        object.pointer_mut(place).unwrap()["annotations"] = json!({"winpool.dev/ignore": value});
        object
    };
    let pods = pods(&harness.client, "default");
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    for (value, expected) in [("true", 0), ("false", 3)] {
        let pod: Pod = admitted(&pods, &annotated(pod(&windows), "/metadata", value)).await.unwrap();
        assert_eq!(tolerates(&pod).len(), expected, "pod with {value}");
        for place in ["/metadata", "/spec/template/metadata"] {
            let set = annotated(workload("DaemonSet", "probe", windows.clone()), place, value);
            let set: DaemonSet = admitted(&sets, &set).await.unwrap();
            assert_eq!(tolerations(&json!(set)["spec"]["template"]["spec"]).len(), expected, "{place} with {value}");
        }
    }
}

#[tokio::test]
async fn an_update_that_leaves_the_template_alone_starts_no_rollout() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    let old = workload("DaemonSet", "old", json!({"os": {"name": "windows"}}));
    harness.apply(old).await;
    scene(&harness).await;
    let edit = async |patch: Value| merge(&sets, "old", patch).await;
    let noted = edit(json!({"metadata": {"annotations": {"a": "b"}}})).await;
    assert_eq!(noted.metadata.generation, Some(1));
    let scaled = edit(json!({"spec": {"minReadySeconds": 1}})).await;
    assert_eq!(tolerations(&json!(scaled)["spec"]["template"]["spec"]), Vec::<String>::new());
    let restarted = edit(restart()).await;
    assert_eq!(tolerations(&json!(restarted)["spec"]["template"]["spec"]).len(), 3);

    // Nor does applying the same manifest again, in either way.
    let manifest = workload("DaemonSet", "new", json!({"os": {"name": "windows"}}));
    for _ in 0..2 {
        harness.apply(manifest.clone()).await;
    }
    let applied = sets.get("new").await.unwrap();
    assert_eq!(
        (applied.metadata.generation, tolerations(&json!(applied)["spec"]["template"]["spec"]).len()),
        (Some(1), 3)
    );
    // Pools are evaluated in an order that changes.
    let replaced: DaemonSet = serde_json::from_value(manifest).unwrap();
    for _ in 0..10 {
        let replaced = sets.replace("new", &PostParams::default(), &replaced).await.unwrap();
        assert_eq!(replaced.metadata.generation, Some(1), "{:?}", replaced.spec);
    }
    assert_no_panic(&harness.server);
}

pub(super) async fn a_windows_daemon_set_without_toleration_runs_on_all_windows_nodes(harness: &Harness) {
    let client = &harness.client;
    harness.apply_until_ready(json!({})).await;
    install(client, "tolerate-windows").await;
    let sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
    let set = workload("DaemonSet", "logs", json!({"os": {"name": "windows"}}));
    let tolerating = |set: &DaemonSet| !tolerations(&json!(set)["spec"]["template"]["spec"]).is_empty();
    admitted_until(&sets, &set, "DaemonSets tolerate", tolerating).await;

    harness.apply(set).await;
    runs_on(client, "logs", &WINDOWS_NODES).await;
    merge(&sets, "logs", restart()).await;
    rolled_out(client, "logs", 4).await;
    runs_on(client, "logs", &WINDOWS_NODES).await;
}
