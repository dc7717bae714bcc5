//! Workloads that do not name an operating system run on Linux.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::BUILD;
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{Harness, merge};
use winpool_e2e::needs;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::{
    WINDOWS_NODES, admitted, admitted_until, assert_no_panic, comparable, install, namespace, pod, pods, required,
    restart, rolled_out, runs_on,
};

fn selects_linux(spec: &Value) -> bool {
    spec["nodeSelector"]["kubernetes.io/os"] == "linux"
}

fn where_exists(key: &str) -> Value {
    json!({"affinity": required(&json!([{"matchExpressions": [{"key": key, "operator": "Exists"}]}]))})
}

async fn in_force(harness: &Harness) {
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    let silent = |pod: &Pod| selects_linux(&json!(pod)["spec"]);
    admitted_until(&pods(&harness.client, "default"), &pod(&json!({})), "pods go to Linux", silent).await;
    let silent = |set: &DaemonSet| selects_linux(&json!(set)["spec"]["template"]["spec"]);
    admitted_until(&sets, &workload("DaemonSet", "probe", json!({})), "DaemonSets go to Linux", silent).await;
}

#[tokio::test]
async fn only_workloads_that_do_not_name_an_operating_system_get_a_selector() {
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::new().await;
    let _: k8s_openapi::api::node::v1::RuntimeClass =
        harness.create(json!({"metadata": {"name": "gvisor"}, "handler": "runsc"})).await;
    namespace(&harness.client, "mixed", json!({"winpool.dev/default-os": "none"})).await;
    namespace(&harness.client, "other", json!({"winpool.dev/default-os": "linux"})).await;
    install(&harness.client, "linux-by-default").await;
    in_force(&harness).await;
    let (default, sets) = (pods(&harness.client, "default"), Api::default_namespaced(harness.client.clone()));
    let untouched = pods(&harness.client, "mixed");
    let windows_options = json!({"windowsOptions": {"runAsUserName": "ContainerUser"}});
    let container = json!({"name": "app", "image": "example.com/app:1.4", "securityContext": windows_options});
    let silent = [
        json!({}),
        json!({"nodeSelector": {"disk": "ssd"}}),
        json!({"tolerations": [{"operator": "Exists"}]}),
        json!({"tolerations": [{"key": "os", "operator": "Exists"}]}),
        json!({"securityContext": {"runAsUser": 1000}}),
        where_exists("disk"),
    ];
    let saying = [
        json!({"os": {"name": "linux"}}),
        json!({"os": {"name": "windows"}}),
        json!({"runtimeClassName": "gvisor"}),
        json!({"nodeSelector": {"kubernetes.io/os": "windows"}}),
        json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}}),
        json!({"nodeSelector": {BUILD: "10.0.20348"}}),
        json!({"nodeSelector": {"runs.winpool.dev/10.0.20348": "true"}}),
        json!({"securityContext": windows_options}),
        json!({"containers": [container]}),
        json!({"tolerations": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]}),
        where_exists("kubernetes.io/os"),
        where_exists(BUILD),
    ];
    for (specs, moved) in [(&silent[..], true), (&saying[..], false)] {
        for spec in specs {
            let pods: [Pod; 2] =
                [admitted(&default, &pod(spec)).await.unwrap(), admitted(&untouched, &pod(spec)).await.unwrap()];
            assert_eq!(selects_linux(&json!(pods[0])["spec"]), moved, "{spec}");
            assert!(!selects_linux(&json!(pods[1])["spec"]), "{spec}");
            let mut expected = comparable(&pods[1]);
            if moved {
                expected["spec"]["nodeSelector"]["kubernetes.io/os"] = json!("linux");
            }
            assert_eq!(comparable(&pods[0]), expected, "nothing else changes");
            let set: DaemonSet = admitted(&sets, &workload("DaemonSet", "probe", spec.clone())).await.unwrap();
            assert_eq!(selects_linux(&json!(set)["spec"]["template"]["spec"]), moved, "DaemonSet {spec}");
        }
    }
    let other: Pod = admitted(&pods(&harness.client, "other"), &pod(&json!({}))).await.unwrap();
    assert!(selects_linux(&json!(other)["spec"]), "only none opts out");
    // A bound pod, and one whose DaemonSet is older than the policy.
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "old", "uid": "u", "controller": true}]);
    let mut of_a_set = pod(&json!({}));
    of_a_set["metadata"]["ownerReferences"] = owner;
    for object in [pod(&json!({"nodeName": "win"})), of_a_set] {
        let pods: [Pod; 2] = [admitted(&default, &object).await.unwrap(), admitted(&untouched, &object).await.unwrap()];
        assert_eq!(comparable(&pods[0]), comparable(&pods[1]));
    }
    assert_no_panic(&harness.server);
}

pub(super) async fn a_linux_daemon_set_that_tolerates_everything_runs_on_linux_only(harness: &Harness) {
    let client = &harness.client;
    let everything = json!({"tolerations": [{"operator": "Exists"}]});
    harness.apply(workload("DaemonSet", "old", everything.clone())).await;
    let linux = ["linux-a", "linux-b"];
    let all = [&linux[..], &WINDOWS_NODES].concat();
    runs_on(client, "old", &all).await;

    install(client, "linux-by-default").await;
    let sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
    let set = workload("DaemonSet", "exporter", everything);
    let silent = |set: &DaemonSet| selects_linux(&json!(set)["spec"]["template"]["spec"]);
    admitted_until(&sets, &set, "DaemonSets go to Linux", silent).await;
    harness.apply(set).await;
    rolled_out(client, "exporter", 2).await;
    runs_on(client, "exporter", &linux).await;

    runs_on(client, "old", &all).await;
    merge(&sets, "old", restart()).await;
    rolled_out(client, "old", 2).await;
    runs_on(client, "old", &linux).await;
}
