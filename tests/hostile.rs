//! Nodes whose kubelets lie in every field that the API server accepts from them: the effect on logs, metrics, status,
//! Events and terminals, and on other nodes and pools.

use std::process::Command;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::{WindowsPool, names};
use winpool_core::words::is_command;
use winpool_e2e::harness::objects::recorded_in;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::install_crd;
use winpool_e2e::scene::program::program;
use winpool_e2e::servers::api_server::ApiServer;

use crate::program::{Program, command};

/// Clears the screen, sets the window's title, forges a line, reverses the text.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\r\nforged line\u{9b}31m\u{202e}\u{2028}";
const MINE: &str = "os=windows:NoSchedule";

/// The user of this node's kubelet: `NodeRestriction` and the Node authorizer check its requests.
fn kubelet(server: &ApiServer, node: &str) -> Client {
    server.client_as(&format!("system:node:{node}"), &["system:nodes"]).unwrap()
}

/// All fields that a kubelet can write on its node, invented. `kernel` is its Windows version.
fn liar(name: &str, kernel: &str) -> SimulatedNode {
    let claims = [MINE, "node.kubernetes.io/not-ready:NoSchedule", "dedicated=batch:NoSchedule", EVIL];
    let mut node = SimulatedNode::windows(kernel)
        .name(name)
        .without_label(names::WINDOWS_BUILD)
        .label(names::POOL, "other")
        .label("runs.winpool.dev/forged", "true")
        .os_image(&format!("{EVIL}{}", "x".repeat(10_000)))
        .container_runtime(&format!("containerd://{EVIL}"))
        .annotation(names::APPLIED, &json!({"pool": "other", "taints": claims, EVIL: EVIL}).to_string())
        .annotation(names::IGNORE, &format!("true{EVIL}"))
        .annotation("example.com/note", &EVIL.repeat(5_000))
        .taint("dedicated", "batch", "NoSchedule")
        .taint("os", &"X".repeat(63), "PreferNoSchedule");
    for number in 0..100 {
        node = node.label(&format!("example.com/{number}-{}", "k".repeat(55)), &"v".repeat(63));
    }
    node
}

async fn install(server: &ApiServer, client: &Client) {
    install_crd(client).await.unwrap();
    let pools: Api<WindowsPool> = Api::all(client.clone());
    for (name, spec) in [("default", json!({})), ("other", json!({"nodeSelector": {"none": "such"}}))] {
        let pool = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": name}, "spec": spec,
        });
        let pool: WindowsPool = serde_json::from_value(pool).unwrap();
        pools.create(&PostParams::default(), &pool).await.unwrap();
    }
    SimulatedNode::server_2022("honest").join(client).await.unwrap();
    liar("liar", EVIL).join(&kubelet(server, "liar")).await.unwrap();
    liar("crook", "10.0.29999.1").join(&kubelet(server, "crook")).await.unwrap();
}

/// The kubelet reverts winpool's changes until winpool backs off and names it.
async fn fight(server: &ApiServer, client: &Client) {
    let nodes: Api<Node> = Api::all(kubelet(server, "crook"));
    // The API server accepts only printable characters.
    let manager = format!("level=error \"all is lost\" {}", "m".repeat(90));
    let undo = json!({"metadata": {"labels": {names::WINDOWS_BUILD: "10.0.1"}}});
    let parameters = PatchParams { field_manager: Some(manager), ..PatchParams::default() };
    let pools: Api<WindowsPool> = Api::all(client.clone());
    wait_for("winpool stands back", LIMIT, async || {
        let label = nodes.get("crook").await?.labels().get(names::WINDOWS_BUILD).cloned();
        if label.as_deref() == Some("10.0.29999") {
            nodes.patch("crook", &parameters, &Patch::Merge(&undo)).await?;
        }
        let contested = pools.get("default").await?.status.is_some_and(|status| status.nodes.contested == 1);
        Ok(contested.then_some(()))
    })
    .await
    .unwrap();
}

async fn run(server: &ApiServer, arguments: &[&str]) -> String {
    let mut command = Command::new(program("winpool").await.unwrap());
    let output = command.args(arguments).env("KUBECONFIG", server.kubeconfig()).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(!text.is_empty() && output.status.code() != Some(1), "{arguments:?}: {}", String::from_utf8_lossy(&text));
    String::from_utf8(text).unwrap()
}

fn assert_harmless(what: &str, text: &str) {
    let found: Vec<char> = text.chars().filter(|c| *c != '\n' && is_command(*c)).collect();
    assert!(found.is_empty(), "{what} has {found:?}:\n{}", text.escape_debug());
    assert!(!text.lines().any(|line| line.starts_with("forged line")), "{what}:\n{text}");
}

fn strings(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| strings(value, found)),
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.push(key.clone());
            strings(value, found);
        }),
        _ => {}
    }
}

