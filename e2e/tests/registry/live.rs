//! The commands that ask registries, on a live cluster.

use std::path::Path;

use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::node_of;
use winpool_e2e::harness::workloads::workload;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::program::program;
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::servers::registry::{ImageRegistry, Protection};

use super::client::{OCI_INDEX, OCI_MANIFEST, index};

fn deployment(name: &str, class: &str, image: &str) -> Value {
    let containers = json!([{"name": "c", "image": image}]);
    let pod = json!({"os": {"name": "windows"}, "runtimeClassName": class, "containers": containers});
    let mut deployment = workload("Deployment", name, pod);
    deployment["spec"]["replicas"] = json!(1);
    deployment
}

/// Runs winpool on the cluster, and returns its exit code and output.
async fn run(cluster: &Cluster, folder: &TempDir, arguments: &[&str]) -> (i32, String) {
    let program: &Path = &program("winpool").await.unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", cluster.kubeconfig()).env("HOME", folder.path()).env("COLUMNS", "200");
    let output = command.env_remove("XDG_CACHE_HOME").env_remove("DOCKER_CONFIG").output().await.unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn commands_judge_the_images_of_a_cluster_by_its_nodes() {
    let registry = ImageRegistry::start(Protection::None).await.unwrap();
    let platforms = ["linux/amd64", "windows/amd64/10.0.17763.1000", "windows/amd64/10.0.26100.1"];
    registry.push("both", "1", &index(OCI_INDEX, OCI_MANIFEST, &platforms)).await.unwrap();
    for (tag, version) in [("1-ltsc2019", "10.0.17763.1000"), ("1-10.0.26100.1", "10.0.26100.1"), ("1", "10.0.17763.1")]
    {
        let config = json!({"os": "windows", "architecture": "amd64", "os.version": version});
        registry.push_image("app", tag, &config, false).await.unwrap();
    }
    let harness = Harness::with_nodes([
        SimulatedNode::linux().name("linux"),
        SimulatedNode::server_2019("win-2019"),
        SimulatedNode::server_2025("win-2025").container_runtime("containerd://2.2.0"),
    ])
    .await;
    let _operator = harness.operator().await;
    harness.apply_until_ready(json!({})).await;
    let image = |name: &str| format!("{}/{name}", registry.host());
    let workloads = [
        deployment("both", "windows-2019", &image("both:1")),
        deployment("moves", "windows-2019", &image("app:1-ltsc2019")),
        deployment("stays", "windows-2019", &image("app:1")),
        deployment("wrong", "windows-2025", &image("app:1-ltsc2019")),
        deployment("gone", "windows-2025", &image("gone:1")),
    ];
    for workload in &workloads {
        harness.apply(workload.clone()).await;
    }
    let bound = async || {
        let pods = harness.pods().list(&ListParams::default()).await?.items;
        Ok((pods.iter().filter(|pod| node_of(pod).is_some()).count() == workloads.len()).then_some(pods))
    };
    let all = wait_for("all pods have nodes", LIMIT, bound).await.unwrap();
    let wrong = all.iter().find(|pod| pod.name_any().starts_with("wrong")).unwrap();
    assert_eq!(node_of(wrong), Some("win-2025"));

    let folder = tempfile::tempdir().unwrap();
    let asked = || registry.requests().unwrap().iter().filter(|(line, _)| line.starts_with("GET /v2/")).count();
    run(harness.cluster(), &folder, &["check", "-A"]).await;
    run(harness.cluster(), &folder, &["plan"]).await;
    assert_eq!(asked(), 0, "no registry is asked without the flag");

    let (code, images) = run(harness.cluster(), &folder, &["images", "-o", "json"]).await;
    let images: Value = serde_json::from_str(&images).unwrap_or_else(|error| panic!("{code} {error}: {images}"));
    let of = |name: &str| {
        let image = images["images"].as_array().unwrap().iter().find(|found| found["image"] == image(name)).unwrap();
        let nodes = image["windowsNodes"].as_array().unwrap();
        let runs = |node: &&Value| node["runs"] == true;
        let builds: Vec<_> = nodes.iter().filter(runs).map(|node| node["build"].as_str().unwrap()).collect();
        let users = image["usedBy"].as_array().unwrap().iter();
        let users: Vec<&str> = users.map(|user| user["name"].as_str().unwrap()).collect();
        (builds.join(" "), users.join(" "))
    };
    assert_eq!(of("both:1"), ("10.0.17763 10.0.26100".to_owned(), "both".to_owned()));
    assert_eq!(of("app:1-ltsc2019"), ("10.0.17763".to_owned(), "moves wrong".to_owned()));
    assert!(of("gone:1").0.is_empty());
    assert_eq!(code, 0);

    let pod = format!("pod/{}", wrong.name_any());
    for (arguments, code, expected) in [
        (
            &["check", "-A"][..],
            2,
            &["Deployment default/wrong", "image-without-variant", "not for Windows 2025 (1 node)", "no such image"][..],
        ),
        (&["why", &pod], 0, &["win-2025", "0xc0370101", "10.0.17763.1000"]),
        (&["plan"], 0, &["Deployment default/wrong", "not for Windows 2025 (1 node)"]),
        (
            &["blockers", "--retire", "2019", "--move-to", "2025"],
            2,
            &["none: this image has a variant that runs there, 10.0.26100.1", "/app:1-10.0.26100.1", "stays"],
        ),
    ] {
        let (got, text) = run(harness.cluster(), &folder, &[arguments, &["--resolve-images"]].concat()).await;
        println!("{arguments:?}: {got}\n{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(expected.iter().all(|part| flat.contains(part)), "{arguments:?}: {expected:?} are not all in\n{text}");
        assert_eq!(got, code, "{arguments:?}");
    }
}
