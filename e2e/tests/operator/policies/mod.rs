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

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Namespace};
use serde::{Serialize, de::DeserializeOwned};
use winpool_e2e::{ApiServer, prelude::*};

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
    let status = Patch::Merge(json!({"status": status}));
    harness.pools().patch_status(name, &PatchParams::default(), &status).await.unwrap();
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

/// A DaemonSet whose pods are like [`pod`].
fn daemon_set(name: &str, spec: &Value) -> Value {
    let mut template = pod(spec);
    template["metadata"] = json!({"labels": {"app": name}});
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
    })
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
async fn runs_on(cluster: &Cluster, name: &str, nodes: &[&str]) {
    let running = async || {
        let mut on = running_on(&cluster.client(), name).await?;
        on.sort();
        Ok((on == nodes).then_some(()))
    };
    cluster.wait_for(&format!("{name} runs on {nodes:?}"), running).await.unwrap();
}

async fn running_on(client: &Client, name: &str) -> winpool_e2e::Result<Vec<String>> {
    let pods = pods(client, "default").list(&ListParams::default().labels(&format!("app={name}"))).await?.items;
    let running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let on = |pod: Pod| pod.spec.and_then(|spec| spec.node_name).unwrap_or_default();
    Ok(pods.into_iter().filter(|pod| running(pod) && pod.metadata.deletion_timestamp.is_none()).map(on).collect())
}

/// The rule of `kubectl rollout status`.
async fn rolled_out(cluster: &Cluster, name: &str, number: usize) {
    let sets: Api<DaemonSet> = Api::default_namespaced(cluster.client());
    let done = async || {
        let set = sets.get(name).await?;
        let Some(status) = set.status else { return Ok(None) };
        let wanted = i32::try_from(number).ok();
        let current = status.observed_generation == set.metadata.generation;
        let all = [status.updated_number_scheduled, status.number_available] == [wanted; 2];
        Ok((current && all && Some(status.desired_number_scheduled) == wanted).then_some(()))
    };
    cluster.wait_for(&format!("{name} is rolled out to {number} nodes"), done).await.unwrap();
}
