//! Objects of the maximum size: the operator stays within the memory limit of an installation.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ContainerImage, Namespace, Node, NodeRuntimeHandler, Pod, Taint};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use winpool_core::api::{NodeCounts, WindowsPool};
use winpool_e2e::harness::objects::label;
use winpool_e2e::harness::{Harness, POOL};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::manifests;
use winpool_e2e::scene::program::Program;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use crate::program;

const NODES: usize = 100;
const PODS: usize = 100;
/// `limits.memory` in `config/` and in the chart: 128 MiB.
const LIMIT_MB: f64 = 128.0 * 1.048_576;
/// etcd accepts requests up to 1.5 MiB, including the rest of the object.
const TEXT: usize = 1_500_000;
/// A character that is six times as long in JSON.
const CHARACTER: &str = "<";
const TIME: Duration = Duration::from_mins(5);

/// A field of a node that its kubelet may write, with too many entries.
fn too_large(number: usize) -> Node {
    let node = SimulatedNode::server_2022(&name(number)).without_kwok();
    let mut node = node.node();
    let (labels, spec, status) =
        (node.metadata.labels.as_mut().unwrap(), node.spec.as_mut().unwrap(), node.status.as_mut().unwrap());
    let info = status.node_info.as_mut().unwrap();
    let text = |length: usize| CHARACTER.repeat(length);
    match number % 4 {
        0 => status.images = Some(vec![ContainerImage { names: Some(vec![text(TEXT)]), size_bytes: Some(1) }]),
        // Beside them stand their names among the managed fields.
        1 => labels.extend((0..45_000).map(|n| (format!("l{number:03}{n:05}"), String::new()))),
        2 => {
            let taint =
                |n| Taint { key: format!("t{number:03}{n:05}"), effect: "NoSchedule".to_owned(), ..Taint::default() };
            spec.taints = Some((0..50_000).map(taint).collect());
        }
        _ => {
            info.kernel_version = text(TEXT / 4);
            info.container_runtime_version = text(TEXT / 4);
            let handler =
                |n| NodeRuntimeHandler { name: Some(format!("h{n}{}", text(30))), ..NodeRuntimeHandler::default() };
            status.runtime_handlers = Some((0..15_000).map(handler).collect());
        }
    }
    node
}

fn name(number: usize) -> String {
    format!("large-{number:03}")
}

fn kubelet(server: &ApiServer, number: usize) -> Api<Node> {
    Api::all(server.client_as(&format!("system:node:{}", name(number)), &["system:nodes"]).unwrap())
}

/// The API server is slow with such objects, and may exceed its own time limit.
async fn create<K: Clone + Debug + DeserializeOwned + Serialize>(api: &Api<K>, object: &K) {
    let created = async || match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(Some(())),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Some(())),
        Err(kube::Error::Api(status)) if status.code == 504 => Ok(None),
        Err(error) => Err(error.into()),
    };
    wait_for("the API server takes it", TIME, created).await.unwrap();
}

async fn join(server: &ApiServer) {
    stream::iter(0..NODES)
        .for_each_concurrent(2, async |number| {
            create(&kubelet(server, number), &too_large(number)).await;
        })
        .await;
}

/// A user who may create pods in one namespace.
async fn run_pods(client: &Client) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    stream::iter(0..PODS)
        .for_each_concurrent(2, async |number| {
            create(&pods, &large_pod(&format!("large-{number}"))).await;
        })
        .await;
}

fn large_pod(name: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeName": "honest", "os": {"name": "windows"}, "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "c", "image": "servercore", "env": [{"name": "A", "value": CHARACTER.repeat(TEXT)}],
            }],
        },
    });
    serde_json::from_value(pod).unwrap()
}

