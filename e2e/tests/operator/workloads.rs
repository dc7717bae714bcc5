//! Workloads on a cluster with a real scheduler, which decides where the examples run.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::{BUILD, label, node_of, taints, unschedulable};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::manifests::{EXAMPLES, apply, example, rolled_out};

/// Every Deployment in `examples/` with the kernel of the nodes that it has to run on. Two examples bring their own
/// selector and toleration, the other Windows ones name a class and nothing else.
const EXPECTED: [(&str, &str); 6] = [
    ("iis-2019", "10.0.17763."),
    ("iis-2019-node-selector", "10.0.17763."),
    ("iis-2022", "10.0.20348."),
    ("iis-2025", "10.0.26100."),
    ("linux-web", "6."),
    ("win-webserver", "10.0.17763."),
];

/// The number of pods that a Linux node of these tests runs.
const LINUX_ROOM: usize = 4;

#[tokio::test]
async fn examples_run_where_they_must_and_linux_pods_stay_off_windows() {
    let (harness, _operator) = Box::pin(cluster_with_empty_pool()).await;
    the_examples_run_where_they_must(&harness).await;
    linux_pods_stay_off_windows_and_pods_without_the_toleration_get_it(&harness).await;
}

async fn the_examples_run_where_they_must(harness: &Harness) {
    let objects = examples();
    let deployments: Vec<&DynamicObject> = objects.iter().filter(|object| kind(object) == "Deployment").collect();
    let names: Vec<String> = deployments.iter().map(|deployment| deployment.name_any()).collect();
    assert_eq!(names, EXPECTED.map(|(name, _)| name), "every example has an expectation");
    for deployment in deployments.iter().filter(|deployment| spec(deployment)["runtimeClassName"].is_string()) {
        let spec = spec(deployment);
        assert!(spec["tolerations"].is_null() && spec["nodeSelector"].is_null(), "the class alone does it");
    }

    apply(&harness.client, &objects).await.unwrap();
    for (name, kernel) in EXPECTED {
        let pods = rolled_out(harness.cluster(), name).await.unwrap();
        assert!(!pods.is_empty(), "{name}");
        for pod in &pods {
            assert!(kernel_under(harness, pod).await.starts_with(kernel), "{name} on {:?}", node_of(pod));
        }
    }
    the_service_has_its_pods_as_endpoints(harness, "win-webserver").await;
}

async fn the_service_has_its_pods_as_endpoints(harness: &Harness, name: &str) {
    let pods = rolled_out(harness.cluster(), name).await.unwrap();
    let addresses = pods.iter().map(|pod| pod.status.as_ref().unwrap().pod_ip.clone().unwrap());
    let mut wanted: Vec<(String, Option<&str>)> = addresses.zip(pods.iter().map(node_of)).collect();
    wanted.sort();
    let slices: Api<EndpointSlice> = Api::default_namespaced(harness.client.clone());
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let has_them = async || {
        let slices = slices.list(&of_service).await?.items;
        let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
        let ready = endpoints.filter(|endpoint| endpoint.conditions.as_ref().is_some_and(|c| c.ready == Some(true)));
        let mut found: Vec<(String, Option<&str>)> =
            ready.map(|endpoint| (endpoint.addresses[0].clone(), endpoint.node_name.as_deref())).collect();
        found.sort();
        Ok((found == wanted).then_some(()))
    };
    wait_for(&format!("Service {name} has the endpoints {wanted:?}"), LIMIT, has_them).await.unwrap();
}

