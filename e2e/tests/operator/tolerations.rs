//! Pods for Windows get the toleration of the taint, on a cluster with a real scheduler. No node is touched for that.

use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Namespace, Pod, Toleration};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use winpool_e2e::harness::objects::{has_taint, node_of};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::workloads::pod_of;
use winpool_e2e::harness::{Harness, OS_WINDOWS};
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::nodes::simulated::SimulatedNode;

use crate::rescued::with;

/// The time within which a pod has a node.
const BOUND: Duration = Duration::from_secs(10);

fn tolerations(pod: &Pod) -> Vec<Toleration> {
    pod.spec.clone().and_then(|spec| spec.tolerations).unwrap_or_default()
}

/// The number of tolerations of the taint `os=windows:NoSchedule` with exactly this key and value.
fn of_windows(pod: &Pod) -> usize {
    let is_it = |own: &&Toleration| (own.key.as_deref(), own.value.as_deref()) == (Some("os"), Some("windows"));
    tolerations(pod).iter().filter(is_it).count()
}

async fn is_bound(harness: &Harness, pod: &str) -> Pod {
    let bound = async || Ok(Some(harness.pods().get(pod).await?).filter(|pod| node_of(pod).is_some()));
    wait_for(&format!("{pod} is bound"), BOUND, bound).await.unwrap()
}

/// A cluster with a tainted Windows node of the node pool `win`, a Linux node, and the operator.
async fn with_a_tainted_node() -> (Harness, Operator) {
    let win = SimulatedNode::server_2022("win").label("agentpool", "win");
    let linux = SimulatedNode::linux().name("lin").label("agentpool", "lin");
    let harness = Harness::with_nodes([win, linux]).await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;
    (harness, operator)
}

fn required(key: &str, operator: &str, values: &[&str]) -> Value {
    let terms = json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]);
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
}

fn select(key: &str, value: &str) -> Value {
    json!({"nodeSelector": Value::from_iter([(key, value)])})
}

