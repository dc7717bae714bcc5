//! Windows nodes by the thousand, each as large as real ones are.

use crate::Result;
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerImage, Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use winpool_core::api::names;
use winpool_e2e::SimulatedNode;

/// What the nodes' names begin with.
pub const NAME: &str = "aksnpw-";
/// Stands in templates where an object's number comes.
const NUMBER: &str = "@NUMBER@";
/// Stands in templates where the number of a pod's node comes.
const NODE: &str = "@NODE@";
/// Stands in templates where the number of a pod's Deployment comes.
const DEPLOYMENT: &str = "@DEPLOYMENT@";

/// So many pods run on each node.
pub const PODS_OF_A_NODE: usize = 100;
/// Each Deployment has so many pods.
pub const PODS_OF_A_DEPLOYMENT: usize = 5;

/// Requests at a time while a stage is set. That is more than whoever is measured sends.
const AT_A_TIME: usize = 32;

/// The name of a node.
pub fn name(number: usize) -> String {
    format!("{NAME}{number:06}")
}

/// A fleet of equal Windows nodes.
#[derive(Clone)]
pub struct Fleet {
    nodes: Api<Node>,
    /// A taint that all nodes are born with, as (key, value).
    taint: Option<(&'static str, &'static str)>,
}

impl Fleet {
    /// No node yet.
    pub fn new(client: Client, taint: Option<(&'static str, &'static str)>) -> Self {
        Self { nodes: Api::all(client), taint }
    }

    /// These nodes join.
    pub async fn join(&self, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
        each(numbers, |number| self.join_one(number)).await
    }

    /// This node joins.
    pub async fn join_one(&self, number: usize) -> Result<()> {
        self.nodes.create(&PostParams::default(), &machine(&name(number), self.taint)).await?;
        Ok(())
    }

    /// Takes off these nodes what was written on them.
    pub async fn reset(&self, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
        // The API server puts this one on every new node.
        let mut taints = vec![json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})];
        taints.extend(self.taint.map(|(key, value)| json!({"key": key, "value": value, "effect": "NoSchedule"})));
        let patch = Patch::Merge(json!({
            "metadata": {"labels": {names::POOL: null}, "annotations": {names::APPLIED: null}},
            "spec": {"taints": taints},
        }));
        each(numbers, |number| {
            let patch = &patch;
            async move {
                self.nodes.patch_metadata(&name(number), &PatchParams::default(), patch).await?;
                Ok(())
            }
        })
        .await
    }

    /// These nodes leave.
    pub async fn leave(&self, numbers: impl IntoIterator<Item = usize>) -> Result<()> {
        each(numbers, |number| async move {
            self.nodes.delete(&name(number), &DeleteParams::default()).await?;
            Ok(())
        })
        .await
    }

    /// So many status reports, of each node in turn: new heartbeat times. No more at a time than 16, so that the machine
    /// is busy but not choked.
    pub async fn heartbeats(&self, count: usize, nodes: usize) -> Result<()> {
        let start = Timestamp::now().as_second();
        futures::stream::iter((0..count).map(Ok))
            .try_for_each_concurrent(16, |beat| async move {
                // Times are kept in whole seconds, and a report that changes nothing is no event.
                let time = Timestamp::from_second(start + i64::try_from(beat)?)?;
                let conditions = json!([{"type": "Ready", "lastHeartbeatTime": time}]);
                let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
                self.nodes.patch_status(&name(beat % nodes), &PatchParams::default(), &patch).await?;
                Ok(())
            })
            .await
    }

    /// How many bytes of JSON a node is.
    pub async fn bytes(client: &Client, number: usize) -> Result<usize> {
        let request = http::Request::get(format!("/api/v1/nodes/{}", name(number))).body(Vec::new())?;
        Ok(client.request_text(request).await?.len())
    }
}

