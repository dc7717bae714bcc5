//! `winpool plan --assume` predicts where the real scheduler and the real DaemonSet controller put pods before, during and
//! after an upgrade of nodes.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool::read::view;
use winpool_analysis::explain::forecast::{WorkloadForecast, forecast_of};
use winpool_analysis::explain::upgrade::{Upgrade, UpgradedWorkload, upgrade};
use winpool_analysis::image::Images;
use winpool_analysis::verdict::PodOutcome;
use winpool_analysis::view::Known;
use winpool_core::api::WindowsPool;
use winpool_core::plan::Now;
use winpool_e2e::harness::objects::{BUILD, label, node_of, scheduling, unschedulable};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{Harness, merge};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::kubelet::Kubelet;
use winpool_e2e::nodes::simulated::SimulatedNode;

const SKU: &str = "kubernetes.azure.com/os-sku";
const NODES: [&str; 3] = ["win-1", "win-2", "win-3"];
/// More than there are nodes.
const REPLICAS: usize = 4;

/// The workloads: their name, kind and pod spec.
fn workloads() -> Vec<(&'static str, &'static str, Value)> {
    let tolerations = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let of_2025 = json!([{"name": "c", "image": "servercore:ltsc2025"}]);
    let selecting = |labels: Value| json!({"nodeSelector": labels, "tolerations": tolerations});
    vec![
        ("web", "Deployment", json!({"runtimeClassName": "windows-2022"})),
        ("any", "Deployment", json!({"runtimeClassName": "any-2022"})),
        ("sku", "Deployment", selecting(json!({"kubernetes.io/os": "windows", SKU: "Windows2022"}))),
        ("erp", "Deployment", selecting(json!({"kubernetes.io/os": "windows"}))),
        ("next", "Deployment", json!({"runtimeClassName": "windows-2025", "containers": of_2025})),
        ("agent", "DaemonSet", selecting(json!({"kubernetes.io/os": "windows", BUILD: "10.0.20348"}))),
        ("exporter", "DaemonSet", selecting(json!({"kubernetes.io/os": "windows"}))),
    ]
}

/// The workload under this name. Each of its pods needs a node of its own.
fn workload_named(name: &str, kind: &str, mut spec: Value) -> Value {
    if kind == "Deployment" {
        let apart = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}]);
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}});
    }
    let mut object = workload(kind, name, spec);
    if kind == "Deployment" {
        object["spec"]["replicas"] = json!(REPLICAS);
    }
    object
}

/// Waits until the controllers have created all pods of this workload and the scheduler has decided on each. Returns the
/// nodes of these pods.
async fn lands_on(harness: &Harness, name: &str, kind: &str) -> BTreeSet<String> {
    let (pods, of_workload) = (harness.pods(), ListParams::default().labels(&format!("app={name}")));
    let decided = async || {
        if kind == "DaemonSet" {
            let set = Api::<DaemonSet>::default_namespaced(harness.client.clone()).get(name).await?;
            let status = set.status.unwrap_or_default();
            let is_made = status.observed_generation == set.metadata.generation
                && status.current_number_scheduled == status.desired_number_scheduled;
            if !is_made {
                return Ok(None);
            }
        }
        let pods = pods.list(&of_workload).await?.items;
        let is_decided = pods.iter().all(|pod| node_of(pod).is_some() || unschedulable(pod).is_some());
        let is_all = kind == "DaemonSet" || pods.len() == REPLICAS;
        Ok((is_all && is_decided).then(|| pods.iter().filter_map(node_of).map(str::to_owned).collect()))
    };
    wait_for(&format!("all pods of {name} are decided"), LIMIT, decided).await.unwrap()
}

/// Creates the workloads again under another name, and returns the nodes on which each lands. A class that does not
/// exist yet gives no pods.
async fn land(
    harness: &Harness,
    moment: &str,
    workloads: Vec<(&'static str, &'static str, Value)>,
) -> Vec<(&'static str, BTreeSet<String>)> {
    let classes = harness.classes().list(&ListParams::default()).await.unwrap();
    let has_class = |spec: &Value| {
        let wanted = spec["runtimeClassName"].as_str();
        wanted.is_none_or(|wanted| classes.iter().any(|class| class.name_any() == wanted))
    };
    let mut landed = Vec::new();
    for (name, kind, spec) in workloads {
        let copy = format!("{name}-{moment}");
        if !has_class(&spec) {
            landed.push((name, BTreeSet::new()));
            continue;
        }
        harness.apply(workload_named(&copy, kind, spec)).await;
        landed.push((name, lands_on(harness, &copy, kind).await));
    }
    landed
}

