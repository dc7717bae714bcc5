//! The trial of a taint, with a real scheduler: winpool takes its taint back if a pod waits only because of it.

use std::time::{Duration, Instant};

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{Pod, Taint},
};
use winpool_core::{api::TaintTrial, plan::reconcile::Pauses};
use winpool_e2e::{Proxy, manifests::rolled_out, prelude::*};

/// The time within which an overlooked pod has to be scheduled again.
const RESCUE: Duration = Duration::from_secs(30);

/// An operator whose trials last this long.
fn operator(harness: &Harness, trial: Duration) -> Operator {
    let pauses = Pauses { trial, trial_checks: Duration::from_millis(500), ..alone().pauses };
    Operator::start_with(harness.account.config.clone(), Options { pauses, ..alone() })
}

/// A cluster with the Windows node `win`, an operator with the pauses of an installation between its looks, and a pool
/// whose taint is on trial.
async fn tried() -> (Harness, Operator) {
    let harness = Harness::with_nodes([SimulatedNode::server_2022("win")]).await;
    let operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;
    (harness, operator)
}

fn for_windows() -> Value {
    json!({"nodeSelector": {"kubernetes.io/os": "windows"}})
}

/// A Deployment whose pods have this spec.
fn deployment(name: &str, replicas: usize, spec: Value) -> Value {
    let mut deployment = workload("Deployment", name, spec);
    deployment["spec"]["replicas"] = json!(replicas);
    deployment
}

async fn change_template(harness: &Harness, name: &str, spec: Value) {
    let deployments: Api<Deployment> = Api::default_namespaced(harness.client.clone());
    merge(&deployments, name, json!({"spec": {"template": {"spec": spec}}})).await;
}

/// Creates a pod for Windows as a controller of this kind does that winpool does not know.
async fn run(harness: &Harness, name: &str, spec: Value) -> Pod {
    harness.create_pod(pod_of("Workflow", name, name, spec)).await
}

async fn is_scheduled(harness: &Harness, name: &str) {
    let (pods, started) = (harness.pods(), Instant::now());
    let scheduled = async || Ok(pods.get_opt(name).await?.filter(|pod| node_of(pod).is_some()));
    wait_for(&format!("pod {name} is scheduled"), RESCUE, scheduled).await.unwrap();
    println!("{name} waited {:.1} s", started.elapsed().as_secs_f64());
}

async fn are_unschedulable(harness: &Harness, app: &str, number: usize) {
    let (pods, of_app) = (harness.pods(), ListParams::default().labels(&format!("app={app}")));
    let wait = async || {
        let pods = pods.list(&of_app).await?.items;
        Ok((pods.iter().filter(|pod| unschedulable(pod).is_some()).count() == number).then_some(()))
    };
    wait_for(&format!("{number} pods of {app} are unschedulable"), LIMIT, wait).await.unwrap();
}

/// The number of approved taints.
fn approvals(pool: &WindowsPool) -> usize {
    pool.status.as_ref().map_or(0, |status| status.approved_taints.len())
}

fn trials(pool: &WindowsPool) -> Vec<TaintTrial> {
    pool.status.clone().unwrap_or_default().taint_trials
}

/// Waits for some seconds by the API server's clock. Status and the API server tell whole seconds, so a workload of the
/// first ones may count as older than the trial.
async fn trial_is_some_seconds_old(harness: &Harness) {
    let since = trials(&harness.ready("default").await)[0].since.0;
    let mut beat = 0;
    let now = async || {
        beat += 1;
        let annotations = json!({"metadata": {"annotations": {"example.com/beat": beat.to_string()}}});
        let node = harness.edit_node("win", annotations).await;
        let managed = node.metadata.managed_fields.unwrap_or_default();
        let last = managed.iter().filter_map(|entry| entry.time.clone()).map(|time| time.0).max();
        Ok(last.filter(|time| time.duration_since(since).as_secs() >= 3))
    };
    wait_for("some seconds have passed", LIMIT, now).await.unwrap();
}

/// Waits until the pool `default` names this workload as the one because of which its taint is gone.
async fn is_named(harness: &Harness, workload: &str, failures: i64) -> WindowsPool {
    let is_named = |pool: &WindowsPool| {
        let (_, reason, message) = condition_text(pool, "TaintsApplied").unwrap_or_default();
        reason == "TaintObjected"
            && message.contains(workload)
            && trials(pool).iter().any(|trial| trial.failures == failures && trial.retry_at.is_some())
    };
    harness.pool_until("default", &format!("names {workload}"), is_named).await
}

