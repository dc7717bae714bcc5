//! Workloads that a workload check overlooks easily, on a cluster with a real scheduler and real controllers. Each case has
//! a pool and a node of its own, and one check judges them all.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment},
    batch::v1::CronJob,
};
use winpool_e2e::prelude::*;

use crate::consent::approved_of;

/// Cases that hold the taint, each with the workload that status names.
pub const HELD: [(&str, &str); 18] = [
    ("group-at-zero", "Deployment default/group-at-zero"),
    ("startup-taint", "Deployment default/startup-taint"),
    ("maintenance", "Deployment default/maintenance"),
    ("stuck-rollout", "Deployment default/stuck-rollout"),
    ("paused", "Deployment default/paused"),
    ("cron-lost-it", "CronJob default/cron-lost-it"),
    ("queued-job", "Job default/queued-job-1"),
    ("controller-lost-it", "ReplicationController default/controller-lost-it"),
    ("kruise", "StatefulSet.apps.kruise.io default/kruise"),
    ("volcano", "Job.batch.volcano.sh default/volcano"),
    ("runner", "Pod default/runner"),
    ("cordoned-refuge", "Deployment default/cordoned-refuge"),
    ("dead-refuge", "Deployment default/dead-refuge"),
    ("affinity", "Deployment default/affinity"),
    ("ghost-term", "Deployment default/ghost-term"),
    ("agent-by-class", "DaemonSet default/agent-by-class"),
    ("waits-for-group", "Pod default/waits-for-group"),
    ("old-template", "ReplicaSet default/old-template"),
];

/// Cases that hold nothing.
const NOT_HELD: [&str; 6] = ["refuge", "webhook", "long-grace", "older-than-its-class", "fixed-agent", "tolerates"];

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

/// A Deployment, or another kind with `replicas`, whose pods are bound.
async fn runs(harness: &Harness, kind: &str, name: &str, spec_of_pod: Value, changes: Value) {
    let replicas = changes["replicas"].as_u64().unwrap_or(1);
    let changes = with(json!({"replicas": replicas}), changes);
    harness.apply(with(workload(kind, name, spec_of_pod), spec(changes))).await;
    bound(harness, name, usize::try_from(replicas).unwrap()).await;
}

/// A pod on the node of this case that is being deleted, with this owner.
async fn terminates(harness: &Harness, case: &str, version: &str, kind: &str, controller: bool) {
    let owner = json!({"apiVersion": version, "kind": kind, "name": case, "uid": case, "controller": controller});
    let metadata = json!({"name": case, "finalizers": ["example.com/stay"], "ownerReferences": [owner]});
    let containers = json!([{"name": "c", "image": "servercore"}]);
    let spec = with(pod(case), json!({"containers": containers, "nodeName": format!("win-{case}")}));
    harness.create_pod(json!({"metadata": metadata, "spec": spec})).await;
    harness.pods().delete(case, &DeleteParams::default()).await.unwrap();
}

