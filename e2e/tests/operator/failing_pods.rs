//! Pods that fail because of Windows: the condition `WorkloadsHealthy`, problems and the metric, by the states and Events
//! that kubelets and schedulers write.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_core::plan::pods::PodPauses;
use winpool_core::plan::reconcile::Pauses;
use winpool_e2e::harness::objects::{BUILD, condition, condition_text, problems};
use winpool_e2e::harness::operator::{Operator, alone};
use winpool_e2e::harness::workloads::pod_of;
use winpool_e2e::harness::{Harness, merge_status};
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::audit::AuditLog;
use winpool_e2e::servers::version::running_kubernetes;
use winpool_operator::Options;

/// The time within which each cause has to be in status.
const SEEN: Duration = Duration::from_secs(30);
/// The time within which it has to be gone.
const GONE: Duration = Duration::from_mins(1);
/// The pause after which refusals no longer count, instead of 10 minutes.
const REFUSALS: Duration = Duration::from_secs(40);

const SINGLE: &str = "Error: failed to create containerd task: failed to create shim task: hcs::CreateComputeSystem web: \
    The container operating system does not match the host operating system.: unknown";
const UNCLEAR: &str = "Error: failed to create containerd task: failed to create shim task: hcs::CreateComputeSystem web: \
    The virtual machine or container exited unexpectedly. (0xc0370106): unknown";
const NETWORK: &str = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \
    \"5116e17b\": hcnCreateNetwork failed in Win32: The parameter is incorrect. (0x57)";

const LINUX_LAYER: &str = r"failed to extract layer: hcsshim::ProcessBaseLayer \\?\C:\snapshots\25: The system cannot find the path specified.: unknown";

fn operator(harness: &Harness) -> Operator {
    let pods = PodPauses { refusals: REFUSALS, network: Duration::ZERO, ..PodPauses::default() };
    let pauses = Pauses { pods, ..alone().pauses };
    Operator::start_with(harness.account.config.clone(), Options { pauses, ..alone() })
}

/// A pod of the Deployment with this name, on the node `win`, with this image.
async fn run(harness: &Harness, workload: &str, image: &str, status: Value) {
    let name = format!("{workload}-5d8f7-a");
    let mut pod = pod_of("Deployment", workload, &name, json!({"nodeName": "win"}));
    pod["spec"]["containers"][0]["image"] = json!(image);
    harness.create_pod(pod).await;
    set_status(harness, workload, status).await;
}

async fn set_status(harness: &Harness, workload: &str, status: Value) {
    let name = format!("{workload}-5d8f7-a");
    let _: Pod = merge_status(&harness.pods(), &name, json!({"status": status})).await;
}

/// The status of a pod whose container is in this state.
fn container(phase: &str, image: &str, state: &Value, last: &Value) -> Value {
    let status = json!({
        "name": "c", "image": image, "imageID": "", "ready": false, "restartCount": 1, "state": state, "lastState": last,
    });
    json!({"phase": phase, "containerStatuses": [status]})
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"waiting": {"reason": reason, "message": message}})
}

fn crash_loop(image: &str, message: &str) -> Value {
    let ended = json!({"terminated": {"reason": "StartError", "exitCode": 128, "message": message}});
    container("Running", image, &waiting("CrashLoopBackOff", "back-off 20s restarting failed container"), &ended)
}