#[tokio::test]
async fn an_overlooked_deployment_is_scheduled_again_and_the_taint_comes_back_when_it_is_right() {
    let harness = Harness::with_nodes([SimulatedNode::server_2022("win")]).await;
    let tolerations = json!([{"key": "os", "value": "windows"}]);
    harness
        .apply(deployment("web", 1, json!({"nodeSelector": for_windows()["nodeSelector"], "tolerations": tolerations})))
        .await;
    rolled_out(harness.cluster(), "web").await.unwrap();
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;

    change_template(&harness, "web", json!({"tolerations": null})).await;
    let started = Instant::now();
    let pool = is_named(&harness, "Deployment default/web", 1).await;
    rolled_out(harness.cluster(), "web").await.unwrap();
    assert!(started.elapsed() < RESCUE, "{:?}", started.elapsed());
    println!("rolled out after {:.1} s", started.elapsed().as_secs_f64());
    assert_eq!(approvals(&pool), 0);
    harness.event_until("says why", |event| event.reason.as_deref() == Some("TaintObjected")).await;
    assert!(!has_taint(&harness.node("win").await, OS_WINDOWS));

    change_template(&harness, "web", json!({"tolerations": tolerations})).await;
    harness.is_tainted("win").await;
    let pool = harness.ready("default").await;
    assert!(trials(&pool).iter().all(|trial| trial.failures == 1 && trial.until.is_some()), "{:?}", trials(&pool));
}

#[tokio::test]
async fn a_bare_pod_and_a_pod_of_a_foreign_kind_are_scheduled_again() {
    for is_bare in [true, false] {
        let (harness, _operator) = tried().await;
        let workload = if is_bare {
            harness.run_pod("run", for_windows()).await;
            "Pod default/run"
        } else {
            run(&harness, "run", for_windows()).await;
            "Workflow default/run"
        };
        is_scheduled(&harness, "run").await;
        is_named(&harness, workload, 1).await;
    }
}

