//! The clusters on which pages are tested.

use std::path::Path;

use winpool_e2e::harness::host::HostNode;
use winpool_e2e::machine::assets::Component;
use winpool_e2e::nodes::samples::Sample;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::{self, OperatorTask, install_crd, windows_servers};
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::servers::lending::lend_cluster;

const POOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/windowspool.yaml");

/// A cluster, and what runs on it.
pub struct Scene {
    cluster: Option<Cluster>,
    /// Runs the pods of an operator that the page installs.
    _host: Option<HostNode>,
    _operator: Option<OperatorTask>,
}

impl Scene {
    /// Sets the scene of this name.
    pub async fn set(name: &str) -> Self {
        match name {
            // No cluster: the commands read manifests.
            "files" => Self { cluster: None, _host: None, _operator: None },
            // Windows Server 2019, 2022 and 2025 beside Linux, as they register; nothing is installed.
            "windows-nodes" => Self::bare(windows_servers(), Operated::ByPods).await,
            // The same with a running winpool, and a pool with all defaults that is Ready.
            "winpool" => Self::bare(windows_servers(), Operated::Here).await.with_pool().await,
            // The same without any pool.
            "operator" => Self::bare(windows_servers(), Operated::Here).await,
            // One node of each cloud, as they are created there.
            "clouds" => Self::bare(clouds(), Operated::Here).await,
            other => panic!("there is no scene {other}"),
        }
    }

    pub fn kubeconfig(&self) -> String {
        let path = self.cluster.as_ref().map_or(Path::new("/nonexistent"), |cluster| cluster.kubeconfig());
        path.display().to_string()
    }

    async fn bare(nodes: Vec<SimulatedNode>, operated: Operated) -> Self {
        let cluster = lend_cluster().await.unwrap();
        scene::join(&cluster, nodes).await.unwrap();
        match operated {
            Operated::ByPods => {
                let host = HostNode::join(&cluster, "linux", Path::new(env!("CARGO_BIN_EXE_winpool-operator"))).await;
                Self { cluster: Some(cluster), _host: Some(host), _operator: None }
            }
            Operated::Here => {
                scene::join(&cluster, [SimulatedNode::linux()]).await.unwrap();
                install_crd(&cluster.client()).await.unwrap();
                let operator = OperatorTask::start(cluster.api_server().config().unwrap());
                Self { cluster: Some(cluster), _host: None, _operator: Some(operator) }
            }
        }
    }

    /// By kubectl, so that a reader may apply another one over it.
    async fn with_pool(self) -> Self {
        let kubeconfig = self.cluster.as_ref().unwrap().kubeconfig();
        for arguments in [&["apply", "-f", POOL][..], &["wait", "--for=condition=Ready", "winpool/default"]] {
            Component::Kubectl.run(kubeconfig, arguments).await.unwrap();
        }
        self
    }
}

/// The place where the operator runs.
enum Operated {
    /// In pods, once the page has installed it.
    ByPods,
    /// In this process, from the start.
    Here,
}

/// Nodes as these clouds create them: see [`Sample`].
fn clouds() -> Vec<SimulatedNode> {
    vec![
        SimulatedNode::sample(Sample::S1),
        SimulatedNode::sample(Sample::S8),
        SimulatedNode::server_2019("gke-windows").taint("node.kubernetes.io/os", "windows", "NoSchedule"),
        SimulatedNode::server_2022("openshift-windows").taint("os", "Windows", "NoSchedule"),
    ]
}