#[tokio::test]
async fn pods_that_show_that_they_are_for_windows_are_bound_and_others_are_left_alone() {
    let (harness, operator) = with_a_tainted_node().await;
    let windows = select("kubernetes.io/os", "windows");
    let own = json!({"tolerations": [{"key": "example.com/gpu", "operator": "Exists"}]});
    let port =
        json!({"containers": [{"name": "c", "image": "servercore", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    let by_class = json!({"runtimeClassName": "windows-2022"});
    let for_windows = [
        ("by-selector", windows.clone()),
        ("by-os-name", json!({"os": {"name": "windows"}, "nodeSelector": {"agentpool": "win"}})),
        (
            "by-options",
            with(
                select("agentpool", "win"),
                json!({"securityContext": {"windowsOptions": {"runAsUserName": "ContainerUser"}}}),
            ),
        ),
        ("by-node-pools", required("agentpool", "In", &["win"])),
        ("by-class", by_class),
        ("with-others", with(windows.clone(), own)),
        ("with-port", with(windows.clone(), port)),
    ];
    let others = [
        ("says-linux", select("kubernetes.io/os", "linux")),
        ("says-nothing", json!({})),
        ("on-linux-pool", select("agentpool", "lin")),
    ];
    // It fits only the Windows node, by a label that does not say which system it has.
    let waits = [
        ("by-team", select("team", "web")),
        ("of-both", required("agentpool", "In", &["win", "none"])),
        ("gated", with(windows.clone(), json!({"schedulingGates": [{"name": "example.com/wait"}]}))),
    ];
    harness.edit_node("win", json!({"metadata": {"labels": {"team": "web"}}})).await;
    for (name, spec) in for_windows.iter().chain(&others).chain(&waits) {
        let containers = json!({"containers": [{"name": "c", "image": "servercore"}]});
        harness.create_pod(json!({"metadata": {"name": name}, "spec": with(containers, spec.clone())})).await;
    }
    let ignored = json!({"metadata": {"name": "ignored", "annotations": {"winpool.dev/ignore": "true"}}, "spec": with(windows, json!({"containers": [{"name": "c", "image": "servercore"}]}))});
    harness.create_pod(ignored).await;
    for (name, _) in &for_windows {
        let pod = is_bound(&harness, name).await;
        assert_eq!((node_of(&pod), of_windows(&pod)), (Some("win"), 1), "{name}");
    }
    for (name, _) in &others {
        let pod = is_bound(&harness, name).await;
        assert_eq!((node_of(&pod), of_windows(&pod)), (Some("lin"), 0), "{name}");
    }
    for name in waits.iter().map(|(name, _)| *name).chain(["ignored"]) {
        let pod = harness.pods().get(name).await.unwrap();
        assert_eq!((node_of(&pod), of_windows(&pod)), (None, 0), "{name}");
    }
    let free = json!({"spec": {"schedulingGates": []}});
    let _: Pod = harness.pods().patch("gated", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    is_bound(&harness, "gated").await;
    assert!(has_taint(&harness.node("win").await, OS_WINDOWS));
    operator.stop().await;
}

#[tokio::test]
async fn pods_that_run_get_it_before_the_taint_goes_on_their_node() {
    const PODS: [&str; 3] = ["web-0", "web-1", "web-2"];
    let (harness, audit) = Harness::audited().await;
    harness.join("win").await;
    for name in PODS {
        let spec = json!({"nodeName": "win", "nodeSelector": {"kubernetes.io/os": "windows"}});
        harness.start_pod(pod_of("StatefulSet", "web", name, spec)).await;
    }
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;
    let requests = audit.requests();
    let taint = requests.iter().position(|request| {
        (request.resource.as_str(), request.code) == ("nodes", 200) && request.body.to_string().contains("NoSchedule")
    });
    for name in PODS {
        let helped = requests.iter().position(|request| request.name == name && request.verb == "patch");
        assert!(helped.unwrap() < taint.unwrap(), "{name}: {requests:#?}");
        assert_eq!(of_windows(&harness.pods().get(name).await.unwrap()), 1);
    }
    operator.stop().await;
}

async fn create_all(api: &Api<Pod>, pods: impl Iterator<Item = Pod>) {
    let created = futures::stream::iter(pods).map(|pod| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), &pod).await }
    });
    let created: Vec<_> = created.buffer_unordered(16).collect().await;
    assert!(created.iter().all(Result::is_ok));
}

/// The machine decides how long so many requests take, so this waits longer than a single pod may.
#[tokio::test]
async fn three_hundred_pods_are_bound_beside_a_namespace_with_many_waiting_pods() {
    let (harness, operator) = with_a_tainted_node().await;
    harness.create::<Namespace>(json!({"metadata": {"name": "flood"}})).await;
    let flood: Api<Pod> = Api::namespaced(harness.client.clone(), "flood");
    let pod = |name: &str| -> Pod {
        let resources = json!({"requests": {"cpu": "0"}});
        let containers = json!([{"name": "c", "image": "servercore", "resources": resources}]);
        let spec = with(select("kubernetes.io/os", "windows"), json!({"containers": containers}));
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
    };
    for (api, prefix, count) in [(&flood, "flood", 1000), (&harness.pods(), "web", 300)] {
        create_all(api, (0..count).map(|number| pod(&format!("{prefix}-{number}")))).await;
    }
    let start = Instant::now();
    let helped = async || {
        let pods = harness.pods().list(&ListParams::default()).await?.items;
        Ok(pods.iter().all(|pod| of_windows(pod) == 1).then_some(()))
    };
    wait_for("300 pods have the toleration", BOUND * 6, helped).await.unwrap();
    println!("300 pods have the toleration {:.1} s after the last one was created", start.elapsed().as_secs_f64());
    operator.stop().await;
}
