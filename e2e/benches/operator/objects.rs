//! Windows nodes, pods and Deployments, each as large as real ones are.

use crate::Result;
use futures::TryStreamExt;
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use winpool_core::api::WindowsPool;
use winpool_core::plan::pools::pool::{Policy, Pool, PoolEntry};
use winpool_e2e::nodes::samples::Sample;
use winpool_e2e::nodes::simulated::SimulatedNode;

pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const NODES: &str = "/api/v1/nodes";

/// The number of an object, its node and its Deployment are three different ones.
pub const SAMPLE: usize = 654_321;

const TIME: &str = "2026-01-01T00:00:00Z";

/// The label selector with which winpool watches nodes.
pub const WINDOWS: &str = "kubernetes.io/os=windows";

const PODS_PER_NODE: usize = 100;
const PODS_PER_DEPLOYMENT: usize = 5;

/// Requests in parallel while nodes are created or reset. That is more than winpool sends.
pub const PARALLEL: usize = 32;

/// The policy of a pool with this spec whose RuntimeClasses exist and whose taints are recorded.
pub fn policy(spec: &str) -> Result<Policy> {
    let pool = Pool::read(&WindowsPool::new("default", serde_json::from_str(spec)?))?;
    Ok(Policy::new([PoolEntry { pool: Arc::new(pool), ready: true }], [].into()))
}

/// Calls `work` for each item, so many at a time.
pub async fn each<T, F: Future<Output = Result<()>>>(
    parallel: usize,
    items: impl IntoIterator<Item = T>,
    work: impl FnMut(T) -> F,
) -> Result<()> {
    futures::stream::iter(items.into_iter().map(Ok)).try_for_each_concurrent(parallel, work).await
}

/// Creates the objects with these numbers.
pub async fn create(
    client: &Client,
    path: &str,
    template: &Value,
    numbers: impl IntoIterator<Item = usize>,
) -> Result<()> {
    let template = &template.to_string();
    each(PARALLEL, numbers, async |number| {
        let request = http::Request::post(path).body(numbered(template, number).into_bytes())?;
        client.request_text(request).await?;
        Ok(())
    })
    .await
}

/// The placeholders in templates: the numbers of an object, of its node and of its Deployment.
const PARTS: [(&str, usize); 3] = [("@NUMBER@", 1), ("@NODE@", PODS_PER_NODE), ("@DEPLOYMENT@", PODS_PER_DEPLOYMENT)];

pub fn numbered(template: &str, number: usize) -> String {
    PARTS.iter().fold(template.to_owned(), |text, (part, size)| text.replace(part, &format!("{:06}", number / size)))
}

pub fn node_name(number: usize) -> String {
    numbered("aksnpw-@NUMBER@", number)
}

/// The template of a node on AKS with 20 images, which make up most of its size.
pub fn node(taints: &Value) -> Value {
    let node = SimulatedNode::sample(Sample::S1).name("aksnpw-@NUMBER@").kubelet("v1.36.3").without_kwok();
    let mut node = json!(node.node());
    node["spec"]["taints"] = taints.clone();
    let image = |number: u64| {
        let repository = format!("registry.example.com/team-{number:02}/windows/service-{number:02}");
        let tag = format!("{repository}:10.0.{number}-nanoserver-ltsc2022");
        let digest = format!("{repository}@sha256:{}", (16 + number).to_string().repeat(32));
        json!({"names": [digest, tag, format!("{tag}-amd64")], "sizeBytes": 290_000_000 + number})
    };
    node["status"]["images"] = (0..20).map(image).collect();
    node
}

/// The template of a pod on one of these nodes that tolerates the taint `os=windows`.
pub fn pod() -> Value {
    let replica_set = "web-@DEPLOYMENT@-5d8f7";
    let mut spec = pod_spec();
    spec["nodeName"] = json!("aksnpw-@NODE@");
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{replica_set}-@NUMBER@"), "namespace": "default",
            "labels": {"app": "web", "pod-template-hash": "5d8f7", "app.kubernetes.io/part-of": "shop"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "controller": true,
                "uid": "00000000-0000-4000-8000-000000000000",
            }],
        },
        "spec": spec,
        "status": {
            "phase": "Running", "hostIP": "192.0.2.1", "podIP": "192.0.2.2", "startTime": TIME,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}],
            "containerStatuses": [{
                "name": "web", "image": "registry.example.com/web:ltsc2022", "imageID": "registry.example.com/web@sha256:0",
                "ready": true, "restartCount": 0, "state": {"running": {"startedAt": TIME}},
            }],
        },
    })
}

fn pod_spec() -> Value {
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

/// The template of the only object at this path, which has the number [`SAMPLE`], as the API server sends it.
pub async fn served(client: &Client, path: &str) -> Result<Value> {
    let list = client.request_text(http::Request::get(path).body(Vec::new())?).await?;
    let template = |text: String, (part, size): &(&str, usize)| text.replace(&format!("{:06}", SAMPLE / size), part);
    let mut list: Value = serde_json::from_str(&PARTS.iter().fold(list, template))?;
    Ok(list["items"][0].take())
}
