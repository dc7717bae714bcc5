//! `winpool status` about winpool's own installation.

use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use winpool_e2e::scene::install_crd;
use winpool_e2e::servers::lending::{Lent, lend};

const NAMESPACE: &str = "default";

/// Runs `winpool status`, and returns its exit code and what it prints, as text and as JSON.
async fn status(server: &Lent) -> (i32, String, Value) {
    let kubeconfig = server.kubeconfig().to_owned();
    let run = move |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
        command.arg("status").args(arguments).env("KUBECONFIG", &kubeconfig).env("COLUMNS", "200").output().unwrap()
    };
    tokio::task::spawn_blocking(move || {
        let (text, json) = (run(&[]), run(&["-o", "json"]));
        assert_eq!(String::from_utf8_lossy(&text.stderr), "");
        let text_of = |bytes| String::from_utf8(bytes).unwrap();
        (text.status.code().unwrap(), text_of(text.stdout), serde_json::from_slice(&json.stdout).unwrap())
    })
    .await
    .unwrap()
}

/// Creates the operator's Deployment without its pods: this API server has no controllers.
async fn install_operator(client: &Client) {
    let labels = json!({"app.kubernetes.io/name": "winpool", "app.kubernetes.io/component": "operator"});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "winpool", "labels": {"app.kubernetes.io/name": "winpool"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "winpool", "image": "example.com/winpool:v1"}]},
            },
        },
    }))
    .unwrap();
    Api::<Deployment>::namespaced(client.clone(), NAMESPACE).create(&PostParams::default(), &deployment).await.unwrap();
}

async fn set_ready(client: &Client, ready: i32) {
    let status = json!({"status": {"replicas": 2, "readyReplicas": ready, "availableReplicas": ready}});
    let deployments = Api::<Deployment>::namespaced(client.clone(), NAMESPACE);
    deployments.patch_status("winpool", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// Writes the Lease as if its holder had renewed it so many seconds ago.
async fn renew(client: &Client, seconds: i64) {
    let renewed = Timestamp::from_second(Timestamp::now().as_second() - seconds).unwrap();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "winpool"},
        "spec": {"holderIdentity": "winpool-a", "leaseDurationSeconds": 15, "renewTime": MicroTime(renewed)},
    });
    let parameters = PatchParams::apply("test").force();
    let leases = Api::<Lease>::namespaced(client.clone(), NAMESPACE);
    leases.patch("winpool", &parameters, &Patch::Apply(lease)).await.unwrap();
}

/// Makes an installation that works, as far as objects show it.
pub async fn install_healthy(client: &Client) {
    install_operator(client).await;
    set_ready(client, 2).await;
    // The tests that need it take less than the time after which a Lease counts as abandoned.
    renew(client, -600).await;
}

#[tokio::test]
async fn status_tells_a_missing_a_broken_and_a_healthy_installation_apart() {
    let server = lend().await.unwrap();
    let client = server.client();
    let expect = async |code: i32, state: &str, words: &[&str]| {
        let (exit, text, json) = status(&server).await;
        assert_eq!((exit, &json["installation"]["state"]), (code, &Value::from(state)), "{text}");
        for word in words {
            assert!(text.contains(word), "{word}: {text}");
        }
    };
    expect(2, "Missing", &["winpool is not installed", "winpool crd | kubectl apply -f -", "install.md"]).await;

    install_operator(&client).await;
    expect(2, "Broken", &["the CRD windowspools.winpool.dev is missing"]).await;

    install_crd(&client).await.unwrap();
    let logs = "kubectl -n default logs deployment/winpool";
    expect(2, "Broken", &["none of 2 replicas is ready", logs]).await;

    set_ready(&client, 1).await;
    expect(2, "Broken", &["no replica leads, so winpool writes nothing", logs]).await;

    renew(&client, 600).await;
    expect(2, "Broken", &["no replica leads"]).await;

    renew(&client, 1).await;
    let runs =
        "winpool runs in the namespace default (example.com/winpool:v1): 1 of 2 replicas ready; winpool-a leads.";
    expect(0, "Healthy", &[runs, "There is no WindowsPool, so winpool does nothing."]).await;
}
