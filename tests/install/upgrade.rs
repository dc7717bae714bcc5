//! An upgrade from an older commit, and the way back. `make upgrade-test` builds its program, and says where its tree is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use serde_json::{Map, Value, json};
use winpool_e2e::harness::host::HostNode;
use winpool_e2e::machine::assets::Component;
use winpool_e2e::nodes::simulated::SimulatedNode;
use winpool_e2e::scene::pool_gets_ready;
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::servers::lending::lend_cluster;

use super::scene::{CONFIG, NAMESPACE};

/// The tag of the older image in this test.
const OLDER: &str = "older";
const NEWER: &str = "newer";
const NODES: usize = 6;

/// Every change of what winpool writes to a node or class, in order: what was there before is compared with what came.
type Changes = Arc<Mutex<Vec<String>>>;

struct Scene {
    cluster: Cluster,
    _host: HostNode,
    /// The directory with the older manifests.
    older: PathBuf,
}

impl Scene {
    async fn new() -> Self {
        let variable = |name: &str| std::env::var_os(name).map_or_else(|| panic!("set {name}"), PathBuf::from);
        let program = variable("WINPOOL_OLDER_PROGRAM");
        let cluster = lend_cluster().await.unwrap();
        let programs = [
            (OLDER.to_owned(), program),
            (String::new(), Path::new(env!("CARGO_BIN_EXE_winpool-operator")).to_owned()),
        ];
        let host = HostNode::join_with(&cluster, "linux", programs.to_vec()).await;
        for number in 0..NODES {
            let build = if number % 2 == 0 { "10.0.17763.6659" } else { "10.0.20348.2655" };
            let node = SimulatedNode::windows(build).name(&format!("win-{number}"));
            node.join(&cluster.client()).await.unwrap();
        }
        Self { cluster, _host: host, older: variable("WINPOOL_OLDER_TREE").join("config") }
    }

    /// Applies manifests with this tag of the image.
    async fn apply(&self, config: &Path, tag: &str) {
        let directory = tempfile::tempdir().unwrap();
        let up = "../".repeat(directory.path().components().count() - 1);
        let root = format!("{up}{}", config.strip_prefix("/").unwrap().display());
        let images = json!([{"name": "ghcr.io/winpool/winpool", "newTag": tag}]);
        let kustomization = json!({"resources": [root], "images": images}).to_string();
        std::fs::write(directory.path().join("kustomization.yaml"), kustomization).unwrap();
        self.kubectl(&["apply", "-k", directory.path().to_str().unwrap()]).await;
    }

    async fn rollout(&self, verb: &str) {
        self.kubectl(&["--namespace", NAMESPACE, "rollout", verb, "deployment/winpool"]).await;
    }

    /// Waits until this many replicas have the newest template, and this many others run.
    async fn replicas(&self, updated: i32, others: i32) {
        let deployments: Api<Deployment> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let run = async || {
            let deployment = deployments.get("winpool").await?;
            let status = deployment.status.unwrap_or_default();
            let counts = (status.updated_replicas, status.replicas, status.available_replicas);
            let is_current = status.observed_generation == deployment.metadata.generation;
            let all = Some(updated + others);
            Ok((is_current && counts == (Some(updated), all, all)).then_some(()))
        };
        self.cluster.wait_for(&format!("{updated} new and {others} old replicas run"), run).await.unwrap();
    }

    /// Adds a node, and waits until the leader has added its taint.
    async fn join(&self, name: &str) {
        SimulatedNode::server_2022(name).join(&self.cluster.client()).await.unwrap();
        let nodes = Api::<Node>::all(self.cluster.client());
        let is_tainted = async || {
            let node = nodes.get(name).await?;
            let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            Ok((taints.filter(|taint| taint.key == "os").count() == 1).then_some(()))
        };
        self.cluster.wait_for(&format!("{name} has its taint"), is_tainted).await.unwrap();
    }

    async fn kubectl(&self, arguments: &[&str]) -> String {
        Component::Kubectl.run(self.cluster.kubeconfig(), arguments).await.unwrap()
    }

    /// Records every change of labels and taints of Windows nodes, and of RuntimeClasses, from now on.
    fn record(&self) -> Changes {
        let changes = Changes::default();
        let nodes = Api::<Node>::all(self.cluster.client());
        let of_node = |node: &Node| {
            let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            let ours = taints.filter(|taint| taint.key == "os").map(|taint| json!(taint)).collect::<Vec<_>>();
            json!([node.labels(), ours]).to_string()
        };
        watch(nodes, watcher::Config::default().labels("kubernetes.io/os=windows"), of_node, Arc::clone(&changes));
        let classes = Api::<RuntimeClass>::all(self.cluster.client());
        let of_class = |class: &RuntimeClass| json!([class.handler, class.scheduling, class.labels()]).to_string();
        watch(classes, watcher::Config::default(), of_class, Arc::clone(&changes));
        changes
    }
}

/// Adds a line for each object whose face changes, or that is deleted.
fn watch<K>(api: Api<K>, config: watcher::Config, face: impl Fn(&K) -> String + Send + 'static, changes: Changes)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    tokio::spawn(async move {
        let mut faces = BTreeMap::new();
        let mut events = watcher(api, config).default_backoff().boxed();
        while let Ok(Some(event)) = events.try_next().await {
            let (object, is_deleted) = match event {
                watcher::Event::Apply(object) | watcher::Event::InitApply(object) => (object, false),
                watcher::Event::Delete(object) => (object, true),
                watcher::Event::Init | watcher::Event::InitDone => continue,
            };
            let (name, now) = (object.name_any(), if is_deleted { "deleted".to_owned() } else { face(&object) });
            if let Some(before) = faces.insert(name.clone(), now.clone()).filter(|before| *before != now) {
                changes.lock().unwrap().push(format!("{name}: {before} -> {now}"));
            }
        }
    });
}

#[tokio::test]
#[ignore = "needs an older program: make upgrade-test"]
async fn nothing_flaps_and_nothing_is_lost_during_an_upgrade_and_the_way_back() {
    let scene = Scene::new().await;
    scene.apply(&scene.older, OLDER).await;
    scene.replicas(2, 0).await;
    pool_gets_ready(&scene.cluster).await.unwrap();
    let spec = async || -> Map<String, Value> {
        let spec = scene.kubectl(&["get", "winpool", "default", "--output=jsonpath={.spec}"]).await;
        serde_json::from_str(&spec).unwrap()
    };
    let before = spec().await;

    for (config, tag) in [(Path::new(CONFIG), NEWER), (&*scene.older, OLDER)] {
        let changes = scene.record();
        scene.apply(config, tag).await;
        scene.rollout("pause").await;
        scene.replicas(1, 2).await;
        scene.join(&format!("joined-{tag}-beside-the-other")).await;
        scene.rollout("resume").await;
        scene.replicas(2, 0).await;
        scene.join(&format!("joined-{tag}-alone")).await;
        pool_gets_ready(&scene.cluster).await.unwrap();

        let joined = format!("joined-{tag}-");
        let flapped: Vec<String> =
            changes.lock().unwrap().iter().filter(|change| !change.starts_with(&joined)).cloned().collect();
        assert_eq!(flapped, [""; 0], "to {tag}");
        // A newer CRD may add fields with their defaults.
        let after = spec().await;
        assert!(before.iter().all(|(field, value)| after.get(field) == Some(value)), "to {tag}: {after:?}");
    }
}