/// Does something for each of these numbers, several at a time.
pub async fn each<F: Future<Output = Result<()>>>(
    numbers: impl IntoIterator<Item = usize>,
    work: impl Fn(usize) -> F,
) -> Result<()> {
    futures::stream::iter(numbers.into_iter().map(Ok)).try_for_each_concurrent(AT_A_TIME, work).await
}

/// A machine in the manner of AKS, with twenty images: they are most of a node's size.
fn machine(name: &str, taint: Option<(&str, &str)>) -> Node {
    let mut node = SimulatedNode::windows("10.0.20348.2655").name(name).without_kwok();
    for (key, value) in LABELS {
        node = node.label(key, value);
    }
    if let Some((key, value)) = taint {
        node = node.taint(key, value, "NoSchedule");
    }
    let mut node = node.node();
    if let Some(status) = &mut node.status {
        status.images = Some((0..20).map(image).collect());
    }
    node
}

fn image(number: u64) -> ContainerImage {
    let digest = format!("{number:02x}").repeat(32);
    let repository = format!("registry.example.com/team-{number:02}/windows/service-{number:02}");
    let names = vec![
        format!("{repository}@sha256:{digest}"),
        format!("{repository}:10.0.{number}-nanoserver-ltsc2022"),
        format!("{repository}:10.0.{number}-nanoserver-ltsc2022-amd64"),
    ];
    ContainerImage { names: Some(names), size_bytes: Some(i64::try_from(290_000_000 + number).unwrap_or_default()) }
}

const LABELS: [(&str, &str); 14] = [
    ("agentpool", "npw22"),
    ("kubernetes.azure.com/agentpool", "npw22"),
    ("kubernetes.azure.com/cluster", "MC_rg-aks-japaneast"),
    ("kubernetes.azure.com/mode", "user"),
    ("kubernetes.azure.com/node-image-version", "AKSWindows-2022-containerd-20348.2655.240814"),
    ("kubernetes.azure.com/nodepool-type", "VirtualMachineScaleSets"),
    ("kubernetes.azure.com/os-sku", "Windows2022"),
    ("kubernetes.azure.com/role", "agent"),
    ("kubernetes.io/role", "agent"),
    ("node-role.kubernetes.io/agent", ""),
    ("node.kubernetes.io/instance-type", "Standard_D32ads_v5"),
    ("topology.disk.csi.azure.com/zone", ""),
    ("topology.kubernetes.io/region", "japaneast"),
    ("topology.kubernetes.io/zone", "0"),
];

/// A converged node as an API server sends it, to be [`numbered`].
pub fn served_node() -> Result<String> {
    let mut node = serde_json::to_value(machine(&format!("{NAME}{NUMBER}"), None))?;
    serve(&mut node, "kubelet", &["f:metadata", "f:status"]);
    node["metadata"]["labels"][names::POOL] = json!("default");
    node["metadata"]["annotations"] = json!({
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
        names::APPLIED: r#"{"pool":"default","taints":["os=windows:NoSchedule"]}"#,
    });
    node["spec"]["taints"] = json!([{"key": "os", "value": "windows", "effect": "NoSchedule"}]);
    Ok(node.to_string())
}

/// The object of this number, made from a template.
pub fn numbered(template: &str, number: usize) -> String {
    let parts = [(NUMBER, number), (NODE, number / PODS_OF_A_NODE), (DEPLOYMENT, number / PODS_OF_A_DEPLOYMENT)];
    parts.iter().fold(template.to_owned(), |text, (part, number)| text.replace(part, &format!("{number:06}")))
}