#[tokio::test]
async fn runs_that_are_new_objects_lift_a_taint_once_an_hour() {
    let (harness, _operator) = tried().await;
    run(&harness, "run-1", for_windows()).await;
    is_scheduled(&harness, "run-1").await;
    let pool = is_named(&harness, "Workflow default/run-1", 1).await;
    let retry_at = trials(&pool)[0].retry_at.clone();
    harness.pods().delete("run-1", &DeleteParams::default().grace_period(0)).await.unwrap();
    for name in ["run-2", "run-3"] {
        run(&harness, name, for_windows()).await;
        is_scheduled(&harness, name).await;
        harness.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    let pool = is_named(&harness, "Workflow default/run-1", 1).await;
    assert_eq!(trials(&pool)[0].retry_at, retry_at, "the pause has not ended");
    // A changed spec ends it.
    harness.apply_pool(json!({"runtimeClassNameFormat": "win-{version}"})).await;
    harness.is_tainted("win").await;
    run(&harness, "run-4", for_windows()).await;
    is_scheduled(&harness, "run-4").await;
    let pool = is_named(&harness, "Workflow default/run-4", 2).await;
    let pause = trials(&pool)[0].retry_at.clone().unwrap().0.duration_since(trials(&pool)[0].since.0);
    assert!(pause.as_hours() >= 2, "{pause:?}");
}

#[tokio::test]
async fn a_new_leader_goes_on_with_a_hold() {
    let (harness, operator) = tried().await;
    run(&harness, "run", for_windows()).await;
    is_scheduled(&harness, "run").await;
    is_named(&harness, "Workflow default/run", 1).await;
    let marked = harness.node_until("win", "is free", |node| !has_taint(node, OS_WINDOWS)).await;
    operator.stop().await;
    // As if the last leader had not come to this node, or as `born-tainted` marks a node late.
    let applied = json!({"pool": "default", "taints": [OS_WINDOWS]}).to_string();
    let annotations = json!({"metadata": {"annotations": {APPLIED: applied}, "labels": {POOL: "default"}}});
    harness.edit_node("win", annotations).await;
    let put = |taints: &mut Vec<Taint>| taints.push(serde_json::from_value(taint(OS_WINDOWS)).unwrap());
    change_taints(&harness.nodes(), "win", put).await;
    assert!(!has_taint(&marked, OS_WINDOWS) && has_taint(&harness.node("win").await, OS_WINDOWS));
    let _operator = harness.operator().await;
    harness.node_until("win", "is free again", |node| !has_taint(node, OS_WINDOWS)).await;
    is_named(&harness, "Workflow default/run", 1).await;
}

#[tokio::test]
async fn a_new_leader_goes_on_with_a_trial_and_rescues_a_pod_that_came_while_nobody_led() {
    let harness = Harness::with_nodes([SimulatedNode::server_2022("win")]).await;
    let mut config = harness.server.config_as("winpool-a", &["system:masters"]).unwrap();
    let proxy = Proxy::start(config.cluster_url.port_u16().unwrap()).await.unwrap();
    config.cluster_url = format!("https://127.0.0.1:{}", proxy.port()).parse().unwrap();
    let cut_off = Operator::start_with(config, options());
    harness.apply_until_ready(json!({})).await;
    harness.is_tainted("win").await;
    let leases: Api<Lease> = Api::default_namespaced(harness.client.clone());
    let holder = async || Ok::<_, kube::Error>(leases.get("winpool").await?.spec.and_then(|spec| spec.holder_identity));
    let (leader, before) = (holder().await.unwrap(), trials(&harness.ready("default").await));
    assert!(before.iter().all(|trial| trial.until.is_some()) && before.len() == 1, "{before:?}");
    let _standby = Operator::elected(&harness.server, "winpool-b");

    proxy.cut();
    run(&harness, "run", for_windows()).await;
    are_unschedulable(&harness, "run", 1).await;
    let is_other = async || Ok(Some(holder().await?).filter(|holder| holder.is_some() && *holder != leader));
    wait_for("another process leads", 2 * LIMIT, is_other).await.unwrap();
    assert_eq!(trials(&harness.pools().get("default").await.unwrap()), before);
    is_scheduled(&harness, "run").await;
    let after = trials(&is_named(&harness, "Workflow default/run", 1).await);
    assert_eq!(after[0].since, before[0].since, "it is the same trial");
    proxy.mend();
    cut_off.stop().await;
}

#[tokio::test]
async fn pods_that_wait_for_other_reasons_and_younger_workloads_lift_no_taint() {
    let team = |name: &str, team: &str| SimulatedNode::server_2022(name).label("team", team);
    let harness = Harness::with_nodes([
        team("win", "a"),
        team("refuge", "b").resource("cpu", "1"),
        team("own", "c").taint("os", "windows", "NoSchedule"),
    ])
    .await;
    let on = |team: &str, mut spec: Value| {
        spec["nodeSelector"] = json!({"kubernetes.io/os": "windows", "team": team});
        spec
    };
    let cpu = |amount: &str| json!([{"name": "c", "image": "servercore", "resources": {"requests": {"cpu": amount}}}]);
    let tolerations = json!([{"key": "os", "operator": "Exists"}]);
    let anywhere = json!({"nodeSelector": for_windows()["nodeSelector"], "containers": cpu("0.6")});
    harness.apply(deployment("full-refuge", 0, anywhere)).await;
    harness.apply(deployment("own-taint", 1, on("c", json!({})))).await;
    let greedy = on("a", json!({"tolerations": tolerations, "containers": cpu("10000")}));
    harness.apply(deployment("greedy", 1, greedy)).await;
    are_unschedulable(&harness, "own-taint", 1).await;
    are_unschedulable(&harness, "greedy", 1).await;
    let _operator = operator(&harness, Duration::from_secs(40));
    harness.apply_until_ready(json!({"nodeSelector": {"team": "a"}})).await;
    harness.is_tainted("win").await;

    let deployments: Api<Deployment> = Api::default_namespaced(harness.client.clone());
    merge(&deployments, "full-refuge", json!({"spec": {"replicas": 2}})).await;
    harness.apply(deployment("linux", 1, json!({"containers": cpu("10000")}))).await;
    trial_is_some_seconds_old(&harness).await;
    harness.apply(deployment("younger", 1, on("a", json!({})))).await;
    for app in ["linux", "full-refuge", "younger", "own-taint", "greedy"] {
        are_unschedulable(&harness, app, 1).await;
    }
    let pool = harness.ready("default").await;
    assert!(trials(&pool).iter().any(|trial| trial.until.is_some()), "the trial is not over: {:?}", trials(&pool));

    // It ends by a look that finds none of them.
    let is_over = |pool: &WindowsPool| trials(pool).is_empty();
    wait_for("the trial is over", Duration::from_mins(2), async || {
        let pool = harness.pools().get("default").await?;
        assert!(trials(&pool).iter().all(|trial| trial.failures == 0), "{:?}", trials(&pool));
        Ok(is_over(&pool).then_some(()))
    })
    .await
    .unwrap();
    run(&harness, "late", on("a", json!({}))).await;
    let pods = harness.pods();
    let waits = async || Ok(pods.get("late").await?.clone()).map(|pod| unschedulable(&pod).is_some().then_some(()));
    wait_for("a pod waits after the trial", LIMIT, waits).await.unwrap();
    assert!(has_taint(&harness.node("win").await, OS_WINDOWS));
    assert_eq!(approvals(&harness.ready("default").await), 1);
}

#[tokio::test]
async fn a_pod_that_waits_after_its_pool_was_renamed_is_scheduled_again() {
    let (harness, _operator) = tried().await;
    trial_is_some_seconds_old(&harness).await;
    // It is younger than the trial, and the check of the next pool finds it.
    harness.apply(deployment("younger", 1, for_windows())).await;
    are_unschedulable(&harness, "younger", 1).await;
    harness.apply_pool_named("renamed", json!({})).await;
    harness.delete_pool("default").await;
    harness.pool_is_gone("default").await;
    run(&harness, "run", for_windows()).await;
    is_scheduled(&harness, "run").await;
    let has_failed = |pool: &WindowsPool| trials(pool).iter().any(|trial| trial.failures == 1);
    harness.pool_until("renamed", "its trial has failed", has_failed).await;
}