async fn held_cases(harness: &Harness) {
    let deploy = async |case: &str, pod: Value| harness.apply(workload("Deployment", case, pod)).await;
    for case in ["startup-taint", "maintenance"] {
        deploy(case, pod(case)).await;
    }
    let in_group =
        |case: &str| json!({"nodeSelector": {"kubernetes.io/os": "windows", "pool": case, "group": "none-yet"}});
    deploy("group-at-zero", in_group("group-at-zero")).await;
    harness.run_pod("waits-for-group", in_group("waits-for-group")).await;
    for case in ["cordoned-refuge", "dead-refuge"] {
        deploy(case, pod(case)).await;
    }
    let required = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let is_in =
        |key: &str, value: &str| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
    deploy("affinity", required(json!([is_in("case", "affinity")]))).await;
    deploy("ghost-term", required(json!([is_in("case", "ghost-term"), is_in("team", "ghost")]))).await;
    harness.apply(workload("ReplicaSet", "old-template", pod("old-template"))).await;
    for (case, version, kind, controller) in [
        ("kruise", "apps.kruise.io/v1beta1", "StatefulSet", true),
        ("volcano", "batch.volcano.sh/v1alpha1", "Job", true),
        ("runner", "actions.example.com/v1", "Runner", false),
    ] {
        terminates(harness, case, version, kind, controller).await;
    }

    // The new pod never becomes available, so the old ones stay.
    let stuck = json!({"replicas": 2, "minReadySeconds": 500, "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    runs(harness, "Deployment", "stuck-rollout", pod("stuck-rollout"), stuck.clone()).await;
    let fixed = workload("Deployment", "stuck-rollout", tolerant("stuck-rollout"));
    harness.apply(with(fixed, spec(stuck))).await;
    bound(harness, "stuck-rollout", 3).await;

    runs(harness, "Deployment", "paused", tolerant("paused"), json!({})).await;
    let worse = with(workload("Deployment", "paused", pod("paused")), spec(json!({"replicas": 1, "paused": true})));
    harness.apply(worse).await;
    let deployments: Api<Deployment> = Api::default_namespaced(harness.client.clone());
    let is_seen = async || {
        let paused = deployments.get("paused").await?;
        let status = paused.status.unwrap_or_default();
        Ok((status.observed_generation == paused.metadata.generation).then_some(()))
    };
    wait_for("the paused Deployment is seen", LIMIT, is_seen).await.unwrap();

    runs(harness, "ReplicationController", "controller-lost-it", tolerant("controller-lost-it"), json!({})).await;
    let lost = workload("ReplicationController", "controller-lost-it", pod("controller-lost-it"));
    harness.apply(with(lost, spec(json!({"replicas": 1})))).await;

    let job_of = async |cron_job: &str, template: Value, changes: Value| {
        let owner: CronJob = Api::default_namespaced(harness.client.clone()).get(cron_job).await.unwrap();
        let uid = owner.metadata.uid;
        let owner =
            json!([{"apiVersion": "batch/v1", "kind": "CronJob", "name": cron_job, "uid": uid, "controller": true}]);
        let job = with(workload("Job", &format!("{cron_job}-1"), template), spec(changes));
        harness.apply(with(job, json!({"metadata": {"ownerReferences": owner}}))).await;
    };
    harness.apply(workload("CronJob", "cron-lost-it", pod("cron-lost-it"))).await;
    job_of("cron-lost-it", tolerant("cron-lost-it"), json!({})).await;
    harness.apply(workload("CronJob", "queued-job", tolerant("queued-job"))).await;
    job_of("queued-job", pod("queued-job"), json!({"suspend": true})).await;

    let class = json!({"scheduling": {"tolerations": [{"operator": "Exists"}]}});
    let _: RuntimeClass = harness.create(with(windows_class("tolerant", &json!({})), class)).await;
    let by_class = with(pod("agent-by-class"), json!({"runtimeClassName": "tolerant"}));
    harness.apply(workload("DaemonSet", "agent-by-class", by_class)).await;
    bound(harness, "agent-by-class", 1).await;
}

async fn cases_that_hold_nothing(harness: &Harness) {
    harness.apply(workload("Deployment", "refuge", pod("refuge"))).await;
    runs(harness, "Deployment", "tolerates", tolerant("tolerates"), json!({})).await;

    // As a webhook does, which changes pods and not their template.
    runs(harness, "Deployment", "webhook", pod("webhook"), json!({"replicas": 2})).await;
    for pod in bound(harness, "webhook", 2).await {
        let mut all = json!(pod.spec.as_ref().unwrap().tolerations);
        all.as_array_mut().unwrap().extend(toleration().as_array().unwrap().iter().cloned());
        let _: Pod = merge(&harness.pods(), &pod.name_any(), spec(json!({"tolerations": all}))).await;
    }

    let stay = json!({"template": {"metadata": {"finalizers": ["example.com/stay"]}}, "replicas": 2});
    runs(harness, "Deployment", "long-grace", pod("long-grace"), stay).await;
    let fixed = workload("Deployment", "long-grace", tolerant("long-grace"));
    harness.apply(with(fixed, spec(json!({"replicas": 2})))).await;
    let deployments: Api<Deployment> = Api::default_namespaced(harness.client.clone());
    let is_finished = async || {
        let status = deployments.get("long-grace").await?.status.unwrap_or_default();
        let numbers = [status.updated_replicas, status.replicas, status.available_replicas];
        Ok((status.observed_generation == Some(2) && numbers == [Some(2); 3]).then_some(()))
    };
    wait_for("the rollout of long-grace is finished", LIMIT, is_finished).await.unwrap();
    bound(harness, "long-grace", 4).await;

    let class = windows_class("late", &json!({}));
    let _: RuntimeClass = harness.create(with(class, json!({"scheduling": {"tolerations": null}}))).await;
    let by_class = with(pod("older-than-its-class"), json!({"runtimeClassName": "late"}));
    runs(harness, "Deployment", "older-than-its-class", by_class, json!({})).await;
    let tolerations = json!({"scheduling": {"tolerations": toleration()}});
    let _: RuntimeClass = merge(&harness.classes(), "late", tolerations).await;

    let on_delete = json!({"updateStrategy": {"type": "OnDelete"}});
    let agent = workload("DaemonSet", "fixed-agent", pod("fixed-agent"));
    harness.apply(with(agent, spec(on_delete.clone()))).await;
    bound(harness, "fixed-agent", 1).await;
    harness.apply(with(workload("DaemonSet", "fixed-agent", tolerant("fixed-agent")), spec(on_delete))).await;
    let sets: Api<DaemonSet> = Api::default_namespaced(harness.client.clone());
    assert_eq!(sets.get("fixed-agent").await.unwrap().metadata.generation, Some(2));
}

#[tokio::test]
async fn overlooked_workloads_hold_a_taint_and_harmless_ones_do_not() {
    let extra = |case: &str| SimulatedNode::server_2022(&format!("other-{case}")).label("case", case);
    let nodes = HELD.iter().map(|(case, _)| *case).chain(NOT_HELD).map(|case| match case {
        "startup-taint" => node(case).taint("ebs.csi.aws.com/agent-not-ready", "", "NoExecute"),
        "maintenance" => node(case).taint("maintenance", "patching", "NoSchedule"),
        _ => node(case),
    });
    let refuges = ["cordoned-refuge", "dead-refuge", "refuge"].map(extra);
    let from_kubelet = node("all-carry").taint("os", "windows", "NoSchedule");
    let harness =
        Harness::with_nodes(nodes.chain(refuges).chain([from_kubelet, SimulatedNode::linux().name("lin")])).await;
    harness.edit_node("other-cordoned-refuge", json!({"spec": {"unschedulable": true}})).await;
    harness.edit_node("other-dead-refuge", json!({"metadata": {"annotations": {"kwok.x-k8s.io/node": null}}})).await;
    let unready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]}});
    let _: Node = harness
        .nodes()
        .patch_status("other-dead-refuge", &PatchParams::default(), &Patch::Strategic(unready))
        .await
        .unwrap();
    held_cases(&harness).await;
    cases_that_hold_nothing(&harness).await;
    let group = json!({"nodeSelector": {"kubernetes.io/os": "windows", "pool": "all-carry", "group": "b"}});
    harness.apply(workload("Deployment", "all-carry", group)).await;

    // The pools come first, so that one check judges them all.
    for case in HELD.iter().map(|(case, _)| *case).chain(NOT_HELD).chain(["all-carry"]) {
        harness.apply_pool_named(case, json!({"nodeSelector": {"pool": case}})).await;
    }
    let _operator = harness.operator().await;
    let are_tainted = async || {
        let nodes = harness.nodes().list(&ListParams::default()).await?.items;
        let is_tainted = |case: &str| {
            nodes.iter().any(|node| node.name_any() == format!("win-{case}") && has_taint(node, OS_WINDOWS))
        };
        Ok(NOT_HELD.iter().all(|case| is_tainted(case)).then_some(()))
    };
    wait_for("every node without such a workload is tainted", NEXT_CHECK, are_tainted).await.unwrap();
    let mut seen = BTreeMap::new();
    let all_are_named = async || {
        for (case, workload) in HELD {
            assert!(!has_taint(&harness.node(&format!("win-{case}")).await, OS_WINDOWS), "{case} got the taint");
            let pool = harness.pools().get(case).await?;
            let (status, reason, message) = condition_text(&pool, "TaintsApplied").unwrap_or_default();
            let is_named = status == "False" && reason == "WorkloadsNotTolerating" && message.contains(workload);
            seen.insert(case, (is_named, message));
        }
        Ok(seen.values().all(|(is_named, _)| *is_named).then_some(()))
    };
    let result = wait_for("status names every workload", NEXT_CHECK, all_are_named).await;
    let unnamed: Vec<_> = seen.iter().filter(|(_, (is_named, _))| !is_named).collect();
    result.unwrap_or_else(|error| panic!("{error}: {unnamed:#?}"));

    // Its only node carries the taint, but the node that the Deployment needs would get it too.
    assert_eq!(approved_of(&harness, "all-carry").await, Vec::<String>::new());
    harness.join_node(node("all-carry-2").label("pool", "all-carry").label("group", "b")).await;
    let names = |pool: &WindowsPool| {
        condition_text(pool, "TaintsApplied").is_some_and(|(_, _, m)| m.contains("Deployment default/all-carry"))
    };
    harness.pool_until("all-carry", "names the Deployment", names).await;
    assert!(!has_taint(&harness.node("win-all-carry-2").await, OS_WINDOWS));
}