async fn linux_pods_stay_off_windows_and_pods_without_the_toleration_get_it(harness: &Harness) {
    // More Linux pods than the Linux nodes can take.
    let mut linux = the_example("linux-web.yaml");
    linux.data["spec"]["replicas"] = json!(2 * LINUX_ROOM + 3);
    apply(&harness.client, &[linux]).await.unwrap();
    // The Windows examples with the right selector, and with neither class nor toleration.
    let mut bare = Vec::new();
    for (name, kernel) in EXPECTED.into_iter().filter(|(name, _)| *name != "linux-web") {
        let mut deployment = examples().into_iter().find(|o| kind(o) == "Deployment" && o.name_any() == name).unwrap();
        let build = kernel.trim_end_matches('.');
        let pod = &mut deployment.data["spec"]["template"]["spec"];
        pod["nodeSelector"] = json!({"kubernetes.io/os": "windows", BUILD: build});
        pod.as_object_mut().unwrap().retain(|field, _| field != "tolerations" && field != "runtimeClassName");
        let name = format!("bare-{name}");
        for labels in ["/spec/selector/matchLabels", "/spec/template/metadata/labels"] {
            *deployment.data.pointer_mut(labels).unwrap() = json!({"app": name});
        }
        deployment.metadata.name = Some(name);
        bare.push(deployment);
    }
    apply(&harness.client, &bare).await.unwrap();
    // DaemonSets without and with a toleration.
    for (name, file) in [("by-class", "iis-2019.yaml"), ("by-selector", "iis-2019-node-selector.yaml")] {
        harness.apply(workload("DaemonSet", name, spec(&the_example(file)).clone())).await;
    }

    for deployment in &bare {
        let name = deployment.name_any();
        for pod in rolled_out(harness.cluster(), &name).await.unwrap() {
            assert!(tolerates_windows(&pod), "{name} has got the toleration");
        }
    }
    let pods = scheduled_or_refused(harness, "linux-web", 2 * LINUX_ROOM + 3).await;
    let mut by_node: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for pod in &pods {
        *by_node.entry(node_of(pod)).or_default() += 1;
    }
    assert_eq!(by_node, BTreeMap::from([(None, 3), (Some("linux-a"), LINUX_ROOM), (Some("linux-b"), LINUX_ROOM)]));
    for pod in pods.iter().filter(|pod| node_of(pod).is_none()) {
        let refusal = unschedulable(pod).unwrap();
        let (full, tainted) = ("2 Too many pods", "4 node(s) had untolerated taint");
        assert!(refusal.contains(full) && refusal.contains(tainted), "{refusal}");
    }
    let by_class = scheduled_or_refused(harness, "by-class", 2).await;
    assert_eq!(desired(harness, "by-class").await, 2, "its controller sees no class, so it wants the Linux nodes");
    assert_eq!(by_class.iter().map(node_of).collect::<Vec<_>>(), [None, None], "where the class forbids it to run");
    let by_selector = scheduled_or_refused(harness, "by-selector", 2).await;
    assert_eq!(desired(harness, "by-selector").await, 2);
    let mut on: Vec<_> = by_selector.iter().map(node_of).collect();
    on.sort_unstable();
    assert_eq!(on, [Some("win-2019-a"), Some("win-2019-b")]);
}

/// Two small Linux nodes, four Windows ones, and winpool with an empty pool that is Ready.
async fn cluster_with_empty_pool() -> (Harness, Operator) {
    let linux = SimulatedNode::linux().resource("pods", &LINUX_ROOM.to_string());
    let harness = Harness::with_nodes([
        linux.clone().name("linux-a"),
        linux.name("linux-b"),
        SimulatedNode::server_2019("win-2019-a"),
        SimulatedNode::windows("10.0.17763.1817").name("win-2019-b").without_label(BUILD),
        SimulatedNode::server_2022("win-2022-a"),
        SimulatedNode::server_2025("win-2025-a"),
    ])
    .await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    for node in harness.nodes().list(&ListParams::default()).await.unwrap() {
        let expected: &[&str] = if label(&node, BUILD).is_some() { &["os=windows:NoSchedule"] } else { &[] };
        assert_eq!(taints(&node), expected, "{}", node.name_any());
    }
    (harness, operator)
}

