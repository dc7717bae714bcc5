//! `helm install`, `helm upgrade` and `helm uninstall`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use winpool_e2e::machine::assets::Component;
use winpool_e2e::servers::version::MUTATING_ADMISSION_POLICY;

use super::scene::{CHART, CONFIG, NAMESPACE, Scene};

/// The number of policies of kind `MutatingAdmissionPolicy`.
const MUTATING: usize = 4;

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn a_release_is_installed_upgraded_and_uninstalled_completely() {
    is_installed_upgraded_and_uninstalled(Component::Helm).await;
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn a_release_of_helm_3_is_installed_and_uninstalled_completely() {
    is_installed_upgraded_and_uninstalled(Component::Helm3).await;
}

async fn is_installed_upgraded_and_uninstalled(helm: Component) {
    let scene = Scene::with(helm).await;
    let mutates = MUTATING_ADMISSION_POLICY.is_there().await.unwrap();
    let policies = async || {
        let list = ["get", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "--output=name"];
        if mutates { scene.kubectl(&list).await.lines().count() } else { 0 }
    };
    // With restricted Pod Security, which Helm's own --create-namespace does not set.
    scene.kubectl(&["apply", "-f", &format!("{CONFIG}/namespace.yaml")]).await;
    let package = packaged(&scene).await;
    let older = older_chart(&package);
    let release = |verb, chart| [verb, "winpool", chart, "--namespace", NAMESPACE, "--wait", "--timeout", "60s"];
    scene.helm(&release("install", older.as_str())).await;
    assert_eq!(columns(&scene).await, 0);
    assert_eq!(policies().await, if mutates { 4 } else { 0 }, "tolerate-windows is enabled by default");
    scene.operator_is_ready().await;
    scene.pool_is_ready().await;

    let mut upgrade = release("upgrade", package.to_str().unwrap()).to_vec();
    upgrade.extend(["--set", "extraArgs={--log-format=json}"]);
    scene.helm(&upgrade).await;
    assert!(columns(&scene).await > 0, "the definition is that of the new chart");
    let deployments: Api<Deployment> = Api::namespaced(scene.cluster.client(), NAMESPACE);
    let deployment = deployments.get("winpool").await.unwrap();
    assert_eq!(deployment.spec.unwrap().template.spec.unwrap().containers[0].args.as_ref().unwrap().len(), 2);
    scene.operator_is_ready().await;
    scene.pool_is_ready().await;

    let started = Instant::now();
    scene.helm(&["uninstall", "winpool", "--namespace", NAMESPACE, "--wait", "--timeout", "60s"]).await;
    scene.is_clean().await;
    scene.is_gone(true).await;
    assert_eq!(policies().await, 0);
    // The next installation in this namespace waits until the Lease of the cleanup has run out.
    let lease = ["get", "lease", "winpool", "--namespace", NAMESPACE, "--output=jsonpath={.spec.leaseDurationSeconds}"];
    assert_eq!(scene.kubectl(&lease).await, "60");
    scene.kubectl(&["delete", "crd", "windowspools.winpool.dev", "--timeout=30s"]).await;
    scene.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=30s"]).await;
    let took = started.elapsed();
    assert!(took < Duration::from_mins(1), "{took:?}");
    println!("uninstalled within {took:?}");
    scene.is_clean().await;
    scene.is_gone(false).await;
}

#[tokio::test]
#[ignore = "needs Helm: make verify"]
async fn with_all_policies_winpool_does_its_work_and_is_uninstalled_completely() {
    let mutates = MUTATING_ADMISSION_POLICY.is_there().await.unwrap();
    let scene = Scene::new().await;
    let policies = ["advise", "assignClass", "bornTainted", "guard", "linuxByDefault", "tolerateWindows"];
    let values = policies.map(|policy| format!("policies.{policy}.enabled=true")).join(",");
    let mut install = vec!["install", "winpool", CHART, "--namespace", NAMESPACE, "--create-namespace"];
    install.extend(["--set", &values, "--set", "monitoring.dashboard.enabled=true", "--wait", "--timeout", "60s"]);
    let notes = scene.helm(&install).await;
    let left_out = if mutates { 0 } else { MUTATING };
    assert_eq!(notes.matches("LEFT OUT").count(), left_out, "{notes}");
    scene.operator_is_ready().await;
    scene.pool_is_ready().await;

    let mut kinds = "validatingadmissionpolicies,validatingadmissionpolicybindings".to_owned();
    if mutates {
        kinds += ",mutatingadmissionpolicies,mutatingadmissionpolicybindings";
        pods_are_changed(&scene).await;
    }
    let installed = scene.kubectl(&["get", &kinds, "--output=name"]).await;
    for policy in ["advise-pods", "guard-nodes", "confine-nodes", "confine-pods"] {
        assert_eq!(
            installed.matches(&format!("/winpool-{policy}\n")).count(),
            2,
            "{policy} and its binding: {installed}"
        );
    }

    scene.helm(&["uninstall", "winpool", "--namespace", NAMESPACE, "--wait", "--timeout", "60s"]).await;
    scene.is_clean().await;
    scene.is_gone(true).await;
    assert_eq!(scene.kubectl(&["get", &kinds, "--output=name"]).await.trim(), "");
}

async fn pods_are_changed(scene: &Scene) {
    // The policies see the pool's classes a moment later.
    let defaults = r#"{"spec": {"podDefaults": {"runtimeClassName": "windows-2022"}}}"#;
    scene.kubectl(&["patch", "winpool", "default", "--type=merge", "-p", defaults]).await;
    let pods: Api<Pod> = Api::namespaced(scene.cluster.client(), "default");
    let probe = |spec: Value| serde_json::from_value(json!({"metadata": {"name": "probe"}, "spec": spec})).unwrap();
    let container = json!([{"name": "app", "image": "example.com/app:1.4"}]);
    let windows: Pod = probe(json!({"os": {"name": "windows"}, "containers": container}));
    let silent: Pod = probe(json!({"containers": container}));
    let once = PostParams { dry_run: true, ..PostParams::default() };
    let changed = async || {
        let of_class = pods.create(&once, &windows).await?.spec.unwrap_or_default().runtime_class_name;
        let on_linux = pods.create(&once, &silent).await?.spec.unwrap_or_default().node_selector;
        Ok((of_class.is_some() && on_linux.is_some()).then_some((of_class, on_linux)))
    };
    let changed = scene.cluster.wait_for("the policies change pods", changed).await.unwrap();
    assert_eq!(json!(changed), json!(["windows-2022", {"kubernetes.io/os": "linux"}]));
}

/// The chart as a release has it.
async fn packaged(scene: &Scene) -> PathBuf {
    let directory = scene.directory();
    scene.helm(&["package", CHART, "--destination", directory.to_str().unwrap()]).await;
    directory.join(concat!("winpool-", env!("CARGO_PKG_VERSION"), ".tgz"))
}

/// The same with a CRD that has no printer columns.
fn older_chart(package: &Path) -> String {
    let directory = package.parent().unwrap();
    assert!(Command::new("tar").arg("-xzf").arg(package).current_dir(directory).status().unwrap().success());
    let older = directory.join("winpool");
    let file = older.join("files/winpool.dev_windowspools.yaml");
    let mut definition: CustomResourceDefinition =
        serde_yaml::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    definition.spec.versions[0].additional_printer_columns = None;
    std::fs::write(&file, serde_json::to_string(&definition).unwrap()).unwrap();
    older.to_str().unwrap().to_owned()
}

async fn columns(scene: &Scene) -> usize {
    let definitions: Api<CustomResourceDefinition> = Api::all(scene.cluster.client());
    let definition = definitions.get("windowspools.winpool.dev").await.unwrap();
    definition.spec.versions[0].additional_printer_columns.as_ref().map_or(0, Vec::len)
}
