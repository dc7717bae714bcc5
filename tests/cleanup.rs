//! `winpool-operator cleanup` as a process, beside a real API server.

use std::process::{Command, Output, Stdio};

use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use winpool_core::api::{WindowsPool, WindowsPoolSpec};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::api_server::ApiServer;
use winpool_e2e::servers::lending::lend;

#[tokio::test]
async fn cleanup_lists_what_it_removes_and_asks_on_a_terminal() {
    let server = lend().await.unwrap();
    let client = server.client();
    install_crd(&client).await.unwrap();
    let pool = WindowsPool::new("default", WindowsPoolSpec::default());
    Api::<WindowsPool>::all(client.clone()).create(&PostParams::default(), &pool).await.unwrap();
    let node = SimulatedNode::server_2022("win").label("winpool.dev/pool", "default");
    node.annotation("winpool.dev/applied", r#"{"pool":"default","taints":[]}"#).join(&client).await.unwrap();
    let marks = async || {
        let node: Node = Api::all(client.clone()).get("win").await.unwrap();
        node.labels().keys().chain(node.annotations().keys()).filter(|key| key.contains("winpool.dev")).count()
    };
    let shown = "1 Node with winpool's labels, annotation and taints:\n  win\n";

    let dry_run = cleanup(&server, &["--dry-run"]);
    assert_eq!(dry_run.status.code(), Some(2), "{dry_run:?}");
    assert!(text(&dry_run.stdout).contains(shown), "{dry_run:?}");
    let unasked = cleanup(&server, &[]);
    assert_eq!(unasked.status.code(), Some(1), "{unasked:?}");
    assert!(text(&unasked.stdout).contains(shown), "{unasked:?}");
    assert!(text(&unasked.stderr).contains("there is no terminal to ask on; nothing was changed"), "{unasked:?}");
    assert_eq!(marks().await, 2);

    let yes = cleanup(&server, &["--yes"]);
    assert_eq!(yes.status.code(), Some(0), "{yes:?}");
    assert!(text(&yes.stdout).contains(shown) && text(&yes.stdout).ends_with("Done.\n"), "{yes:?}");
    assert_eq!(marks().await, 0);
    let again = cleanup(&server, &["--dry-run"]);
    assert_eq!(again.status.code(), Some(0), "{again:?}");
    assert!(text(&again.stdout).starts_with("winpool has nothing to remove in https://"), "{again:?}");

    let elsewhere = cleanup(&server, &["--yes", "--context", "elsewhere"]);
    assert_eq!(elsewhere.status.code(), Some(1), "{elsewhere:?}");
    assert!(text(&elsewhere.stderr).contains("cannot use context elsewhere of the kubeconfig"), "{elsewhere:?}");
}

fn cleanup(server: &ApiServer, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool-operator"));
    let command = command.arg("cleanup").args(arguments).env("KUBECONFIG", server.kubeconfig()).stdin(Stdio::null());
    command.args(["--lease-namespace", "default"]).output().expect("the program starts")
}

fn text(output: &[u8]) -> &str {
    std::str::from_utf8(output).unwrap()
}