/// All objects in `examples/`, in the order of their names.
fn examples() -> Vec<DynamicObject> {
    let files = std::fs::read_dir(EXAMPLES).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files = files.filter(|file| Path::new(file).extension().is_some_and(|extension| extension == "yaml"));
    let mut objects: Vec<DynamicObject> = files.flat_map(|file| example(&file).unwrap()).collect();
    objects.sort_by_key(ResourceExt::name_any);
    objects
}

fn the_example(file: &str) -> DynamicObject {
    let mut objects = example(file).unwrap();
    assert_eq!(objects.len(), 1, "{file}");
    objects.remove(0)
}

fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

/// The pod in the template of a workload.
fn spec(workload: &DynamicObject) -> &Value {
    &workload.data["spec"]["template"]["spec"]
}

/// How many pods a DaemonSet wants, once its controller has looked at it.
async fn desired(harness: &Harness, name: &str) -> i32 {
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    let looked_at = async || {
        let set = sets.get(name).await?;
        let status = set.status.filter(|status| status.observed_generation == set.metadata.generation);
        Ok(status.map(|status| status.desired_number_scheduled))
    };
    wait_for(&format!("DaemonSet {name} is looked at"), LIMIT, looked_at).await.unwrap()
}

/// The pods of a Deployment, once there are that many and the scheduler has decided about each.
async fn scheduled_or_refused(harness: &Harness, name: &str, number: usize) -> Vec<Pod> {
    let of_deployment = ListParams::default().labels(&format!("app={name}"));
    let is_decided = |pod: &Pod| node_of(pod).is_some() || unschedulable(pod).is_some();
    let decided = async || {
        let pods = harness.pods().list(&of_deployment).await?.items;
        Ok((pods.len() == number && pods.iter().all(is_decided)).then_some(pods))
    };
    wait_for(&format!("the scheduler has decided about {number} pods of {name}"), LIMIT, decided).await.unwrap()
}

fn tolerates_windows(pod: &Pod) -> bool {
    let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    tolerations.into_iter().any(|own| (own.key.as_deref(), own.value.as_deref()) == (Some("os"), Some("windows")))
}

async fn kernel_under(harness: &Harness, pod: &Pod) -> String {
    harness.node(node_of(pod).unwrap()).await.status.unwrap().node_info.unwrap().kernel_version
}

/// The scheduler counts a node whose taint the pod does not tolerate as a domain without pods. `winpool check` and `plan` say so.
#[tokio::test]
async fn a_spread_over_hosts_leaves_linux_pods_pending_beside_tainted_nodes_unless_they_select_linux() {
    let linux = ["lin-1", "lin-2"].map(|name| SimulatedNode::linux().name(name).label("kubernetes.io/hostname", name));
    let windows =
        SimulatedNode::server_2022("win").label("kubernetes.io/hostname", "win").taint("os", "windows", "NoSchedule");
    let harness = Harness::with_nodes(linux.into_iter().chain([windows])).await;
    for (app, selector, waiting) in [("any", json!({}), 2), ("linux", json!({"kubernetes.io/os": "linux"}), 0)] {
        for number in 0..4 {
            let constraint = json!({
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": app}},
            });
            let pod = json!({
                "metadata": {"name": format!("{app}-{number}"), "labels": {"app": app}},
                "spec": {
                    "nodeSelector": selector, "topologySpreadConstraints": [constraint],
                    "containers": [{"name": "c", "image": "nginx"}],
                },
            });
            harness.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        }
        let decided = async || {
            let of_app = ListParams::default().labels(&format!("app={app}"));
            let pods = harness.pods().list(&of_app).await?.items;
            let is_unschedulable = |pod: &Pod| {
                let status = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
                status.into_iter().flatten().any(|is| is.type_ == "PodScheduled" && is.status == "False")
            };
            let bound = pods.iter().filter(|pod| node_of(pod).is_some()).count();
            let unschedulable = pods.iter().filter(|pod| is_unschedulable(pod)).count();
            Ok((bound + unschedulable == 4).then_some(unschedulable))
        };
        assert_eq!(wait_for("the scheduler decides", LIMIT, decided).await.unwrap(), waiting, "{app}");
    }
}