/// The nodes on which pods run according to the prediction.
fn expected(runs: PodOutcome, old: &[&str], new: &[&str]) -> BTreeSet<String> {
    let nodes: Vec<&str> = match runs {
        PodOutcome::Runs => [old, new].concat(),
        PodOutcome::OldNodesOnly => old.to_vec(),
        PodOutcome::NewNodesOnly => new.to_vec(),
        PodOutcome::NoNode => Vec::new(),
        PodOutcome::MayNotStart | PodOutcome::Unknown => panic!("{runs:?} says nothing that can be compared"),
    };
    nodes.into_iter().map(str::to_owned).collect()
}

fn now() -> Now {
    Now { instant: Instant::now(), time: Timestamp::now() }
}

async fn predict(harness: &Harness) -> Upgrade {
    let view = view::decisions(&harness.client).await.unwrap().view;
    let assumption = "kubernetes.azure.com/agentpool=win:2025".parse().unwrap();
    upgrade(view, &[assumption], &Images::default(), now()).unwrap()
}

fn of<'u>(predicted: &'u Upgrade, name: &str) -> &'u UpgradedWorkload {
    let mut workloads = predicted.workloads.iter();
    workloads.find(|workload| workload.object.name == name).unwrap_or_else(|| panic!("{name}: {:#}", json!(predicted)))
}

/// Upgrades a node in place: its kubelet reports the new Windows, and the cloud changes its label.
async fn upgrade_node(harness: &Harness, kubelet: &Kubelet) {
    kubelet.upgrade_in_place("10.0.26100.4061").await.unwrap();
    harness.edit_node(kubelet.name(), json!({"metadata": {"labels": {SKU: "Windows2025"}}})).await;
    let build = |node: &Node| label(node, BUILD) == Some("10.0.26100");
    harness.node_until(kubelet.name(), "has the new build", build).await;
}

/// Waits until the pool has seen this number of upgraded nodes, and is ready.
async fn settled(harness: &Harness, upgraded: i64) {
    let has_seen = |pool: &WindowsPool| {
        let builds = pool.status.iter().flat_map(|status| &status.builds);
        builds.filter(|build| build.build == "10.0.26100").map(|build| build.nodes).sum::<i64>() == upgraded
    };
    harness.pool_until("default", "has seen the upgraded nodes", has_seen).await;
    harness.class_until("windows-2025", "is there", |_| true).await;
}

#[tokio::test]
async fn an_upgrade_goes_as_plan_predicts() {
    let node = |name| {
        let node = SimulatedNode::server_2022(name).container_runtime("containerd://2.0.4");
        node.label(SKU, "Windows2022").label("kubernetes.azure.com/agentpool", "win")
    };
    let harness = Harness::with_nodes([SimulatedNode::linux()]).await;
    let mut kubelets = Vec::new();
    for name in NODES {
        kubelets.push(harness.join_node(node(name)).await);
        harness.cluster().node_ready(name).await.unwrap();
    }
    let _operator = harness.operator().await;
    let classes = json!([{"name": "any-2022", "version": "2022", "hostMatch": "Compatible"}]);
    harness.apply_until_ready(json!({"runtimeClasses": classes})).await;
    for (name, kind, spec) in workloads() {
        harness.apply(workload_named(name, kind, spec)).await;
        if name != "next" {
            assert_eq!(lands_on(&harness, name, kind).await, expected(PodOutcome::Runs, &NODES, &[]), "{name}");
        }
    }
    let all_run = async || {
        let pods = harness.pods().list(&ListParams::default()).await?.items;
        let runs = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        Ok(pods.iter().filter(|pod| node_of(pod).is_some()).all(runs).then_some(()))
    };
    wait_for("the pods run", LIMIT, all_run).await.unwrap();
    let predicted = predict(&harness).await;
    println!("{:#}", json!(predicted));
    // `web`, `sku` and `agent` select labels of 2022, each with a pod on every node.
    assert_eq!(predicted.ended_pods.as_ref().unwrap().total, 9, "{:#}", json!(predicted));

    // One node after the other.
    let (mut compared, moments) = (0, [("now", 0), ("rolling", 1), ("after", 3)]);
    for (moment, upgraded) in moments {
        for kubelet in kubelets.iter().take(upgraded) {
            upgrade_node(&harness, kubelet).await;
        }
        if upgraded > 0 {
            settled(&harness, i64::try_from(upgraded).unwrap()).await;
        }
        let (new, old) = NODES.split_at(upgraded);
        for (name, landed) in land(&harness, moment, workloads()).await {
            let workload = of(&predicted, name);
            let runs = match moment {
                "now" => workload.now,
                "rolling" => workload.rolling,
                _ => workload.after,
            };
            assert_eq!(landed, expected(runs, old, new), "{moment}: {name} {:#}", json!(workload));
            compared += 1;
        }
    }
    println!("{compared} workloads landed as predicted");
    changes_help(&harness, &predicted).await;
}

