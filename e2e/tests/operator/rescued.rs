//! Pods of workloads of many kinds, on a cluster with a real scheduler and real controllers. Each case has a pool and a node
//! of its own. Their pods get the toleration.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::objects::{has_taint, node_of};
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::harness::{Harness, OS_WINDOWS, merge};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::definitions::define;

/// The time within which every pod has a node.
const RESCUE: Duration = Duration::from_secs(10);

/// The cases, each with the workload or pod that status names.
const RESCUED: [(&str, &str); 11] = [
    ("affinity", "Deployment default/affinity"),
    ("deployment", "Deployment default/deployment"),
    ("ghost-term", "Deployment default/ghost-term"),
    ("controller-lost-it", "ReplicationController default/controller-lost-it"),
    ("bare-pod", "Pod default/bare-pod"),
    ("runner", "Pod default/runner"),
    ("workflow", "Workflow default/workflow"),
    ("job-of-workflow", "Job default/run-1"),
    ("volcano", "Job.batch.volcano.sh default/volcano"),
    ("cron-edited", "CronJob default/cron-edited"),
    ("set-edited", "StatefulSet default/set-edited"),
];

pub fn toleration() -> Value {
    json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}])
}

/// A pod for the node of this case.
pub fn pod(case: &str) -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows", "case": case}})
}

pub fn tolerant(case: &str) -> Value {
    with(pod(case), json!({"tolerations": toleration()}))
}

pub fn with(mut object: Value, changes: impl Into<Value>) -> Value {
    json_patch::merge(&mut object, &changes.into());
    object
}

pub fn spec(changes: Value) -> Value {
    Value::from_iter([("spec", changes)])
}

pub fn node(case: &str) -> SimulatedNode {
    SimulatedNode::server_2022(&format!("win-{case}")).label("pool", case).label("case", case)
}

/// Waits until as many pods of this name are bound, or unschedulable, and returns them.
pub async fn bound(harness: &Harness, name: &str, count: usize) -> Vec<Pod> {
    let of_name = ListParams::default().labels(&format!("app={name}"));
    let found = async || {
        let pods = harness.pods().list(&of_name).await?.items;
        Ok((pods.len() == count && pods.iter().all(|pod| node_of(pod).is_some())).then_some(pods))
    };
    wait_for(&format!("{count} pods of {name} are bound"), LIMIT, found).await.unwrap()
}

pub fn owned_by(version: &str, kind: &str, object: &impl ResourceExt, controller: bool) -> Value {
    let owner = json!({
        "apiVersion": version, "kind": kind, "name": object.name_any(), "uid": object.uid(), "controller": controller,
    });
    json!({"metadata": {"ownerReferences": [owner]}})
}

fn workflows(harness: &Harness) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Workflow"));
    Api::default_namespaced_with(harness.client.clone(), &kind)
}

/// Custom resources. The test is their controller.
async fn workflows_exist(harness: &Harness) {
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "workflows.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "workflows", "kind": "Workflow"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }))
    .unwrap();
    define(&harness.client, &definition).await.unwrap();
    for name in ["runner", "workflow", "job-of-workflow"] {
        harness.apply(json!({"apiVersion": "example.com/v1", "kind": "Workflow", "metadata": {"name": name}})).await;
    }
}

/// What exists before the check. Nothing of it is for Windows and does not tolerate the taint.
async fn prepare(harness: &Harness) {
    workflows_exist(harness).await;
    harness.apply(workload("CronJob", "cron-edited", tolerant("cron-edited"))).await;
    harness.apply(workload("StatefulSet", "set-edited", tolerant("set-edited"))).await;
    bound(harness, "set-edited", 1).await;
}

