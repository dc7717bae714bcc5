//! `helm install`, `helm upgrade` and `helm uninstall`.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::apps::v1::Deployment, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::Api;

use crate::scene::{CHART, CONFIG, NAMESPACE, Scene};

#[tokio::test]
async fn a_release_is_installed_upgraded_with_its_definition_and_uninstalled_without_a_trace() {
    let scene = Scene::new().await;
    // With restricted Pod Security, which Helm's own --create-namespace does not ask for.
    scene.kubectl(&["apply", "-f", &format!("{CONFIG}/namespace.yaml")]).await;
    let older = older_chart(&scene.folder());
    let release = |verb, chart| [verb, "winpool", chart, "--namespace", NAMESPACE, "--wait", "--timeout", "60s"];
    scene.helm(&release("install", older.as_str())).await;
    assert_eq!(columns(&scene).await, 0);
    scene.operator_is_ready().await;
    scene.pool_is_ready().await;

    let mut upgrade = release("upgrade", CHART).to_vec();
    upgrade.extend(["--set", "args={--log-format=json}"]);
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
    scene.kubectl(&["delete", "crd", "windowspools.winpool.dev", "--timeout=30s"]).await;
    scene.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=30s"]).await;
    let took = started.elapsed();
    assert!(took < Duration::from_mins(1), "{took:?}");
    println!("uninstalled within {took:?}");
    scene.is_clean().await;
    scene.is_gone(false).await;
}

/// The chart with a definition that shows no columns.
fn older_chart(folder: &Path) -> String {
    let older = folder.join("older-chart");
    copy(Path::new(CHART), &older);
    let file = older.join("files/winpool.dev_windowspools.yaml");
    let mut definition: CustomResourceDefinition =
        serde_yaml::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    definition.spec.versions[0].additional_printer_columns = None;
    std::fs::write(&file, serde_json::to_string(&definition).unwrap()).unwrap();
    older.to_str().unwrap().to_owned()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

async fn columns(scene: &Scene) -> usize {
    let definitions: Api<CustomResourceDefinition> = Api::all(scene.cluster.client());
    let definition = definitions.get("windowspools.winpool.dev").await.unwrap();
    definition.spec.versions[0].additional_printer_columns.as_ref().map_or(0, Vec::len)
}