/// Makes the predicted changes, after which the workloads run on the upgraded nodes.
async fn changes_help(harness: &Harness, predicted: &Upgrade) {
    let remedy = |name: &str| of(predicted, name).remedy.as_ref().unwrap();
    let patch = |name: &str| remedy(name).merge_patch("/spec/template").unwrap();
    merge(&harness.pools(), "default", remedy("web").merge_patch("").unwrap()).await;
    let by_label =
        |class: &RuntimeClass| scheduling(class)["nodeSelector"].get("runs.winpool.dev/10.0.20348").is_some();
    harness.class_until("windows-2022", "selects the label", by_label).await;
    let deployments: Api<Deployment> = Api::default_namespaced(harness.client.clone());
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    for (name, kind, spec) in workloads() {
        let copy = format!("{name}-changed");
        match name {
            "web" => harness.apply(workload_named(&copy, kind, spec)).await,
            "sku" | "agent" => {
                let mut changed = workload_named(&copy, kind, spec);
                json_patch::merge(&mut changed, &patch(name));
                harness.apply(changed).await;
            }
            _ => continue,
        }
        assert_eq!(lands_on(harness, &copy, kind).await, expected(PodOutcome::Runs, &[], &NODES), "{copy}");
    }
    // The API server takes the patches as they are.
    merge(&deployments, "sku", patch("sku")).await;
    merge(&sets, "agent", patch("agent")).await;
}

#[tokio::test]
async fn new_pods_go_where_plan_says() {
    let harness = Harness::with_nodes([SimulatedNode::linux()]).await;
    for name in ["win-1", "win-2"] {
        harness.join_node(SimulatedNode::server_2022(name)).await;
        harness.cluster().node_ready(name).await.unwrap();
    }
    let spec = json!({"taintPolicy": "TaintOnly"});
    harness.apply_pool(spec.clone()).await;
    let windows = json!({"kubernetes.io/os": "windows"});
    let tolerations = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    let linux = json!({"containers": [{"name": "c", "image": "nginx"}]});
    let workloads = || {
        vec![
            ("plain", "Deployment", linux.clone()),
            ("everywhere", "DaemonSet", linux.clone()),
            ("windows", "Deployment", json!({"nodeSelector": windows})),
            ("agent", "DaemonSet", json!({"nodeSelector": windows})),
            ("tolerant", "Deployment", json!({"nodeSelector": windows, "tolerations": tolerations})),
            ("class", "Deployment", json!({"runtimeClassName": "windows-2022"})),
        ]
    };
    for (name, kind, spec) in workloads() {
        harness.apply(workload_named(name, kind, spec)).await;
    }
    let before = land(&harness, "before", workloads()).await;
    let mut view = view::decisions(&harness.client).await.unwrap().view;
    // Simulated kubelets start every image, so a pod that has started on Windows proves nothing.
    view.pods = Known::Complete(Vec::new());
    let predicted = forecast_of(view, &Images::default(), now()).unwrap().forecast.workloads;
    let of = |name: &str| predicted.iter().find(|workload| workload.object.name == name);
    let after = |name| of(name).map(|WorkloadForecast { now, after, nodes_after, .. }| (*now, *after, *nodes_after));
    assert_eq!(after("plain"), Some((PodOutcome::MayNotStart, PodOutcome::Runs, 1)), "{predicted:#?}");
    assert_eq!(
        (after("tolerant"), after("windows").map(|it| it.1)),
        (None, Some(PodOutcome::NoNode)),
        "{predicted:#?}"
    );

    let _operator = harness.operator().await;
    harness.apply_until_ready(spec).await;
    for ((name, before), (_, landed)) in before.into_iter().zip(land(&harness, "after", workloads()).await) {
        let expected = after(name).map_or(before.len(), |(_, _, nodes)| nodes);
        assert_eq!(landed.len(), expected, "{name}: {before:?} {landed:?} {predicted:#?}");
    }
}
