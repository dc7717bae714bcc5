//! The cluster in which winpool is installed, and its state after the removal.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::WindowsPool;
use winpool_e2e::harness::host::HostNode;
use winpool_e2e::machine::assets::Component;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::servers::lending::lend_cluster;

pub const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config");
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/winpool");
pub const NAMESPACE: &str = "winpool-system";
const WINDOWS: [&str; 3] = ["win-2019", "win-2022", "win-2025"];

/// A cluster with Windows nodes, and a Linux node that runs the operator.
pub struct Scene {
    pub cluster: Cluster,
    _host: HostNode,
    helm: Component,
    /// The Windows nodes before the installation.
    before: BTreeMap<&'static str, Value>,
}

impl Scene {
    pub async fn new() -> Self {
        Self::with(Component::Helm).await
    }

    /// A scene in which this version of Helm installs.
    pub async fn with(helm: Component) -> Self {
        let cluster = lend_cluster().await.unwrap();
        let host = HostNode::join(&cluster, "linux", Path::new(env!("CARGO_BIN_EXE_winpool-operator"))).await;
        let mut before = BTreeMap::new();
        for (name, build) in WINDOWS.into_iter().zip(["10.0.17763.6659", "10.0.20348.2655", "10.0.26100.4061"]) {
            SimulatedNode::windows(build).name(name).join(&cluster.client()).await.unwrap();
            before.insert(name, face(&cluster.node_ready(name).await.unwrap()));
        }
        Self { cluster, _host: host, helm, before }
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        Component::Kubectl.run(self.cluster.kubeconfig(), arguments).await.unwrap()
    }

    pub async fn helm(&self, arguments: &[&str]) -> String {
        self.helm.run(self.cluster.kubeconfig(), arguments).await.unwrap()
    }

    pub async fn operator_is_ready(&self) {
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let ready = async || {
            let deployment = deployments.get_opt("winpool").await?;
            Ok(deployment
                .and_then(|deployment| deployment.status)
                .filter(|status| status.available_replicas == Some(2)))
        };
        self.cluster.wait_for("both replicas are available", ready).await.unwrap();
    }

    /// Applies a pool with all defaults and waits until it is complete.
    pub async fn pool_is_ready(&self) {
        winpool_e2e::scene::pool_gets_ready(&self.cluster).await.unwrap();
        for (name, before) in &self.before {
            assert_ne!(&face(&self.node(name).await), before, "{name}");
        }
        assert_eq!(self.classes().await, ["windows-2019", "windows-2022", "windows-2025"]);
    }

    /// Checks that nodes are as they were, and classes are gone.
    pub async fn is_clean(&self) {
        for (name, before) in &self.before {
            assert_eq!(&face(&self.node(name).await), before, "{name}");
        }
        assert_eq!(self.classes().await, [""; 0]);
    }

    /// Checks that nothing of the installation is left, except the CRD if it is kept.
    pub async fn is_gone(&self, definition_is_kept: bool) {
        let client = self.cluster.client();
        for name in ["winpool", "winpool-help-pods"] {
            assert!(Api::<ClusterRole>::all(client.clone()).get_opt(name).await.unwrap().is_none(), "{name}");
            assert!(Api::<ClusterRoleBinding>::all(client.clone()).get_opt(name).await.unwrap().is_none(), "{name}");
        }
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let definition = definitions.get_opt("windowspools.winpool.dev").await.unwrap();
        assert_eq!(definition.is_some(), definition_is_kept);
        if definition_is_kept {
            let pool = Api::<WindowsPool>::all(client).get("default").await.unwrap();
            assert_eq!(pool.finalizers(), [""; 0]);
            return;
        }
        assert!(Api::<Namespace>::all(client).get_opt(NAMESPACE).await.unwrap().is_none());
    }

    pub fn directory(&self) -> PathBuf {
        self.cluster.api_server().directory().to_owned()
    }

    async fn node(&self, name: &str) -> Node {
        Api::<Node>::all(self.cluster.client()).get(name).await.unwrap()
    }

    async fn classes(&self) -> Vec<String> {
        let classes: Api<RuntimeClass> = Api::all(self.cluster.client());
        classes.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
    }
}

/// The fields of a node that winpool may change.
fn face(node: &Node) -> Value {
    let of_winpool = |key: &String| key.contains("winpool.dev/");
    // Kubernetes adds and removes its own taints with the condition of the node.
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let taints = taints.filter(|taint| !taint.key.starts_with("node.kubernetes.io/"));
    json!({
        "labels": node.labels(),
        "annotations": node.annotations().keys().filter(|key| of_winpool(key)).collect::<Vec<_>>(),
        "taints": taints.collect::<Vec<_>>(),
    })
}
