//! Which workloads count in a check, and which do not.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
};
use tokio::process::Command;
use winpool_e2e::{prelude::*, program};

use crate::consent::{WEB, approved, join};

/// The node selector of a pod that is meant for Windows.
fn on_windows() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"}})
}

/// The toleration for the taint of a pool with all defaults.
fn toleration() -> Value {
    json!([{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}])
}

async fn with_busy_node() -> Harness {
    let harness = Harness::new().await;
    join(&harness, "busy").await;
    harness
}

/// Fails if these workloads do not hold the taint of `busy`.
async fn hold_the_taint(harness: &Harness, workloads: &[&str]) {
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.held(OS_WINDOWS, &["busy"], workloads).await;
}

/// Lets the kubelet report that the image of this pod has no variant for Windows.
async fn has_no_image_for_windows(harness: &Harness, pod: &str) {
    let waiting = json!({"reason": "ErrImagePull", "message": "no match for platform in manifest: not found"});
    let container = json!({
        "name": "c", "image": "servercore", "imageID": "", "ready": false, "restartCount": 0, "state": {"waiting": waiting},
    });
    merge_status(&harness.pods(), pod, json!({"status": {"phase": "Pending", "containerStatuses": [container]}})).await;
}

#[tokio::test]
async fn pods_count_by_their_words_their_templates_and_the_revisions_of_their_set() {
    let harness = with_busy_node().await;
    let there = |mut spec: Value| {
        spec["nodeName"] = json!("busy");
        spec
    };
    // Pods that end, where another such pod may follow. The next pod of the StatefulSet may be one of the old revision, which
    // does not tolerate the taint.
    let mut recreate = workload("Deployment", "web", on_windows());
    recreate["spec"]["strategy"] = json!({"type": "Recreate"});
    harness.apply(recreate).await;
    let mut tolerating = on_windows();
    tolerating["tolerations"] = toleration();
    harness.apply(workload("StatefulSet", "db", tolerating)).await;
    let revisions = json!({"status": {"replicas": 1, "currentRevision": "db-1", "updateRevision": "db-2"}});
    let sets: Api<StatefulSet> = Api::namespaced(harness.client.clone(), "default");
    merge_status(&sets, "db", revisions).await;
    for (kind, name) in [("Deployment", "web"), ("StatefulSet", "db"), ("CloneSet", "cache")] {
        let pod = format!("{name}-0");
        harness.create_pod(pod_of(kind, name, &pod, there(on_windows()))).await;
        harness.pods().delete(&pod, &DeleteParams::default().grace_period(600)).await.unwrap();
    }
    // Pods that say Windows, and have no image for it.
    for (name, spec) in [("by-os", json!({"os": {"name": "windows"}})), ("by-selector", on_windows())] {
        harness.run_pod(name, there(spec)).await;
        has_no_image_for_windows(&harness, name).await;
    }
    // A DaemonSet whose pods get their toleration from a class.
    let mut class = windows_class("tolerating", &json!({BUILD: "10.0.20348"}));
    class["scheduling"]["tolerations"] = toleration();
    let _: RuntimeClass = harness.create(class).await;
    let mut by_class = on_windows();
    by_class["runtimeClassName"] = json!("tolerating");
    harness.apply(workload("DaemonSet", "logs", by_class.clone())).await;
    let pod = harness.create_pod(pod_of("DaemonSet", "logs", "logs-0", there(by_class))).await;
    let tolerations = json!(pod.spec.unwrap().tolerations).to_string();
    assert!(tolerations.contains(r#""value":"windows""#), "given by the class: {tolerations}");
    let of_sets = ["StatefulSet default/db", "CloneSet default/cache", "DaemonSet default/logs"];
    let named = of_sets.into_iter().chain([WEB, "Pod default/by-os", "Pod default/by-selector"]);
    hold_the_taint(&harness, &named.collect::<Vec<_>>()).await;
}

/// Creates workloads without pods, each of which says Windows in its own way. Returns the names that status and
/// `winpool plan` give them.
async fn create_idle_workloads(harness: &Harness) -> [&'static str; 7] {
    let class = json!({
        "metadata": {"name": "legacy"}, "handler": "first",
        "scheduling": {"nodeSelector": {"kubernetes.io/os": "windows"}},
    });
    let _: RuntimeClass = harness.create(class).await;
    let build = json!({"key": "node.kubernetes.io/windows-build", "operator": "In", "values": ["10.0.20348"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [build]}]});
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
    let by_build = json!({"nodeSelector": {"node.kubernetes.io/windows-build": "10.0.20348"}});
    for (kind, name, spec) in [
        ("Deployment", "idle", json!({"os": {"name": "windows"}})),
        ("StatefulSet", "db", on_windows()),
        ("DaemonSet", "logs", on_windows()),
        ("CronJob", "nightly", by_build),
        ("Job", "import", affinity),
        ("ReplicaSet", "old", json!({"nodeSelector": {"team": "busy"}})),
        ("ReplicationController", "older", json!({"runtimeClassName": "legacy"})),
    ] {
        harness.apply(workload(kind, name, spec)).await;
    }
    [
        "Deployment default/idle",
        "StatefulSet default/db",
        "DaemonSet default/logs",
        "CronJob default/nightly",
        "Job default/import",
        "ReplicaSet default/old",
        "ReplicationController default/older",
    ]
}

#[tokio::test]
async fn workloads_without_pods_count_for_plan_and_for_the_operator() {
    let harness = with_busy_node().await;
    let workloads = create_idle_workloads(&harness).await;
    harness.apply_pool(json!({})).await;
    let mut plan = Command::new(program("winpool").await.unwrap());
    let output = plan.arg("plan").env("KUBECONFIG", harness.server.kubeconfig()).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for workload in workloads {
        assert!(text.contains(workload), "{workload} is not in:\n{text}");
    }
    hold_the_taint(&harness, &workloads).await;
}

#[tokio::test]
async fn a_pod_on_a_tainted_node_counts_if_no_node_is_left_for_the_next() {
    let harness = Harness::new().await;
    join(&harness, "bare").await;
    let guarded = SimulatedNode::server_2022("guarded").taint("os", "Windows", "NoSchedule");
    harness.join_node(guarded).await;
    // It was there before that taint, which it does not tolerate either.
    let mut spec = on_windows();
    spec["nodeName"] = json!("guarded");
    harness.create_pod(pod_of("CloneSet", "web", "web-0", spec)).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    harness.held(OS_WINDOWS, &["bare", "guarded"], &["CloneSet default/web"]).await;
}

#[tokio::test]
async fn kinds_that_may_not_be_listed_are_left_out_and_the_condition_names_them() {
    let harness = with_busy_node().await;
    let job = create_idle_workloads(&harness).await.into_iter().find(|workload| workload.starts_with("Job")).unwrap();
    harness.account.take(("list", "apps", "deployments")).await;
    let _operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let pool = harness.held(OS_WINDOWS, &["busy"], &[job]).await;
    let (_, _, message) = condition_text(&pool, "TaintsApplied").unwrap();
    assert!(message.contains("deployments") && !message.contains("Deployment default/idle"), "{message}");
}

/// Creates workloads and pods that need no node of a pool which selects the node `busy`. Most do not tolerate its taint.
async fn create_workloads_that_do_not_count(harness: &Harness) {
    let on_busy = || json!({"nodeSelector": {"team": "busy"}});
    let mut tolerating = on_busy();
    tolerating["tolerations"] = toleration();
    let annotation = json!({"winpool.dev/ignore": "true"});
    let mut annotated = workload("Deployment", "annotated", on_busy());
    annotated["metadata"]["annotations"] = annotation.clone();
    let mut template_annotated = workload("StatefulSet", "template-annotated", on_busy());
    template_annotated["spec"]["template"]["metadata"]["annotations"] = annotation;
    let mut of_deployment = workload("ReplicaSet", "rolled-1", on_busy());
    of_deployment["metadata"]["labels"] = json!({"pod-template-hash": "1"});
    let mut of_cron_job = workload("Job", "nightly-1", tolerating.clone());
    let owner = json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "u", "controller": true});
    of_cron_job["metadata"]["ownerReferences"] = json!([owner]);
    let mut deleted = workload("Deployment", "deleted", on_busy());
    deleted["metadata"]["finalizers"] = json!(["example.com/stay"]);
    for object in [
        workload("Deployment", "linux", json!({})),
        workload("Deployment", "for-any-windows-node", on_windows()),
        workload("Deployment", "for-the-other-pool", json!({"nodeSelector": {"team": "outside"}})),
        workload("Deployment", "pinned", json!({"nodeName": "busy"})),
        workload("Deployment", "rolled", tolerating.clone()),
        workload("DaemonSet", "logs", tolerating.clone()),
        workload("CronJob", "nightly", tolerating),
        workload("Job", "done", on_busy()),
        annotated,
        template_annotated,
        of_deployment,
        of_cron_job,
        deleted,
    ] {
        harness.apply(object).await;
    }
    let deployments: Api<Deployment> = Api::namespaced(harness.client.clone(), "default");
    deployments.delete("deleted", &DeleteParams::default()).await.unwrap();
    let finished = json!({"status": {"observedGeneration": 1}});
    let _: Deployment = merge_status(&deployments, "rolled", finished).await;
    let time = "2026-01-01T00:00:00Z";
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": time});
    let done = json!({"status": {
        "startTime": time, "completionTime": time, "succeeded": 1, "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    }});
    let jobs: Api<Job> = Api::namespaced(harness.client.clone(), "default");
    merge_status(&jobs, "done", done).await;

    let there = || json!({"nodeName": "busy"});
    let mut mirror = pod_of("Node", "busy", "mirror", there());
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    harness.create_pod(mirror).await;
    harness.create_pod(pod_of("Deployment", "rolled", "terminating", there())).await;
    harness.pods().delete("terminating", &DeleteParams::default().grace_period(600)).await.unwrap();
    harness.create_pod(pod_of("Deployment", "linux", "stray", there())).await;
    has_no_image_for_windows(harness, "stray").await;
    harness.run_pod("finished", there()).await;
    let finished = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    harness.pods().patch_status("finished", &PatchParams::default(), &finished).await.unwrap();
}

#[tokio::test]
async fn workloads_that_need_no_node_of_the_pool_hold_no_taint() {
    let harness = Harness::new().await;
    harness.join_node(SimulatedNode::linux().name("linux")).await;
    join(&harness, "busy").await;
    harness.join_node(SimulatedNode::server_2022("outside").label("team", "outside").ready()).await;
    // The API server adds a taint to every node that registers. Here is no controller that removes it.
    harness.edit_node("outside", json!({"spec": {"taints": null}})).await;
    create_workloads_that_do_not_count(&harness).await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({"nodeSelector": {"team": "busy"}})).await;
    assert!(has_taint(&harness.node("busy").await, OS_WINDOWS));
    assert_eq!(approved(&harness).await, [OS_WINDOWS]);
}

#[tokio::test]
async fn a_hold_ends_within_seconds_after_the_last_workload_was_fixed() {
    let harness = with_busy_node().await;
    let class = json!({"metadata": {"name": "legacy"}, "handler": "first"});
    let _: RuntimeClass = harness.create(class).await;
    let mut by_class = on_windows();
    by_class["runtimeClassName"] = json!("legacy");
    harness.apply(workload("Deployment", "by-class", by_class)).await;
    for name in ["by-template", "ignored", "deleted"] {
        harness.apply(workload("Deployment", name, on_windows())).await;
    }
    let _operator = Operator::unhurried(harness.account.config.clone());
    harness.apply_pool(json!({})).await;
    let names = ["by-class", "by-template", "ignored", "deleted"].map(|name| format!("Deployment default/{name}"));
    harness.held(OS_WINDOWS, &["busy"], &names.each_ref().map(String::as_str)).await;

    let (deployments, parameters) =
        (Api::<Deployment>::namespaced(harness.client.clone(), "default"), PatchParams::default());
    deployments.delete("deleted", &DeleteParams::background()).await.unwrap();
    let annotation = json!({"metadata": {"annotations": {"winpool.dev/ignore": "true"}}});
    deployments.patch("ignored", &parameters, &Patch::Merge(annotation)).await.unwrap();
    let template = json!({"spec": {"template": {"spec": {"tolerations": toleration()}}}});
    deployments.patch("by-template", &parameters, &Patch::Merge(template)).await.unwrap();
    let scheduling = json!({"scheduling": {"tolerations": toleration()}});
    harness.classes().patch("legacy", &parameters, &Patch::Merge(scheduling)).await.unwrap();
    let nodes = harness.nodes();
    let tainted = async || Ok(has_taint(&nodes.get("busy").await?, OS_WINDOWS).then_some(()));
    wait_for("the hold ends", END_OF_HOLD, tainted).await.unwrap();
}