/// Writes an Event that the pod of this Deployment gets no sandbox, as the kubelet of `win` does.
async fn event(harness: &Harness, workload: &str, message: &str) {
    let (now, reason) = (Timestamp::now().to_string(), "FailedCreatePodSandBox");
    let pod = format!("{workload}-5d8f7-a");
    let event = json!({
        "metadata": {"name": format!("{pod}.{reason}")}, "type": "Warning", "reason": reason, "message": message,
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod},
        "source": {"component": "kubelet", "host": "win"}, "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    });
    let events: Api<Event> = Api::namespaced(harness.client.clone(), "default");
    events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
}

/// A cause of each source (the state of a container, an Event, the status of a pod), with the Deployment that shows it.
const CAUSES: [(&str, &str); 3] = [("other_build", "single"), ("network", "network"), ("os_name", "refused")];

async fn fail_in_every_way(harness: &Harness) {
    run(harness, "single", "app", crash_loop("app", SINGLE)).await;
    let creating = container("Pending", "app", &waiting("ContainerCreating", ""), &json!({}));
    run(harness, "network", "app", creating).await;
    event(harness, "network", NETWORK).await;
    let message = "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS";
    run(harness, "refused", "app", json!({"phase": "Failed", "reason": "PodOSNotSupported", "message": message})).await;
}

/// Pods that wait or fail for reasons that Windows has nothing to do with.
async fn fail_otherwise(harness: &Harness) {
    harness.join_node(SimulatedNode::linux().name("linux")).await;
    for (name, node, reason, message) in [
        ("arm64", "linux", "ImagePullBackOff", "no match for platform in manifest: not found"),
        ("denied", "win", "ErrImagePull", "pull access denied, repository does not exist or may require authorization"),
        ("limited", "win", "ErrImagePull", "toomanyrequests: You have reached your pull rate limit"),
        ("secret", "win", "CreateContainerConfigError", "secret \"credentials\" not found"),
        ("generic", "win", "RunContainerError", UNCLEAR),
    ] {
        let mut pod = pod_of("Deployment", name, &format!("{name}-5d8f7-a"), json!({"nodeName": node}));
        pod["spec"]["containers"][0]["image"] = json!(name);
        harness.create_pod(pod).await;
        set_status(harness, name, container("Pending", name, &waiting(reason, message), &json!({}))).await;
    }
}

fn message(pool: &WindowsPool) -> String {
    condition_text(pool, "WorkloadsHealthy").map(|(_, _, message)| message).unwrap_or_default()
}

async fn pool_within(
    harness: &Harness,
    limit: Duration,
    what: &str,
    holds: impl Fn(&WindowsPool) -> bool,
) -> WindowsPool {
    let (pools, started) = (harness.pools(), Instant::now());
    let mut last = String::new();
    let found = wait_for(what, limit, async || {
        let pool = pools.get("default").await?;
        last = format!("{:?}", condition_text(&pool, "WorkloadsHealthy"));
        Ok(holds(&pool).then_some(pool))
    });
    let pool = found.await.unwrap_or_else(|error| panic!("{error}; the condition is {last}"));
    println!("{what}: {:.1} s", started.elapsed().as_secs_f64());
    pool
}

#[tokio::test]
async fn every_cause_is_in_status_within_30_seconds_and_gone_within_a_minute() {
    let harness = Harness::new().await;
    harness.join("win").await;
    let _operator = operator(&harness);
    harness.apply_pool(json!({"taintPolicy": "TaintOnly"})).await;
    let is_healthy = |pool: &WindowsPool| condition(pool, "WorkloadsHealthy") == Some("True");
    pool_within(&harness, SEEN, "no pod fails", is_healthy).await;
    fail_otherwise(&harness).await;
    fail_in_every_way(&harness).await;
    // Only its class tells the pool of a pod without a node.
    let nowhere = json!({"nodeSelector": {"kubernetes.io/os": "windows", BUILD: "10.0.17763"}});
    harness.create_pod(pod_of("Deployment", "nowhere", "nowhere-5d8f7-a", nowhere)).await;
    let unscheduled = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    set_status(&harness, "nowhere", json!({"phase": "Pending", "conditions": [unscheduled]})).await;

    let shows = |message: &str, cause: &str, workload: &str| {
        message.contains(&format!("Deployment default/{workload} (1 pod, {cause})"))
    };
    let all = || CAUSES.into_iter().chain([("no_node", "nowhere")]);
    let failing = pool_within(&harness, SEEN, "all fail", |pool| {
        let message = message(pool);
        all().all(|(cause, workload)| shows(&message, cause, workload))
    })
    .await;
    assert_eq!(condition(&failing, "Ready"), Some("True"), "the condition does not affect it");
    let text = message(&failing);
    assert!(text.starts_with("4 pods of "), "others do not count: {text}");
    let problems = problems(&failing);
    assert!(problems.contains("such as default/single-5d8f7-a on node win"), "{problems}");

    // Healthy, replaced, deleted.
    set_status(&harness, "single", container("Running", "app", &json!({"running": {}}), &json!({}))).await;
    for workload in ["network", "refused", "nowhere"] {
        let parameters = DeleteParams::default().grace_period(0);
        harness.pods().delete(&format!("{workload}-5d8f7-a"), &parameters).await.unwrap();
    }
    pool_within(&harness, GONE, "all are healthy or gone", is_healthy).await;
}

#[tokio::test]
async fn a_pool_says_which_permission_winpool_lacks() {
    let unseen = |pool: &WindowsPool, what: &str| {
        let (status, reason, message) = condition_text(pool, "WorkloadsHealthy").unwrap_or_default();
        (&*status, &*reason) == ("Unknown", "PodsNotSeen") && message.contains(what)
    };
    for (right, what) in
        [(("watch", "", "events"), "cannot watch Events"), (("watch", "", "pods"), "cannot watch pods")]
    {
        let harness = Harness::new().await;
        harness.join("win").await;
        harness.account.take(right).await;
        let _operator = operator(&harness);
        harness.apply_pool(json!({"taintPolicy": "TaintOnly"})).await;
        pool_within(&harness, GONE, what, |pool| unseen(pool, what)).await;
        // The permission is optional.
        let is_ready = |pool: &WindowsPool| unseen(pool, what) && condition(pool, "Ready") == Some("True");
        harness.pool_until("default", "is Ready", is_ready).await;
    }
}

/// The requests of this user for pods: the verb, and true if a watch begins with a list.
fn requests_for_pods(log: &AuditLog, user: &str) -> Vec<(String, bool)> {
    let of = |event: &Value, key: &str| event[key]["username"].as_str().map(str::to_owned);
    let is_by = |event: &Value| of(event, "impersonatedUser").or_else(|| of(event, "user")).as_deref() == Some(user);
    let is_for_pods = |event: &Value| event["objectRef"]["resource"] == "pods";
    let events = log.events();
    let asked = events.iter().filter(|event| is_by(event) && is_for_pods(event));
    let facts = asked.map(|event| {
        let begins_with_list = event["requestURI"].as_str().is_some_and(|uri| uri.contains("sendInitialEvents=true"));
        (event["verb"].as_str().unwrap_or_default().to_owned(), begins_with_list)
    });
    facts.collect()
}

#[tokio::test]
async fn leader_and_standby_watch_all_pods_with_one_list_and_ask_no_more() {
    let (harness, log) = Harness::audited().await;
    harness.join("win").await;
    let users = ["winpool-a", "winpool-b"];
    let both = users.map(|user| Operator::elected(&harness.server, user));
    harness.apply_pool(json!({"taintPolicy": "TaintOnly"})).await;
    let is_healthy = |pool: &WindowsPool| condition(pool, "WorkloadsHealthy") == Some("True");
    pool_within(&harness, GONE, "the pods are counted", is_healthy).await;
    run(
        &harness,
        "linux",
        "linux",
        container("Pending", "linux", &waiting("ImagePullBackOff", LINUX_LAYER), &json!({})),
    )
    .await;
    pool_within(&harness, SEEN, "a pod fails", |pool| condition(pool, "WorkloadsHealthy") == Some("False")).await;
    harness.nodes().delete("win", &DeleteParams::default()).await.unwrap();
    let is_absent = |pool: &WindowsPool| condition(pool, "WorkloadsHealthy").is_none();
    pool_within(&harness, GONE, "no Windows node is left", is_absent).await;
    // The API server logs a watch when it has ended.
    for operator in both {
        operator.stop().await;
    }
    // Kubernetes 1.33 refuses a list that is a part of the watch, so the pods are listed in pages, here in one.
    let pages = usize::from(running_kubernetes().await.unwrap() <= 33);
    for user in users {
        let has_ended = async || Ok((!requests_for_pods(&log, user).is_empty()).then_some(()));
        wait_for("the watch of pods has ended", GONE, has_ended).await.unwrap();
        let asked = requests_for_pods(&log, user);
        let lists = asked.iter().filter(|(_, begins_with_list)| *begins_with_list).count();
        let others = asked.iter().filter(|(verb, _)| verb != "watch");
        assert_eq!((lists, others.count()), (1, pages), "{user}: {asked:?}");
    }
}
