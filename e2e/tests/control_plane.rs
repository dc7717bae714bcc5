//! The control plane does what the other tests rely on.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use winpool_e2e::error::Result;
use winpool_e2e::harness::objects::{NOT_READY, label, taints};
use winpool_e2e::machine::assets::{Component, kubernetes_version};
use winpool_e2e::machine::process::Process;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::samples::Sample;
use winpool_e2e::nodes::simulated::{SimulatedNode, WINDOWS_BUILD};
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
async fn kubectl_is_the_pinned_one_and_reaches_the_server() -> Result<()> {
    let api = lend().await?;
    let versions = Component::Kubectl.run(api.kubeconfig(), &["version", "-o", "json"]).await?;
    let versions: Value = serde_json::from_str(&versions).expect("JSON");
    assert_eq!(versions["clientVersion"]["gitVersion"], "v1.37.1");
    assert_eq!(versions["serverVersion"]["gitVersion"], api.client().apiserver_version().await?.git_version);
    let refused = Component::Kubectl.run(api.kubeconfig(), &["get", "nodes", "nobody"]).await.unwrap_err().to_string();
    assert!(refused.starts_with("`kubectl get nodes nobody` failed"), "{refused}");
    assert!(refused.contains(r#"nodes "nobody" not found"#), "{refused}");
    Ok(())
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn helm_is_the_pinned_one_and_reaches_the_server() -> Result<()> {
    let api = lend().await?;
    for (helm, version) in [(Component::Helm, "v4.3.1"), (Component::Helm3, "v3.22.0")] {
        assert_eq!(helm.run(api.kubeconfig(), &["version", "--template={{.Version}}"]).await?, version);
        assert_eq!(helm.run(api.kubeconfig(), &["list", "--short"]).await?, "");
    }
    Ok(())
}

#[tokio::test]
async fn two_lent_servers_do_not_see_each_others_nodes() -> Result<()> {
    let (first, second) = tokio::try_join!(lend(), lend())?;
    SimulatedNode::linux().name("here").join(&first.client()).await?;
    assert_eq!(node_names(&first.client()).await?, ["here"]);
    assert!(node_names(&second.client()).await?.is_empty());
    assert_ne!(first.url(), second.url());
    Ok(())
}

#[tokio::test]
async fn every_sample_node_registers_with_its_known_properties() -> Result<()> {
    let api = lend().await?;
    for sample in Sample::ALL {
        let kubelet = SimulatedNode::sample(sample).join(&api.client()).await?;
        let node = kubelet.get().await?;
        let has_build = label(&node, WINDOWS_BUILD).is_some();
        let minor: u32 = info(&node, "kubeletVersion").split('.').nth(1).unwrap().parse().unwrap();
        assert_eq!(has_build, minor >= 17, "{sample:?}");
        assert_eq!(info(&node, "operatingSystem"), "windows");
    }
    let spot = SimulatedNode::sample(Sample::S1).node();
    assert_eq!(label(&spot, WINDOWS_BUILD), Some("10.0.20348"));
    let newborn = api_node(&api.client(), "aksnpw22000000").await?;
    assert_eq!(taints(&newborn), ["kubernetes.azure.com/scalesetpriority=spot:NoSchedule", NOT_READY]);
    Ok(())
}

#[tokio::test]
async fn a_kubelet_reports_heartbeats_and_another_windows() -> Result<()> {
    let api = lend().await?;
    let node = SimulatedNode::windows("10.0.17763.6659").ready();
    let kubelet = node.name("win").join(&api.client()).await?;
    let before = kubelet.get().await?;
    kubelet.heartbeat().await?;
    let after = kubelet.get().await?;
    assert_ne!(before.metadata.resource_version, after.metadata.resource_version);
    assert_eq!(before.metadata.labels, after.metadata.labels);
    assert_eq!(before.spec, after.spec);
    assert_eq!(ready(&after), Some("True"));

    let upgraded = kubelet.upgrade_in_place("10.0.20348.2655").await?;
    let node = upgraded.get().await?;
    assert_eq!(info(&node, "kernelVersion"), "10.0.20348.2655");
    assert_eq!(label(&node, WINDOWS_BUILD), Some("10.0.20348"));

    let stale = upgraded.upgrade_in_place_without_label("10.0.26100.4061").await?;
    let node = stale.get().await?;
    assert_eq!(info(&node, "kernelVersion"), "10.0.26100.4061");
    assert_eq!(label(&node, WINDOWS_BUILD), Some("10.0.20348"));

    let linux = stale.reimage(SimulatedNode::linux()).await?;
    let node = linux.get().await?;
    assert_eq!(label(&node, "kubernetes.io/os"), Some("linux"));
    assert_eq!(label(&node, WINDOWS_BUILD), Some("10.0.20348"), "it stays without winpool");
    linux.leave().await?;
    assert!(node_names(&api.client()).await?.is_empty());
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

async fn node_names(client: &Client) -> Result<Vec<String>> {
    let nodes: Api<Node> = Api::all(client.clone());
    let list = nodes.list(&ListParams::default()).await?;
    Ok(list.items.into_iter().filter_map(|node| node.metadata.name).collect())
}

async fn api_node(client: &Client, name: &str) -> Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    Ok(nodes.get(name).await?)
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

fn info(node: &Node, field: &str) -> String {
    let node = serde_json::to_value(node).expect("a node is JSON");
    node["status"]["nodeInfo"][field].as_str().unwrap_or_default().to_owned()
}

fn ready(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(&ready.status)
}
