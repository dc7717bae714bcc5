//! `winpool fix` before `kubectl apply`, with the real scheduler: the pods of a chart without selectors land on Linux.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use winpool_e2e::machine::assets::Component;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::join;
use winpool_e2e::servers::lending::lend_cluster;

use super::{notes, out, winpool};
use crate::input::with_input;

/// What `helm template` prints of a chart whose author did not think of Windows: no object selects a system.
const CHART: &str = "\
---
# Source: shop/templates/web.yaml
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'nginx:1.27'}]}
---
# Source: shop/templates/store.yaml
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  replicas: 3
  podManagementPolicy: Parallel
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: store, image: 'redis:7'}]}
---
# Source: shop/templates/agent.yaml
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: agent, image: 'fluent-bit:3'}]}
---
# Source: shop/templates/migrate.yaml
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  parallelism: 3
  template:
    metadata: {labels: {app: migrate}}
    spec: {restartPolicy: Never, containers: [{name: migrate, image: 'migrate:4'}]}
";

/// The nodes of the pods in this namespace, as soon as the scheduler has placed so many.
async fn nodes(cluster: &winpool_e2e::servers::cluster::Cluster, namespace: &str, number: usize) -> BTreeSet<String> {
    let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
    let placed = async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        let nodes = pods.into_iter().filter_map(|pod| pod.spec?.node_name);
        let nodes: Vec<String> = nodes.collect();
        Ok((nodes.len() == number).then_some(nodes))
    };
    let placed = cluster.wait_for(&format!("{number} pods of {namespace} have nodes"), placed).await.unwrap();
    placed.into_iter().collect()
}

#[tokio::test]
async fn the_pods_of_a_chart_without_selectors_are_bound_to_linux_nodes_only() {
    let cluster = lend_cluster().await.unwrap();
    let linux = ["linux-a", "linux-b"].map(|name| SimulatedNode::linux().name(name));
    let windows = ["win-a", "win-b"].map(SimulatedNode::server_2022);
    join(&cluster, linux.into_iter().chain(windows)).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    for name in ["raw", "fixed"] {
        let namespace = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let kubectl = Component::Kubectl.path().await.unwrap();
    let apply = |namespace: &str, stream: &str| {
        let mut command = Command::new(&kubectl);
        command.args(["apply", "-n", namespace, "-f", "-"]).env("KUBECONFIG", cluster.kubeconfig());
        let applied = with_input(&mut command, stream);
        assert!(applied.status.success(), "{}", notes(&applied));
    };
    // Without taints the scheduler uses every node.
    apply("raw", CHART);
    let nodes_of_raw = nodes(&cluster, "raw", 6 + 3 + 4 + 3).await;
    assert_eq!(nodes_of_raw.into_iter().collect::<Vec<_>>(), ["linux-a", "linux-b", "win-a", "win-b"]);

    let fixed = winpool(&["fix", "-f", "-"], Path::new("/"), CHART);
    assert_eq!(fixed.status.code(), Some(0), "{}", notes(&fixed));
    apply("fixed", &out(&fixed));
    let nodes_of_fixed = nodes(&cluster, "fixed", 6 + 3 + 2 + 3).await;
    assert_eq!(nodes_of_fixed.into_iter().collect::<Vec<_>>(), ["linux-a", "linux-b"]);
}
