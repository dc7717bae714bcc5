//! Workloads that no workload check can see, on a cluster with a real scheduler and real controllers. Each case has a pool
//! and a node of its own. Their pods get the toleration.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        batch::v1::CronJob,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use winpool_e2e::{prelude::*, scene};

use crate::{
    overlooked::{HELD, bound, node, pod, spec, tolerant, with},
    policies::admitted_until,
};

/// The time within which every pod has a node.
const RESCUE: Duration = Duration::from_secs(10);

/// The cases, each with the workload or pod that status names.
const RESCUED: [(&str, &str); 9] = [
    ("bare-pod", "Pod default/bare-pod"),
    ("runner", "Pod default/runner"),
    ("workflow", "Workflow default/workflow"),
    ("job-of-workflow", "Workflow default/job-of-workflow"),
    ("volcano", "Job.batch.volcano.sh default/volcano"),
    ("cron-edited", "CronJob default/cron-edited"),
    ("set-edited", "StatefulSet default/set-edited"),
    ("pods-by-policy", "Deployment default/pods-by-policy"),
    ("template-by-policy", "Deployment default/template-by-policy"),
];

const _: () = assert!(HELD.len() + RESCUED.len() >= 20, "at least 20 overlooked workloads are counted");

/// Cases that need the kind of admission policy that changes objects.
const BY_POLICY: [&str; 2] = ["pods-by-policy", "template-by-policy"];

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
    scene::define(&harness.client, &definition).await.unwrap();
    for name in ["runner", "workflow", "job-of-workflow"] {
        harness.apply(json!({"apiVersion": "example.com/v1", "kind": "Workflow", "metadata": {"name": name}})).await;
    }
}

/// A policy that adds the selector for Windows to objects with this name or label.
async fn adds_selector(harness: &Harness, case: &str, rule: Value, path: &str, condition: &str) {
    let expression =
        format!("[JSONPatch{{op: 'add', path: '{path}', value: {{'kubernetes.io/os': 'windows', 'case': '{case}'}}}}]");
    let version = "admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicy", "metadata": {"name": case},
        "spec": {
            "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "is-case", "expression": condition}],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    });
    harness.apply(policy).await;
    let binding = json!({
        "apiVersion": version, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": case},
        "spec": {"policyName": case},
    });
    harness.apply(binding).await;
}

async fn policies_exist(harness: &Harness) {
    let [pods, template] = BY_POLICY;
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let condition = format!("object.metadata.?labels['app'].orValue('') == '{pods}'");
    adds_selector(harness, pods, rule, "/spec/nodeSelector", &condition).await;
    let rule =
        json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments"]});
    let condition = format!("object.metadata.name == '{template}' && object.spec.replicas == 1");
    adds_selector(harness, template, rule, "/spec/template/spec/nodeSelector", &condition).await;
    let mut probe = workload("Deployment", pods, json!({}))["spec"]["template"].take();
    probe["metadata"]["name"] = json!("probe");
    let is_changed = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_selector.is_some());
    admitted_until(&harness.pods(), &probe, "the policy for pods is in force", is_changed).await;
    let deployments: Api<Deployment> = Api::default_namespaced(harness.client.clone());
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let scaled = Patch::Merge(json!({"spec": {"replicas": 1}}));
    wait_for("the policy for templates is in force", LIMIT, async || {
        let deployment = json!(deployments.patch(template, &dry_run, &scaled).await?);
        Ok(deployment["spec"]["template"]["spec"]["nodeSelector"].is_object().then_some(()))
    })
    .await
    .unwrap();
}

/// What exists before the check. Nothing of it is for Windows and does not tolerate the taint.
async fn prepare(harness: &Harness, by_policy: bool) {
    workflows_exist(harness).await;
    harness.apply(workload("CronJob", "cron-edited", tolerant("cron-edited"))).await;
    harness.apply(workload("StatefulSet", "set-edited", tolerant("set-edited"))).await;
    bound(harness, "set-edited", 1).await;
    if by_policy {
        for case in BY_POLICY {
            harness.apply(workload("Deployment", case, json!({}))).await;
        }
        policies_exist(harness).await;
    }
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
            harness.apply(with(workload("Job", "cron-edited-1", pod(case)), owner)).await;
        }
        "set-edited" => {
            let sets: Api<StatefulSet> = Api::default_namespaced(harness.client.clone());
            let template = spec(json!({"template": spec(json!({"tolerations": null}))}));
            drop(merge(&sets, case, template).await);
        }
        _ => {
            let deployments: Api<Deployment> = Api::default_namespaced(harness.client.clone());
            drop(merge(&deployments, case, spec(json!({"replicas": 1}))).await);
        }
    }
}

/// True if all pods for the node of this case are bound, or have been.
fn has_node(pods: &[Pod], case: &str) -> bool {
    let selects = |pod: &&Pod| {
        let selector = pod.spec.as_ref().and_then(|spec| spec.node_selector.as_ref());
        selector.is_some_and(|selector| selector.get("case").is_some_and(|of| of == case))
    };
    let mut of_case = pods.iter().filter(selects).peekable();
    of_case.peek().is_some() && of_case.all(|pod| node_of(pod).is_some())
}

fn names(pool: &WindowsPool, workload: &str) -> bool {
    let mut helped = pool.status.iter().flat_map(|status| &status.helped_workloads);
    helped.any(|helped| helped.name == workload)
}

#[tokio::test]
async fn every_workload_that_no_check_can_see_is_scheduled_within_10_seconds() {
    let by_policy = MUTATING_ADMISSION_POLICY.is_there().await.unwrap();
    let cases = RESCUED.into_iter().filter(|(case, _)| by_policy || !BY_POLICY.contains(case));
    let cases: Vec<_> = cases.collect();
    let all = || cases.iter().map(|(case, _)| *case).chain(["control"]);
    let linux = SimulatedNode::linux().name("lin");
    let harness = Harness::with_nodes(all().map(node).chain([linux])).await;
    prepare(&harness, by_policy).await;
    for case in all() {
        harness.apply_pool_named(case, json!({"nodeSelector": {"pool": case}})).await;
    }
    let _operator = harness.operator().await;
    for case in all() {
        wait_for(&format!("the check of {case} is clean"), NEXT_CHECK, async || {
            let node = harness.node(&format!("win-{case}")).await;
            Ok(has_taint(&node, OS_WINDOWS).then_some(()))
        })
        .await
        .unwrap();
    }

    let mut begun = BTreeMap::new();
    for (case, _) in &cases {
        begin(&harness, case).await;
        begun.insert(*case, Instant::now());
    }
    let mut waiting = cases.clone();
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
    for (case, workload) in cases {
        harness.pool_until(case, "names the workload", |pool| names(pool, workload)).await;
        assert!(has_taint(&harness.node(&format!("win-{case}")).await, OS_WINDOWS), "{case} keeps its taint");
    }
}
