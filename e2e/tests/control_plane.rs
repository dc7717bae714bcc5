//! The control plane does what the other tests rely on.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use winpool_e2e::error::Result;
use winpool_e2e::machine::assets::kubernetes_version;
use winpool_e2e::machine::process::Process;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::lending::{lend, lend_cluster};
use winpool_e2e::servers::version::{MUTATING_ADMISSION_POLICY, running_kubernetes};

#[tokio::test]
async fn the_server_is_the_pinned_kubernetes() -> Result<()> {
    let api = lend().await?;
    let version = api.client().apiserver_version().await?;
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        assert_eq!(version.git_version, kubernetes_version()?);
    }
    let running = running_kubernetes().await?;
    assert_eq!((version.major, version.minor), ("1".to_owned(), running.to_string()));
    Ok(())
}

#[tokio::test]
async fn tests_are_skipped_only_for_apis_that_the_server_does_not_serve() -> Result<()> {
    let api = lend().await?;
    let kinds = api.client().list_api_group_resources("admissionregistration.k8s.io/v1").await?.resources;
    let served = kinds.iter().any(|kind| kind.name == "mutatingadmissionpolicies");
    assert_eq!(MUTATING_ADMISSION_POLICY.is_there().await?, served);
    Ok(())
}

#[tokio::test]
async fn a_kubelet_may_write_its_own_node_only_and_no_taints() -> Result<()> {
    let api = lend().await?;
    for name in ["mine", "other"] {
        let node = SimulatedNode::server_2022(name);
        node.taint("os", "windows", "NoSchedule").join(&api.client()).await?;
    }
    let kubelet = api.client_as("system:node:mine", &["system:nodes"])?;
    label_node(&kubelet, "mine", "example.com/a").await.expect("its own node");
    for (node, key) in [("other", "example.com/a"), ("mine", "node-restriction.kubernetes.io/a")] {
        let refused = label_node(&kubelet, node, key).await;
        assert!(is_forbidden(&refused), "{node} {key}: {refused:?}");
    }
    let untaint = json!({"spec": {"taints": null}});
    let refused = patch_node(&kubelet, "mine", &untaint).await;
    assert!(is_forbidden(&refused), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_dropped_cluster_leaves_no_process_and_no_file() -> Result<()> {
    let cluster = lend_cluster().await?;
    let [_, own @ ..] = cluster.processes().map(Process::pid);
    let directory = cluster.api_server().directory().to_owned();
    assert!(directory.exists());
    assert_eq!(own.map(runs), [true; 4]);
    drop(cluster);
    assert_eq!(own.map(runs), [false; 4]);
    assert!(!directory.exists());
    Ok(())
}

#[tokio::test]
async fn a_killed_owner_leaves_no_process_and_no_file() -> Result<()> {
    let mut owner = PlaygroundCluster::start();
    assert_eq!(owner.pids.len(), 5);
    assert!(owner.pids.iter().copied().all(runs));
    owner.process.kill().expect("it runs");
    owner.process.wait().expect("it ends");
    wait_for("everything is gone", LIMIT, async || {
        let gone = !owner.pids.iter().copied().any(runs) && !owner.directory.exists();
        Ok(gone.then_some(()))
    })
    .await
}

/// The program for use by hand, ended at the latest when this is dropped.
struct PlaygroundCluster {
    process: Child,
    pids: Vec<u32>,
    directory: PathBuf,
}

impl PlaygroundCluster {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_cluster"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let directory = kubeconfig_in_first_line(&mut process).parent().unwrap().to_owned();
        let pids = pids_in_introduction(&mut process);
        Self { process, pids, directory }
    }
}

impl Drop for PlaygroundCluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lines(reader: impl std::io::Read) -> impl Iterator<Item = String> {
    use std::io::BufRead;
    std::io::BufReader::new(reader).lines().map_while(std::io::Result::ok)
}

fn kubeconfig_in_first_line(process: &mut Child) -> PathBuf {
    let line = lines(process.stdout.take().unwrap()).next().expect("a line");
    let value = line.strip_prefix("export KUBECONFIG=").and_then(|rest| rest.split(' ').next());
    PathBuf::from(value.expect("an export line"))
}

fn pids_in_introduction(process: &mut Child) -> Vec<u32> {
    let line = lines(process.stderr.take().unwrap())
        .find_map(|line| line.trim_start().strip_prefix("processes of the control plane: ").map(str::to_owned))
        .expect("its processes");
    line.split(' ').map(|pid| pid.parse().expect("a pid")).collect()
}

/// True if the process exists and is not a zombie.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

async fn label_node(client: &Client, node: &str, key: &str) -> kube::Result<Node> {
    patch_node(client, node, &json!({"metadata": {"labels": {key: "x"}}})).await
}

async fn patch_node(client: &Client, node: &str, patch: &Value) -> kube::Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn is_forbidden<T>(result: &kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}
