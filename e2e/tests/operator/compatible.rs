//! Classes for several builds, and `DaemonSets` without a toleration, with a real scheduler and controllers.

use k8s_openapi::{api::apps::v1::DaemonSet, jiff::Timestamp};
use kube::api::DynamicObject;
use winpool_e2e::{manifests::apply, prelude::*, scene};

const STAMP: &str = "runtimeclass.winpool.dev/any-2022";

async fn cluster_with(nodes: impl IntoIterator<Item = SimulatedNode>) -> Cluster {
    let cluster = lend_cluster().await.unwrap();
    for node in nodes {
        let node = node.join(&cluster.client()).await.unwrap();
        cluster.node_ready(node.name()).await.unwrap();
    }
    scene::install_crd(&cluster.client()).await.unwrap();
    cluster
}

/// A Linux node and one of each Windows Server that Kubernetes lists; 2025 with this containerd.
async fn cluster_of_three_windows(containerd: &str) -> Cluster {
    cluster_with([
        SimulatedNode::linux().name("linux"),
        SimulatedNode::windows("10.0.17763.6659").name("win-2019"),
        SimulatedNode::windows("10.0.20348.2655").name("win-2022"),
        SimulatedNode::windows("10.0.26100.4061").name("win-2025").container_runtime(containerd),
    ])
    .await
}

async fn pool_until(cluster: &Cluster, spec: Value, what: &str, holds: impl Fn(&WindowsPool) -> bool) -> WindowsPool {
    let pool = json!({
        "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": "default"}, "spec": spec,
    });
    apply(&cluster.client(), &[serde_json::from_value(pool).unwrap()]).await.unwrap();
    let pools: Api<WindowsPool> = Api::all(cluster.client());
    let seen = async || {
        let pool = pools.get("default").await?;
        let current = pool.status.as_ref().and_then(|s| s.observed_generation) == pool.metadata.generation;
        Ok((current && holds(&pool)).then_some(pool))
    };
    cluster.wait_for(&format!("the pool {what}"), seen).await.unwrap()
}

fn is_ready(pool: &WindowsPool) -> bool {
    condition(pool, "Ready") == Some("True")
}

fn wide_classes() -> Value {
    json!({"runtimeClasses": [
        {"name": "any-2022", "version": "2022", "hostMatch": "Compatible"},
        {"name": "any-windows", "version": "Any"},
    ]})
}

/// A Deployment with more replicas than there are nodes, each on a node of its own.
fn spread(class: &str) -> DynamicObject {
    let labels = json!({"app": class});
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": class},
        "spec": {"replicas": 5, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "runtimeClassName": class,
                "containers": [{"name": "c", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
                "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}},
                ]}},
            },
        }},
    }))
    .unwrap()
}

/// Deploys it and waits until the scheduler has bound its pods to these nodes, and found none for the rest.
async fn lands_on(cluster: &Cluster, class: &str, expected: &[&str]) {
    apply(&cluster.client(), &[spread(class)]).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let of_class = ListParams::default().labels(&format!("app={class}"));
    let decided = async || {
        let pods = pods.list(&of_class).await?.items;
        let done = pods.len() == 5 && pods.iter().all(|pod| node_of(pod).is_some() || unschedulable(pod).is_some());
        let mut nodes: Vec<&str> = pods.iter().filter_map(node_of).collect();
        nodes.sort_unstable();
        Ok((done && nodes == expected).then_some(()))
    };
    cluster.wait_for(&format!("pods of {class} run on {expected:?} only"), decided).await.unwrap();
}

async fn stamped(cluster: &Cluster) -> Vec<String> {
    let stamped = ListParams::default().labels(&format!("{STAMP}=true"));
    let nodes = Api::<Node>::all(cluster.client()).list(&stamped).await.unwrap();
    nodes.iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn a_compatible_2022_class_runs_on_2022_and_2025_and_one_of_any_version_on_every_windows() {
    let cluster = cluster_of_three_windows("containerd://1.7.19").await;
    let operator = Operator::on(&cluster).await;
    pool_until(&cluster, wide_classes(), "is Ready", is_ready).await;
    assert_eq!(stamped(&cluster).await, ["win-2022", "win-2025"]);
    lands_on(&cluster, "any-2022", &["win-2022", "win-2025"]).await;
    lands_on(&cluster, "any-windows", &["win-2019", "win-2022", "win-2025"]).await;
    operator.stop().await;
}

#[tokio::test]
async fn a_2025_node_with_containerd_before_1_7_19_runs_no_2022_pods_by_a_compatible_class() {
    let cluster = cluster_of_three_windows("containerd://1.7.18").await;
    let operator = Operator::on(&cluster).await;
    pool_until(&cluster, wide_classes(), "is Ready", is_ready).await;
    assert_eq!(stamped(&cluster).await, ["win-2022"]);
    lands_on(&cluster, "any-2022", &["win-2022"]).await;
    operator.stop().await;
}

/// A Windows DaemonSet as it works on nodes without a taint.
fn agent() -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {
                "os": {"name": "windows"},
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "containers": [{"name": "c", "image": "mcr.microsoft.com/windows/servercore:ltsc2022"}],
            },
        }},
    }))
    .unwrap()
}