/// What makes the workload of this case create a pod that waits.
async fn begin(harness: &Harness, case: &str) {
    let containers = json!({"containers": [{"name": "c", "image": "servercore"}]});
    let bare = json!({"metadata": {"name": case}, "spec": with(pod(case), containers)});
    let workflow = async || workflows(harness).get(case).await.unwrap();
    match case {
        "bare-pod" => drop(harness.create_pod(bare).await),
        "runner" | "workflow" => {
            let owner = owned_by("example.com/v1", "Workflow", &workflow().await, case == "workflow");
            harness.create_pod(with(bare, owner)).await;
        }
        "affinity" | "ghost-term" => {
            let is_in = |key: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}, {"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]});
            let mut terms = vec![is_in("case", case)];
            terms.extend((case == "ghost-term").then(|| is_in("team", "ghost")));
            let required = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
            harness.apply(with(workload("Deployment", case, required), spec(json!({"replicas": 1})))).await;
        }
        "deployment" => {
            harness.apply(with(workload("Deployment", case, pod(case)), spec(json!({"replicas": 3})))).await;
        }
        "controller-lost-it" => {
            harness.apply(with(workload("ReplicationController", case, pod(case)), spec(json!({"replicas": 1})))).await;
        }
        "volcano" => {
            let owner = json!({
                "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": case, "uid": case, "controller": true,
            });
            harness.create_pod(with(bare, json!({"metadata": {"ownerReferences": [owner]}}))).await;
        }
        "job-of-workflow" => {
            let owner = owned_by("example.com/v1", "Workflow", &workflow().await, true);
            harness.apply(with(workload("Job", "run-1", pod(case)), owner)).await;
        }
        "cron-edited" => {
            harness.apply(workload("CronJob", case, pod(case))).await;
            let cron_job = Api::<CronJob>::default_namespaced(harness.client.clone()).get(case).await.unwrap();
            let owner = owned_by("batch/v1", "CronJob", &cron_job, true);
            harness.apply(with(workload("Job", "cron-edited-29812345", pod(case)), owner)).await;
        }
        "set-edited" => {
            let sets: Api<StatefulSet> = Api::default_namespaced(harness.client.clone());
            let template = spec(json!({"template": spec(json!({"tolerations": null}))}));
            drop(merge(&sets, case, template).await);
        }
        _ => panic!("nothing creates {case}"),
    }
}

/// True if all pods for the node of this case are bound, or have been.
fn has_node(pods: &[Pod], case: &str) -> bool {
    let selects = |pod: &&Pod| json!(pod.spec).to_string().contains(&format!("\"{case}\""));
    let mut of_case = pods.iter().filter(selects).peekable();
    of_case.peek().is_some() && of_case.all(|pod| node_of(pod).is_some())
}

pub(crate) fn names(pool: &WindowsPool, workload: &str) -> bool {
    let mut helped = pool.status.iter().flat_map(|status| &status.helped_workloads);
    helped.any(|helped| helped.name == workload)
}

#[tokio::test]
async fn every_pod_for_windows_is_scheduled_within_10_seconds() {
    let all = || RESCUED.iter().map(|(case, _)| *case).chain(["control"]);
    let linux = SimulatedNode::linux().name("lin");
    let harness = Harness::with_nodes(all().map(node).chain([linux])).await;
    prepare(&harness).await;
    for case in all() {
        harness.apply_pool_named(case, json!({"nodeSelector": {"pool": case}})).await;
    }
    let _operator = harness.operator().await;
    for case in all() {
        harness.is_tainted(&format!("win-{case}")).await;
    }

    let mut begun = BTreeMap::new();
    for (case, _) in RESCUED {
        begin(&harness, case).await;
        begun.insert(case, Instant::now());
    }
    let mut waiting = RESCUED.to_vec();
    while !waiting.is_empty() {
        let pods = harness.pods().list(&ListParams::default()).await.unwrap().items;
        waiting.retain(|(case, _)| {
            let waited = begun[case].elapsed();
            let is_rescued = has_node(&pods, case);
            if is_rescued {
                println!("{case} waited {:.1} s", waited.as_secs_f64());
            }
            assert!(is_rescued || waited < RESCUE, "{case} waits");
            !is_rescued
        });
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (case, workload) in RESCUED {
        harness.pool_until(case, "names the workload", |pool| names(pool, workload)).await;
        assert!(has_taint(&harness.node(&format!("win-{case}")).await, OS_WINDOWS), "{case} keeps its taint");
    }
}