/// A pod of a Deployment on a Windows node, as an API server sends it, to be [`numbered`].
pub fn served_pod() -> Result<String> {
    let mut pod = serde_json::to_value(pod_of(NUMBER, NODE, DEPLOYMENT))?;
    serve(&mut pod, "kube-controller-manager", &["f:metadata", "f:spec"]);
    pod["status"] = json!({
        "phase": "Running", "hostIP": "192.0.2.1", "podIP": "192.0.2.2", "startTime": Timestamp::now(),
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": Timestamp::now()}],
        "containerStatuses": [{
            "name": "web", "image": "registry.example.com/web:ltsc2022", "imageID": "registry.example.com/web@sha256:0",
            "ready": true, "restartCount": 0, "state": {"running": {"startedAt": Timestamp::now()}},
        }],
    });
    Ok(pod.to_string())
}

/// What an API server adds to what was sent: ids, times, and who manages which field.
fn serve(object: &mut Value, manager: &str, owned: &[&str]) {
    let fields: Value = owned.iter().map(|part| ((*part).to_owned(), fields_of(&object[&part[2..]]))).collect();
    object["metadata"]["uid"] = json!(format!("4d4fd3f2-9b5c-4b53-8b3c-7a24d1{NUMBER}"));
    object["metadata"]["resourceVersion"] = json!(format!("91{NUMBER}"));
    object["metadata"]["creationTimestamp"] = json!(Timestamp::now());
    object["metadata"]["managedFields"] = json!([{
        "manager": manager, "operation": "Update", "apiVersion": "v1", "time": Timestamp::now(),
        "fieldsType": "FieldsV1", "fieldsV1": fields,
    }]);
}

fn fields_of(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().map(|(key, value)| (format!("f:{key}"), fields_of(value))).collect(),
        _ => json!({}),
    }
}

/// A Deployment of such pods as an API server sends it, to be [`numbered`].
pub fn served_deployment() -> Result<String> {
    let mut deployment = serde_json::to_value(deployment_of(NUMBER))?;
    serve(&mut deployment, "kube-controller-manager", &["f:metadata", "f:spec"]);
    Ok(deployment.to_string())
}

/// A pod on one of the nodes that tolerates their taint.
pub fn pod(number: usize) -> Pod {
    let [node, deployment] = [PODS_OF_A_NODE, PODS_OF_A_DEPLOYMENT].map(|size| format!("{:06}", number / size));
    pod_of(&format!("{number:06}"), &node, &deployment)
}

/// The Deployment of such pods.
pub fn deployment(number: usize) -> Deployment {
    deployment_of(&format!("{number:06}"))
}

fn pod_of(number: &str, node: &str, deployment: &str) -> Pod {
    let mut spec = spec();
    spec["nodeName"] = json!(format!("{NAME}{node}"));
    let pod = json!({
        "metadata": {
            "name": format!("web-{deployment}-5d8f7-{number}"), "namespace": "default",
            "labels": {"app": "web", "pod-template-hash": "5d8f7", "app.kubernetes.io/part-of": "shop"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{deployment}-5d8f7"), "controller": true,
                "uid": "00000000-0000-4000-8000-000000000000",
            }],
        },
        "spec": spec,
    });
    serde_json::from_value(pod).unwrap_or_default()
}

fn deployment_of(number: &str) -> Deployment {
    let labels = json!({"app": format!("web-{number}"), "app.kubernetes.io/part-of": "shop"});
    let deployment = json!({
        "metadata": {"name": format!("web-{number}"), "namespace": "default", "labels": labels},
        "spec": {
            "replicas": PODS_OF_A_DEPLOYMENT, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec()},
        },
    });
    serde_json::from_value(deployment).unwrap_or_default()
}

fn spec() -> Value {
    json!({
        "os": {"name": "windows"},
        "nodeSelector": {"kubernetes.io/os": "windows"},
        "tolerations": [
            {"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "containers": [{
            "name": "web", "image": "registry.example.com/web:ltsc2022",
            "env": (0..12).map(|n| json!({"name": format!("SETTING_{n}"), "value": "x".repeat(80)})).collect::<Vec<_>>(),
            "resources": {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}},
            "ports": [{"containerPort": 8080}],
        }],
    })
}