/// Waits for these numbers of pods of the DaemonSet: desired, updated and available.
async fn numbers_become(cluster: &Cluster, expected: [i32; 3]) {
    let sets: Api<DaemonSet> = Api::default_namespaced(cluster.client());
    let settled = async || {
        let set = sets.get("agent").await?;
        let status = set.status.filter(|status| status.observed_generation == set.metadata.generation);
        let numbers = status.map(|status| {
            let or_none = Option::unwrap_or_default;
            [
                status.desired_number_scheduled,
                or_none(status.updated_number_scheduled),
                or_none(status.number_available),
            ]
        });
        Ok((numbers == Some(expected)).then_some(()))
    };
    cluster.wait_for(&format!("DaemonSet agent has {expected:?} pods"), settled).await.unwrap();
}

async fn pods_of_agent(cluster: &Cluster) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut pods = pods.list(&ListParams::default().labels("app=agent")).await.unwrap().items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    pods
}

/// Restarts the DaemonSet like `kubectl rollout restart`.
async fn rollout_restart(cluster: &Cluster) {
    let annotations = json!({"kubectl.kubernetes.io/restartedAt": Timestamp::now().to_string()});
    let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    let sets: Api<DaemonSet> = Api::default_namespaced(cluster.client());
    sets.patch("agent", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
}

async fn cluster_with_agents() -> Cluster {
    let cluster =
        cluster_with(["win-a", "win-b"].map(|name| SimulatedNode::windows("10.0.20348.2655").name(name))).await;
    apply(&cluster.client(), &[agent()]).await.unwrap();
    numbers_become(&cluster, [2, 2, 2]).await;
    cluster
}

async fn are_tainted(cluster: &Cluster) -> Vec<bool> {
    let nodes = Api::<Node>::all(cluster.client()).list(&ListParams::default()).await.unwrap();
    nodes.iter().map(|node| has_taint(node, OS_WINDOWS)).collect()
}

#[tokio::test]
async fn with_always_a_daemon_set_has_no_pods_after_its_next_rollout() {
    let cluster = cluster_with_agents().await;
    let operator = Operator::on(&cluster).await;
    pool_until(&cluster, json!({"taintPolicy": "Always"}), "is Ready", is_ready).await;
    assert_eq!(are_tainted(&cluster).await, [true, true]);
    assert_eq!(pods_of_agent(&cluster).await.len(), 2, "the harm does not show yet");
    rollout_restart(&cluster).await;
    numbers_become(&cluster, [0, 0, 0]).await;
    // Old pods go one by one, and the numbers do not count them.
    let none = async || Ok(pods_of_agent(&cluster).await.is_empty().then_some(()));
    cluster.wait_for("DaemonSet agent has no pods", none).await.unwrap();
    operator.stop().await;
}

#[tokio::test]
async fn by_default_the_taint_is_held_for_a_daemon_set_without_a_toleration() {
    let cluster = cluster_with_agents().await;
    let operator = Operator::on(&cluster).await;
    let pool = pool_until(&cluster, json!({}), "holds the taint", is_held).await;
    let (status, _, message) = condition_text(&pool, "TaintsApplied").unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("DaemonSet default/agent (2 pods)"), "{message}");

    let before: Vec<Option<String>> = pods_of_agent(&cluster).await.iter().map(ResourceExt::uid).collect();
    rollout_restart(&cluster).await;
    numbers_become(&cluster, [2, 2, 2]).await;
    let after = pods_of_agent(&cluster).await;
    assert_eq!(after.len(), 2);
    assert!(after.iter().all(|pod| !before.contains(&pod.uid())), "they are new ones");
    assert_eq!(are_tainted(&cluster).await, [false, false]);
    operator.stop().await;
}