/// A pod for Windows that may not run where this label has one of these values.
pub fn pod_without(key: &str, values: &[String], name: &str, tolerations: &Value) -> Pod {
    let terms = json!([{"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}]}]);
    let spec = json!({
        "containers": [{"name": "c", "image": "servercore"}],
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}},
        "tolerations": tolerations,
    });
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

/// Changes the pod again and again, each time with an event of 9 MB.
async fn change_always(pods: Api<Pod>, name: &str) {
    for round in 0.. {
        let label = json!({"metadata": {"labels": {"round": format!("{round}")}}});
        // The API server has much to do with it, and may say so.
        let _ = pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(label)).await;
    }
}

/// Nodes that change while they are about to be written, so that they are read again.
async fn change(server: &ApiServer) {
    stream::iter((0..NODES).step_by(4))
        .for_each_concurrent(8, async |number| {
            let nodes = kubelet(server, number);
            for round in 0..4 {
                let label = json!({"metadata": {"labels": {POOL: format!("round-{round}")}}});
                // The API server has much to do with them, and may say so.
                let _ = nodes.patch_metadata(&name(number), &PatchParams::default(), &Patch::Merge(label)).await;
            }
        })
        .await;
}

/// Waits until all nodes are counted and nothing is pending.
async fn judged(harness: &Harness, nodes: usize) -> NodeCounts {
    let pools = harness.pools();
    let judged = async || {
        let counts = pools.get("default").await?.status.unwrap_or_default().nodes;
        let all = i64::try_from(nodes) == Ok(counts.selected) && counts.pending == 0;
        Ok(all.then_some(counts))
    };
    wait_for("all nodes are judged", TIME, judged).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make chaos-long"]
async fn a_hundred_objects_of_maximum_size_fit_into_the_memory_limit() {
    let harness = Harness::unguarded().await;
    let (server, client) = (&harness.server, &harness.client);
    SimulatedNode::server_2022("honest").join(client).await.unwrap();
    let program = program().await;
    let operator = Program::start(&program, server).unwrap();
    operator.leads().await.unwrap();
    let idle = operator.usage().unwrap().peak_mb;
    operator.stop().await.unwrap();

    join(server).await;
    run_pods(client).await;
    let operator = Program::start(&program, server).unwrap();
    let ready = operator.answers("/readyz").await.unwrap();
    let listed = operator.usage().unwrap().peak_mb;
    harness.apply_pool(json!({})).await;
    let counts = judged(&harness, NODES + 1).await;
    let written = operator.usage().unwrap().peak_mb;
    let honest = harness.node("honest").await;
    let classes = harness.classes().list(&ListParams::default()).await.unwrap().items;
    change(server).await;
    // Events come in order: once this one is marked, those of the others have been seen.
    SimulatedNode::server_2022("late").join(client).await.unwrap();
    let nodes = harness.nodes();
    let marked = async || Ok(Some(nodes.get("late").await?).filter(|node| label(node, POOL).is_some()));
    wait_for("the last node is marked", TIME, marked).await.unwrap();
    judged(&harness, NODES + 2).await;
    let usage = operator.usage().unwrap();
    println!(
        "hostile: {NODES} nodes, {PODS} pods; peak {idle:.1} MB idle, {listed:.1} MB after the lists ({ready:.1?} until \
         ready), {written:.1} MB after the writes, {:.1} MB in the end, {:.1} MB resident; {counts:?}",
        usage.peak_mb, usage.resident_mb
    );
    assert_eq!(label(&honest, POOL), Some("default"));
    assert_eq!(classes.len(), 1, "{classes:#?}");
    assert!(usage.peak_mb < LIMIT_MB, "{:.1} MB", usage.peak_mb);
    operator.stop().await.unwrap();
}

/// Namespaces that choose a class, each with annotations that are almost as large as the API server allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make chaos-long"]
async fn namespaces_with_large_annotations_fit_into_the_memory_limit() {
    const NAMESPACES: usize = 600;
    needs!(MUTATING_ADMISSION_POLICY);
    let harness = Harness::unguarded().await;
    let namespaces: Api<Namespace> = Api::all(harness.client.clone());
    stream::iter(0..NAMESPACES)
        .for_each_concurrent(4, async |number| {
            let metadata = json!({
                "name": format!("large-{number}"), "labels": {"winpool.dev/runtime-class": "windows-2022"},
                "annotations": {"large": CHARACTER.repeat(250_000)},
            });
            create(&namespaces, &serde_json::from_value(json!({"metadata": metadata})).unwrap()).await;
        })
        .await;
    manifests::apply(&harness.client, &manifests::component("assign-class").unwrap()).await.unwrap();
    harness.join("win").await;
    let operator = Program::start(&program().await, &harness.server).unwrap();
    operator.leads().await.unwrap();
    harness.apply_until_ready(json!({})).await;
    let usage = operator.usage().unwrap();
    println!("hostile: {NAMESPACES} namespaces; peak {:.1} MB", usage.peak_mb);
    assert!(usage.peak_mb < LIMIT_MB, "{:.1} MB", usage.peak_mb);
    operator.stop().await.unwrap();
}

/// 1,200 pods of one namespace, each with 14 KiB of node names, are more than winpool stores. Another pod changes all the time, and is
/// as large as etcd permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_fills_placements_and_watches_is_named_and_takes_nothing_from_others() {
    let harness = Harness::unguarded().await;
    harness.join("win").await;
    harness.create::<Namespace>(json!({"metadata": {"name": "flood"}})).await;
    let operator = Program::start(&program().await, &harness.server).unwrap();
    operator.leads().await.unwrap();
    harness.apply_until_ready(json!({})).await;
    let excluding = |name: &str, nodes: usize, tolerations: &Value| -> Pod {
        let values: Vec<_> = (0..nodes).map(|number| format!("{name}-{number:050}")).collect();
        pod_without("kubernetes.io/hostname", &values, name, tolerations)
    };
    let flood: Api<Pod> = Api::namespaced(harness.client.clone(), "flood");
    // They tolerate everything, so that no patch of them takes time.
    let pods = stream::iter(0..1200)
        .map(|number| excluding(&format!("flood-{number}"), 240, &json!([{"operator": "Exists"}])));
    pods.for_each_concurrent(16, async |pod| create(&flood, &pod).await).await;
    let names_it = |pool: &WindowsPool| {
        let mut all = pool.status.iter().flat_map(|status| &status.problems);
        all.any(|problem| problem.reason == "PodsNotSeen" && problem.object.to_string() == "Namespace flood")
    };
    let is_ready = |pool: &WindowsPool| {
        let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    harness.pool_until("default", "names the namespace", |pool| names_it(pool) && !is_ready(pool)).await;
    create(&flood, &large_pod("large")).await;
    let changes = tokio::spawn(change_always(flood.clone(), "large"));
    // The node may be full.
    create(&harness.pods(), &excluding("web", 70, &json!([]))).await;
    let tolerates = async || {
        let spec = harness.pods().get("web").await?.spec.unwrap_or_default();
        Ok(spec.tolerations.iter().flatten().any(|own| own.key.as_deref() == Some("os")).then_some(()))
    };
    wait_for("a pod of another namespace gets it", LIMIT, tolerates).await.unwrap();
    changes.abort();
    flood.delete("large", &DeleteParams::default().grace_period(0)).await.unwrap();
    let now = DeleteParams::default().grace_period(0);
    stream::iter(0..1200)
        .for_each_concurrent(16, async |number| {
            flood.delete(&format!("flood-{number}"), &now).await.unwrap();
        })
        .await;
    harness.pool_until("default", "is Ready again", |pool| !names_it(pool) && is_ready(pool)).await;
    let usage = operator.usage().unwrap();
    println!("hostile: a flooding namespace; peak {:.1} MB", usage.peak_mb);
    assert!(usage.peak_mb < LIMIT_MB, "{:.1} MB", usage.peak_mb);
    operator.stop().await.unwrap();
}

/// Thousands of Linux nodes, and of pods with long placements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make chaos-long"]
async fn many_linux_nodes_and_a_namespace_that_fills_the_placements_fit_into_the_memory_limit() {
    const LINUX: usize = 5000;
    let harness = Harness::unguarded().await;
    harness.join("win").await;
    let program = program().await;
    let usage = async || {
        let operator = Program::start(&program, &harness.server).unwrap();
        operator.leads().await.unwrap();
        harness.apply_until_ready(json!({})).await;
        let usage = operator.usage().unwrap();
        operator.stop().await.unwrap();
        usage
    };
    let without = usage().await;
    let nodes = harness.nodes();
    stream::iter(0..LINUX)
        .for_each_concurrent(16, async |number| {
            let node = SimulatedNode::linux().name(&format!("linux-{number:04}")).label("agentpool", "linux");
            create(&nodes, &node.without_kwok().node()).await;
        })
        .await;
    let with_nodes = usage().await;
    let pods = harness.pods();
    stream::iter(0..8300)
        .for_each_concurrent(16, async |number| {
            let values: Vec<_> = (0..if number % 8 == 0 { 150 } else { 1 }).map(|n| format!("{n:060}")).collect();
            let (key, name) = (format!("key-{number}"), format!("flood-{number}"));
            create(&pods, &pod_without(&key, &values, &name, &json!([{"operator": "Exists"}]))).await;
        })
        .await;
    let operator = Program::start(&program, &harness.server).unwrap();
    operator.leads().await.unwrap();
    let names_it =
        |pool: &WindowsPool| pool.status.iter().flat_map(|status| &status.problems).any(|p| p.reason == "PodsNotSeen");
    harness.pool_until("default", "names the namespace", names_it).await;
    let full = operator.usage().unwrap();
    operator.stop().await.unwrap();
    println!(
        "hostile: {:.1} MB resident, {:.1} MB beside {LINUX} Linux nodes, {:.1} MB with full placements; peaks {:.1}, {:.1}, {:.1} MB",
        without.resident_mb,
        with_nodes.resident_mb,
        full.resident_mb,
        without.peak_mb,
        with_nodes.peak_mb,
        full.peak_mb
    );
    assert!(with_nodes.resident_mb < without.resident_mb + 5.0);
    assert!(full.peak_mb < LIMIT_MB, "{:.1} MB", full.peak_mb);
}
