//! The admission policies of `config/components/`.

mod agreement;
mod assign_class;
mod born_tainted;
mod cost;
mod guard;
mod host_affinity;
mod linux_by_default;
mod tolerate_windows;
mod webhooks;

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use winpool_e2e::harness::objects::node_of;
use winpool_e2e::harness::{Harness, merge_status};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::needs;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::{self, manifests};
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

/// The Windows nodes of the cluster on which the policies are tried with a scheduler and controllers.
const WINDOWS_NODES: [&str; 4] = ["win-2019-a", "win-2022-a", "win-2025-a", "win-spelled"];

/// One cluster for all of them: a policy that is installed stays, and does not disturb the next one.
#[tokio::test]
async fn workloads_run_where_the_policies_send_them() {
    needs!(MUTATING_ADMISSION_POLICY);
    let spelled = SimulatedNode::server_2022("win-spelled").taint("node.kubernetes.io/os", "Windows", "NoSchedule");
    let harness = Harness::with_nodes(scene::nodes().into_iter().chain([spelled])).await;
    linux_by_default::a_linux_daemon_set_that_tolerates_everything_runs_on_linux_only(&harness).await;
    let _operator = harness.operator().await;
    tolerate_windows::a_windows_daemon_set_without_toleration_runs_on_all_windows_nodes(&harness).await;
    assign_class::a_template_that_only_says_windows_runs_on_the_chosen_build(&harness).await;
    host_affinity::the_scheduler_uses_all_hosts_that_run_the_image_and_no_other(&harness).await;
    assert_no_panic(&harness.server);
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// Installs a component as `kubectl apply -k` does. It comes into force later.
pub(super) async fn install(client: &Client, component: &str) {
    manifests::apply(client, &manifests::component(component).unwrap()).await.unwrap();
}

/// Creates this object in a dry run, and returns the result.
async fn admitted<K>(api: &Api<K>, object: &Value) -> kube::Result<K>
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    api.create(&dry_run(), &serde_json::from_value(object.clone()).unwrap()).await
}

/// Waits until this holds for the object after admission: policies and pools come into force some time after they were
/// written.
pub(super) async fn admitted_until<K>(api: &Api<K>, object: &Value, what: &str, holds: impl Fn(&K) -> bool) -> K
where
    K: Clone + DeserializeOwned + Serialize + Debug,
{
    let mut seen = None;
    let result = wait_for(what, LIMIT, async || {
        let now = admitted(api, object).await?;
        let done = holds(&now);
        seen = Some(now.clone());
        Ok(done.then_some(now))
    });
    result.await.unwrap_or_else(|error| panic!("{error}; last seen: {:#}", json!(seen)))
}

/// Checks the log of the API server for panics.
fn assert_no_panic(server: &ApiServer) {
    let text = std::fs::read_to_string(server.directory().join("kube-apiserver.log")).unwrap();
    let panic = text.lines().find(|line| line.contains("Observed a panic") || line.contains("panicked: true"));
    assert_eq!(panic, None);
}

/// Creates a pool with the status that an operator would write, without an operator.
async fn pool(harness: &Harness, name: &str, spec: Value, status: Value) {
    harness.apply_pool_named(name, spec).await;
    merge_status(&harness.pools(), name, json!({"status": status})).await;
}

/// An entry of `status.runtimeClasses`.
fn class_status(name: &str, build: &str, state: &str) -> Value {
    let isolation = if name.ends_with("hyperv") { "HyperV" } else { "Process" };
    json!({
        "name": name, "build": build, "isolation": isolation, "handler": "runhcs-wcow-process", "state": state, "nodes": 1,
    })
}

async fn namespace(client: &Client, name: &str, labels: Value) {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

fn pods(client: &Client, namespace: &str) -> Api<Pod> {
    Api::namespaced(client.clone(), namespace)
}

/// A pod with this merged into its spec.
fn pod(spec: &Value) -> Value {
    let mut all = json!({"containers": [{"name": "app", "image": "example.com/app:1.4"}]});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"metadata": {"name": "probe"}, "spec": all})
}

/// The containers of a pod with these images.
fn with_images(images: &[&str]) -> Value {
    let containers = images.iter().enumerate();
    let containers = containers.map(|(index, image)| json!({"name": format!("c{index}"), "image": image}));
    json!({"containers": containers.collect::<Vec<_>>()})
}

/// A required node affinity of these terms.
fn required(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

/// The object without the fields that differ between creations and between namespaces.
fn comparable(pod: &Pod) -> Value {
    let mut pod = json!(pod);
    let metadata = pod["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| !matches!(field.as_str(), "uid" | "creationTimestamp" | "namespace" | "managedFields"));
    pod
}

/// The patch of `kubectl rollout restart`.
fn restart() -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}}})
}

/// Waits until pods of the newest template run, one on each of these nodes and nowhere else.
async fn runs_on(client: &Client, name: &str, nodes: &[&str]) {
    let (pods, of_set) = (pods(client, "default"), ListParams::default().labels(&format!("app={name}")));
    let running = async || {
        let mut pods = pods.list(&of_set).await?.items;
        pods.retain(|pod| phase(pod) == Some("Running") && pod.metadata.deletion_timestamp.is_none());
        let mut on: Vec<_> = pods.iter().filter_map(node_of).collect();
        on.sort_unstable();
        Ok((on == nodes).then_some(()))
    };
    wait_for(&format!("{name} runs on {nodes:?}"), LIMIT, running).await.unwrap();
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// Waits until the DaemonSet has this number of pods, all of its newest template: the rule of `kubectl rollout status`.
pub(super) async fn rolled_out(client: &Client, name: &str, number: i32) {
    let sets: Api<DaemonSet> = Api::default_namespaced(client.clone());
    let done = async || {
        let set = sets.get(name).await?;
        let status = set.status.filter(|status| status.observed_generation == set.metadata.generation);
        let numbers = status.map(|status| {
            let (updated, available) = (status.updated_number_scheduled, status.number_available);
            [status.desired_number_scheduled, updated.unwrap_or_default(), available.unwrap_or_default()]
        });
        Ok((numbers == Some([number; 3])).then_some(()))
    };
    wait_for(&format!("{name} is rolled out to {number} nodes"), LIMIT, done).await.unwrap();
}
