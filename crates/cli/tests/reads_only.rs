//! No command changes anything in a cluster.

use std::collections::BTreeSet;
use std::process::Command;

use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_core::api::{WindowsPool, WindowsPoolSpec};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::lending::lend;

/// A kubeconfig with which the audit log tells these requests apart.
fn as_reader(server: &ApiServer) -> std::path::PathBuf {
    let mut kubeconfig: Value = serde_json::from_slice(&std::fs::read(server.kubeconfig()).unwrap()).unwrap();
    let credentials = kubeconfig["users"][0]["user"].as_object_mut().unwrap();
    credentials
        .extend([("as".to_owned(), json!("winpool-reader")), ("as-groups".to_owned(), json!(["system:masters"]))]);
    let file = server.directory().join("kubeconfig-reader");
    std::fs::write(&file, kubeconfig.to_string()).unwrap();
    file
}

#[tokio::test]
async fn an_api_server_sees_only_reads() {
    let server = lend().await.unwrap();
    let (client, audit) = (server.client(), server.audit());
    install_crd(&client).await.unwrap();
    SimulatedNode::server_2022("win").join(&client).await.unwrap();
    let pools: Api<WindowsPool> = Api::all(client.clone());
    pools.create(&PostParams::default(), &WindowsPool::new("default", WindowsPoolSpec::default())).await.unwrap();
    let kubeconfig = as_reader(&server);
    for arguments in [
        &["status"][..],
        &["plan"],
        &["why", "node/win"],
        &["why", "class/windows-2022"],
        &["check", "-A"],
        &["blockers", "--retire", "2019"],
        &["report"],
        &["images", "--offline"],
        &["render", "kubelet"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        let output = command.args(arguments).env("KUBECONFIG", &kubeconfig).output().unwrap();
        assert!(!output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
    let events = audit.events();
    let verbs: BTreeSet<&str> = events.iter().filter_map(|event| event["verb"].as_str()).collect();
    assert_eq!(verbs, BTreeSet::from(["get", "list"]));
}