/// The fields that winpool may not change.
fn of_others(node: &Node) -> Value {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let own = |key: &str| {
        key.starts_with("winpool.dev/")
            || key.starts_with(names::CAPABILITY_LABEL_PREFIX)
            || key == names::WINDOWS_BUILD
    };
    json!({
        "labels": node.labels().iter().filter(|(key, _)| !own(key)).collect::<Vec<_>>(),
        "annotations": node.annotations().iter().filter(|(key, _)| *key != names::APPLIED).collect::<Vec<_>>(),
        "taints": taints.filter(|taint| taint.key != "os" || taint.effect != "NoSchedule").collect::<Vec<_>>(),
        "unschedulable": node.spec.as_ref().and_then(|spec| spec.unschedulable),
    })
}

#[tokio::test]
async fn values_that_a_kubelet_invents_appear_nowhere_and_affect_no_other_node() {
    let server = winpool_e2e::servers::lending::lend().await.unwrap();
    let client = server.client();
    install(&server, &client).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let before = [nodes.get("liar").await.unwrap(), nodes.get("crook").await.unwrap()];

    let kubeconfig = server.kubeconfig().to_owned();
    let mut winpool = Program::spawn(&server, |address| {
        let mut command = command(&kubeconfig, address);
        command.args(["--log-format", "text"]);
        command
    });
    winpool.leads(true).await;
    let pools: Api<WindowsPool> = Api::all(client.clone());
    let counted = async || {
        let status = pools.get("default").await?.status.unwrap_or_default();
        Ok((status.nodes.blocked == 1 && status.nodes.converged == 2).then_some(status))
    };
    wait_for("three nodes are judged", LIMIT, counted).await.unwrap();
    fight(&server, &client).await;

    for node in before {
        let after = nodes.get(&node.name_any()).await.unwrap();
        assert_eq!(of_others(&after), of_others(&node), "{}", node.name_any());
        let applied: Value = serde_json::from_str(&after.annotations()[names::APPLIED]).unwrap();
        assert_eq!(applied, json!({"pool": "default", "taints": [MINE]}), "the forged claim is corrected");
        assert_eq!(after.labels()[names::POOL], "default");
    }
    let honest = nodes.get("honest").await.unwrap();
    let applied: Value = serde_json::from_str(&honest.annotations()[names::APPLIED]).unwrap();
    assert_eq!(applied, json!({"pool": "default", "taints": [MINE]}));

    let other = pools.get("other").await.unwrap().status.unwrap();
    assert_eq!(json!(other.nodes), json!(winpool_core::api::NodeCounts::default()), "the pool that they claim");
    assert_eq!(recorded_in(&other), [MINE], "what it may add, and nothing that they claim");
    assert_eq!((other.problems, other.builds), (vec![], vec![]));
    let status = pools.get("default").await.unwrap().status.unwrap();
    assert!(json!(status).to_string().len() < 8_000, "{status:#?}");
    let mut texts = Vec::new();
    strings(&json!(status), &mut texts);
    let events: Api<Event> = Api::all(client.clone());
    let events = events.list(&ListParams::default()).await.unwrap().items;
    let events: Vec<_> =
        events.iter().filter(|event| event.reporting_controller.as_deref() == Some("winpool")).collect();
    assert!(!events.is_empty() && events.len() < 20, "{events:#?}");
    texts.extend(
        events.iter().flat_map(|event| [event.note.clone(), event.reason.clone(), event.action.clone()]).flatten(),
    );
    for text in texts {
        assert!(text.len() <= 1027, "{text}");
        assert_harmless("status or an Event", &text);
        assert!(!text.contains('\n'), "{text}");
    }

    let (_, metrics) = winpool.get("/metrics").unwrap();
    assert_harmless("/metrics", &metrics);
    for word in ["liar", "crook", "honest", "10.0.29999", "forged", "lost", "XXX"] {
        assert!(!metrics.contains(word), "{word} is in the metrics:\n{metrics}");
    }
    let log = winpool.log();
    assert_harmless("the log", &log);
    assert!(log.contains("another writer keeps reverting"), "{log}");
    for line in log.lines() {
        assert!(line.starts_with("20") && line.len() < 4_096, "{line}");
    }

    for arguments in [
        vec!["plan"],
        vec!["why", "node", "liar"],
        vec!["why", "node", "crook"],
        vec!["check"],
        vec!["blockers", "--retire", "2022"],
    ] {
        for format in [&[][..], &["-o", "json"], &["-o", "yaml"]] {
            let arguments = [arguments.as_slice(), format].concat();
            let text = run(&server, &arguments).await;
            assert_harmless(&arguments.join(" "), &text);
            assert!(text.len() < 200_000, "{arguments:?} prints {} bytes", text.len());
        }
    }
    assert!(winpool.terminate().success());
}
