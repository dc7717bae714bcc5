//! `winpool fix` on a real API server: the commands that it prints are accepted, and leave nothing to fix.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_e2e::machine::assets::Component;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::servers::lending::lend;

use super::{notes, out};

fn winpool(kubeconfig: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_winpool"));
    command.args(arguments).env("KUBECONFIG", kubeconfig).output().unwrap()
}

fn template(spec: &Value) -> Value {
    json!({"metadata": {"labels": {"app": "a"}}, "spec": spec})
}

#[tokio::test]
async fn the_printed_commands_fix_a_cluster() {
    let server = lend().await.unwrap();
    let client = server.client();
    SimulatedNode::server_2022("win").join(&client).await.unwrap();
    let containers = json!([{"name": "c", "image": "it's:1"}]);
    let windows = json!({"nodeSelector": {"beta.kubernetes.io/os": "windows"}, "containers": containers});
    let open = json!({"containers": containers, "restartPolicy": "Never"});
    let parameters = PostParams::default();
    let object = |kind: &str, spec: Value| json!({"kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let read = |value: Value| serde_json::from_value::<Deployment>(value).unwrap();
    let deployment = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template(&windows)});
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&parameters, &read(object("Deployment", deployment))).await.unwrap();
    let job = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template(&open)}}});
    let jobs: Api<CronJob> = Api::default_namespaced(client.clone());
    jobs.create(&parameters, &serde_json::from_value(object("CronJob", job)).unwrap()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&parameters, &serde_json::from_value(object("Pod", open.clone())).unwrap()).await.unwrap();

    let kubeconfig = server.kubeconfig();
    let one = winpool(kubeconfig, &["fix", "cj/a"]);
    assert_eq!(out(&one).lines().count(), 2, "{}{}", out(&one), notes(&one));
    let fixed = winpool(kubeconfig, &["fix", "-A"]);
    assert_eq!(fixed.status.code(), Some(0), "{}", notes(&fixed));
    insta::assert_snapshot!(out(&fixed));
    let left = notes(&fixed);
    assert!(left.contains("Pod default/a: recreate it, because its pod template cannot change"), "{left}");
    assert!(left.ends_with("winpool: 2 changed, 1 by hand\n"), "{left}");
    let kubectl = Component::Kubectl.path().await.unwrap();
    for line in out(&fixed).lines().filter(|line| !line.starts_with('#')) {
        let line = line.replacen("kubectl", kubectl.to_str().unwrap(), 1);
        let done = Command::new("sh").args(["-c", &line]).env("KUBECONFIG", kubeconfig).output().unwrap();
        assert!(done.status.success(), "{line}: {}", notes(&done));
    }
    assert_eq!(out(&winpool(kubeconfig, &["fix", "-A"])), "");
    let missing = winpool(kubeconfig, &["fix", "deployment/none"]);
    assert_eq!(missing.status.code(), Some(1), "{}", notes(&missing));
}
