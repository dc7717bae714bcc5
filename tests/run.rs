//! `winpool-operator run` as a process, beside a real API server.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use winpool_core::api::{WindowsPool, WindowsPoolSpec};
use winpool_e2e::machine::usage::Usage;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::{SimulatedNode, WINDOWS_BUILD};
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::lending::lend;
use winpool_e2e::servers::requests::sample;

use crate::program::{Program, command};

#[tokio::test]
async fn winpool_run_is_ready_counts_nodes_and_ends_on_sigterm() {
    let server = lend().await.unwrap();
    let client = server.client();
    for name in ["zebra-a", "zebra-b"] {
        SimulatedNode::server_2022(name).join(&client).await.unwrap();
    }
    let unreadable = SimulatedNode::windows("unreadable").name("zebra-c");
    unreadable.join(&client).await.unwrap();
    let mut program = Program::start(&server);
    program.answers("/healthz", "is healthy", |code, body| code == 200 && body == "ok").await;
    let (code, body) = program.get("/readyz").unwrap();
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("caches of nodes, pools and RuntimeClasses are not filled yet"), "{body}");

    // While it waits for the CRD, it rests.
    let cpu = || Usage::of(program.id()).unwrap().cpu_seconds;
    let before = cpu();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let used = cpu() - before;
    assert!(used < 1.0, "{used} s of CPU time in 2 s");
    install_crd(&client).await.unwrap();
    program.answers("/readyz", "is ready", |code, body| code == 200 && body == "ok").await;

    let pools: Api<WindowsPool> = Api::all(client.clone());
    let pool = WindowsPool::new("default", WindowsPoolSpec::default());
    pools.create(&PostParams::default(), &pool).await.unwrap();
    let converged = r#"winpool_nodes{pool="default",build="10.0.20348",state="converged"}"#;
    let writes = r#"winpool_kube_requests_total{verb="patch",resource="nodes",code="200"}"#;
    let blocked = r#"winpool_nodes{pool="default",build="unknown",state="blocked"}"#;
    let expected = [(converged, 2.0), (writes, 3.0), (blocked, 1.0)];
    let counted = |body: &str| expected.iter().all(|(name, count)| sample(body, name) == Some(*count));
    let text = program.answers("/metrics", "counts three nodes and their writes", |_, body| counted(body)).await;
    let created = r#"winpool_kube_requests_total{verb="create",resource="runtimeclasses",code="201"}"#;
    assert_eq!(sample(&text, created), Some(1.0));
    assert_eq!(sample(&text, r#"winpool_runtimeclasses{pool="default",state="Applied"}"#), Some(1.0));
    assert_eq!(sample(&text, "winpool_leader"), Some(1.0));
    is_open_metrics(&text);
    assert!(!text.contains("zebra"), "a label names a node:\n{text}");

    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    nodes.delete("zebra-a", &DeleteParams::default()).await.unwrap();
    program.answers("/metrics", "counts one node", |_, body| sample(body, converged) == Some(1.0)).await;

    let told = Instant::now();
    let status = program.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(told.elapsed() < Duration::from_secs(5), "{:?}", told.elapsed());
}

#[tokio::test]
async fn an_address_in_use_is_an_error_with_a_remedy() {
    let server = lend().await.unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let output = command(server.kubeconfig(), address).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains(&format!("cannot listen on {address}; choose another address with --listen")), "{errors}");
}

#[tokio::test]
async fn each_change_is_one_line_of_json_and_heartbeats_are_none() {
    let server = lend().await.unwrap();
    let client = server.client();
    install_crd(&client).await.unwrap();
    let pools: Api<WindowsPool> = Api::all(client.clone());
    let bare = SimulatedNode::server_2022("bare").without_label(WINDOWS_BUILD);
    let nodes = [bare.join(&client).await.unwrap()];
    let mut program = Program::start(&server);
    program.answers("/readyz", "is ready", |code, _| code == 200).await;
    pools.create(&PostParams::default(), &WindowsPool::new("default", WindowsPoolSpec::default())).await.unwrap();
    let ready = r#"winpool_pool_condition{pool="default",type="Ready",status="True"}"#;
    program.answers("/metrics", "has a pool that is Ready", |_, body| sample(body, ready) == Some(1.0)).await;

    // winpool logs this with the status that it writes, which may be later than the metric.
    let last = |lines: &Vec<Value>| lines.last().is_some_and(|line| line["message"] == "every node has its taints");
    let logged = async || Ok(Some(program.log_lines()).filter(last));
    let lines = wait_for("the log says that every node has its taints", LIMIT, logged).await.unwrap();
    let about = |message: &str| -> Vec<&Value> { lines.iter().filter(|line| line["message"] == message).collect() };
    assert!(lines.iter().all(|line| line["level"] == "INFO" && line["target"].is_string()), "{lines:#?}");
    assert_eq!(about("RuntimeClass written")[0]["class"], "windows-2022");
    let written = about("node written");
    assert_eq!(written.len(), 1, "{lines:#?}");
    assert_eq!((&written[0]["node"], &written[0]["pool"]), (&json!("bare"), &json!("default")));
    assert_eq!(written[0]["labels"], "node.kubernetes.io/windows-build=10.0.20348,winpool.dev/pool=default");
    assert_eq!(written[0]["taints_added"], "os=windows:NoSchedule");

    for _ in 0..20 {
        nodes[0].heartbeat().await.unwrap();
    }
    // An event that needs a write passes the same stream: after that write, the heartbeats were seen too.
    SimulatedNode::server_2022("new").join(&client).await.unwrap();
    let converged = r#"winpool_nodes{pool="default",build="10.0.20348",state="converged"}"#;
    program.answers("/metrics", "counts two nodes", |_, body| sample(body, converged) == Some(2.0)).await;
    let new = program.log_lines().split_off(lines.len());
    assert_eq!(new.len(), 1, "{new:#?}");
    assert_eq!((&new[0]["message"], &new[0]["node"]), (&json!("node written"), &json!("new")));
}

/// Each line is a comment of the format or a sample with a number, and the last one marks the end.
fn is_open_metrics(text: &str) {
    for line in text.lines() {
        let comment = ["# HELP ", "# TYPE "].iter().any(|start| line.starts_with(start)) || line == "# EOF";
        let number = || line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
        assert!(comment || number(), "{line}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
}
