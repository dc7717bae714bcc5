//! `kubectl apply -k config/` and what follows.

use std::time::{Duration, Instant};

use kube::Api;
use kube::api::ListParams;
use winpool_core::api::WindowsPool;
use winpool_e2e::machine::assets::Component;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::lending::lend;

use super::scene::{CONFIG, NAMESPACE, Scene};

#[tokio::test]
async fn an_installation_is_deleted_completely_in_one_command() {
    let scene = Scene::new().await;
    scene.kubectl(&["apply", "--validate=strict", "-k", CONFIG]).await;
    scene.operator_is_ready().await;
    scene.pool_is_ready().await;
    let again = scene.kubectl(&["apply", "--validate=strict", "-k", CONFIG]).await;
    // kubectl takes the selector of a PodDisruptionBudget for changed, whatever it is.
    let same = |line: &str| line.ends_with(" unchanged") || line == "poddisruptionbudget.policy/winpool configured";
    assert!(again.lines().all(same), "{again}");

    let started = Instant::now();
    scene.kubectl(&["delete", "-k", CONFIG, "--timeout=60s"]).await;
    let took = started.elapsed();
    assert!(took < Duration::from_mins(1), "{took:?}");
    println!("deleted within {took:?}");
    scene.is_clean().await;
    scene.is_gone(false).await;
}

#[tokio::test]
async fn deleting_the_namespace_removes_everything_that_winpool_added() {
    let scene = Scene::new().await;
    scene.kubectl(&["apply", "--validate=strict", "-k", CONFIG]).await;
    scene.operator_is_ready().await;
    scene.pool_is_ready().await;

    let started = Instant::now();
    scene.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=60s"]).await;
    let took = started.elapsed();
    println!("deleted within {took:?}");
    scene.is_clean().await;
    scene.kubectl(&["delete", "-k", CONFIG, "--ignore-not-found", "--timeout=30s"]).await;
    scene.is_gone(false).await;
}

/// A policy that names another account matches nobody, silently.
#[tokio::test]
async fn with_the_lines_in_the_guide_the_confinement_follows_the_namespace() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guides/security.md")).unwrap();
    let lines = guide.split("```yaml\n").find(|block| block.starts_with("replacements:")).unwrap();
    let lines = lines.split("```").next().unwrap();
    let directory = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/target")).unwrap();
    let text = format!("namespace: other\nresources:\n- ../../config\n{lines}");
    std::fs::write(directory.path().join("kustomization.yaml"), text).unwrap();
    let none = directory.path().join("none");
    let built = Component::Kubectl.run(&none, &["kustomize", directory.path().to_str().unwrap()]).await.unwrap();
    let names_the_account = "request.userInfo.username == 'system:serviceaccount:other:winpool'";
    assert_eq!(built.matches(names_the_account).count(), 6, "{built}");
    assert!(!built.contains("winpool-system:winpool"), "{built}");
}

#[tokio::test]
async fn the_namespace_refuses_pods_that_restricted_pod_security_does_not_allow() {
    let server = lend().await.unwrap();
    let run = async |arguments: &[&str]| Component::Kubectl.run(server.kubeconfig(), arguments).await;
    run(&["apply", "--validate=strict", "-f", &format!("{CONFIG}/namespace.yaml")]).await.unwrap();
    let pod = ["run", "root", "--image=example.com/root", "--namespace", NAMESPACE, "--dry-run=server"];
    let refused = run(&pod).await.unwrap_err().to_string();
    assert!(refused.contains(r#"violates PodSecurity "restricted:latest""#), "{refused}");
}

#[tokio::test]
async fn every_sample_is_accepted_as_it_is() {
    let server = lend().await.unwrap();
    let client = server.client();
    let run = async |arguments: &[&str]| Component::Kubectl.run(server.kubeconfig(), arguments).await;
    run(&["apply", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/crds")]).await.unwrap();
    run(&["wait", "--for=condition=Established", "crd/windowspools.winpool.dev"]).await.unwrap();
    let pools: Api<WindowsPool> = Api::all(client);
    let listed = async || Ok(pools.list(&ListParams::default()).await.ok());
    wait_for("WindowsPools are served", LIMIT, listed).await.unwrap();
    let mut names = Vec::new();
    for file in std::fs::read_dir(format!("{CONFIG}/samples")).unwrap() {
        let path = file.unwrap().path();
        names.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        run(&["apply", "--validate=strict", "--dry-run=server", "-f", path.to_str().unwrap()]).await.unwrap();
    }
    names.sort();
    assert_eq!(names, ["aks", "eks", "gke", "openshift", "rke2"]);
}
