//! A cluster with Karpenter, for the tests.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;
use winpool_core::api::{WindowsPool, names};
use winpool_e2e::harness::OS_WINDOWS;
use winpool_e2e::harness::account::Account;
use winpool_e2e::harness::objects::{has_taint, label};
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::machine::wait::wait_for;
use winpool_e2e::scene::program::program;
use winpool_e2e::scene::{install_crd, manifests};
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::servers::karpenter::Karpenter;
use winpool_e2e::servers::lending::lend_cluster;
use winpool_operator::Options;

/// The longest time that a pod may be Pending if its class can scale from zero.
const PROMISE: Duration = Duration::from_mins(1);

/// A cluster with Karpenter and the operator, and without nodes.
pub struct Scene {
    _operator: Operator,
    pub cluster: Cluster,
    karpenter: Karpenter,
}

impl Scene {
    pub async fn start(pool: &WindowsPool, node_pools: &[Value], types: Option<&str>) -> Self {
        let cluster = lend_cluster().await.unwrap();
        let client = cluster.client();
        install_crd(&client).await.unwrap();
        let karpenter = Karpenter::start(&cluster, types).await.unwrap();
        let node_class = json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"},
        });
        apply(&client, &[node_class]).await;
        apply(&client, node_pools).await;
        let account = Account::create(cluster.api_server(), &client).await;
        let options = Options { leader_election: false, ..Options::default() };
        let operator = Operator::start_with(account.config.clone(), options);
        apply(&client, &[json!(pool)]).await;
        let scene = Self { _operator: operator, cluster, karpenter };
        scene.classes_are_there(pool).await;
        scene.node_pools_are_ready().await;
        scene
    }

    /// Waits until Karpenter considers all NodePools: until then its messages name only some of them.
    async fn node_pools_are_ready(&self) {
        let client = self.cluster.client();
        let ready = async || {
            let is_ready = |node_pool: &DynamicObject| {
                let conditions = node_pool.data["status"]["conditions"].as_array();
                let mut all = conditions.into_iter().flatten();
                all.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
            };
            Ok(list(&client, "NodePool").await?.iter().all(is_ready).then_some(()))
        };
        wait_for("all NodePools are Ready", PROMISE, ready).await.unwrap();
    }

    async fn classes_are_there(&self, pool: &WindowsPool) {
        let classes: Api<RuntimeClass> = Api::all(self.cluster.client());
        let there = async || {
            let number = classes.list(&ListParams::default()).await?.items.len();
            Ok((number == pool.spec.runtime_classes.len()).then_some(()))
        };
        self.cluster.wait_for("the pool has its classes", there).await.unwrap();
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.cluster.client(), "default")
    }

    /// Creates a pod of this class. It does not share its node with the other pods.
    pub async fn run(&self, name: &str, class: &str, selector: Value) {
        let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "scale"}}, "topologyKey": "kubernetes.io/hostname"},
        ]}});
        // Karpenter removes this taint from a registered node, but the controller that evicts pods may notice that too
        // late.
        let registering = json!({"key": "karpenter.sh/unregistered", "operator": "Exists", "effect": "NoExecute"});
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": "scale"}},
            "spec": {
                "runtimeClassName": class, "nodeSelector": selector, "affinity": apart, "tolerations": [registering],
                "containers": [{"name": "app", "image": "servercore"}],
            },
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// Waits until the pod runs within the promised time, and until its node has label and taint.
    ///
    /// Karpenter adds the labels and taints of its NodePool when the node registers. If it does so before winpool has
    /// checked the workloads and nothing is missing then, winpool writes nothing, and the node gets no `winpool.dev/pool`.
    pub async fn runs_from_zero(&self, name: &str) -> Node {
        let (node, nodes) = (self.runs(name).await, Api::<Node>::all(self.cluster.client()));
        let marked = async || {
            let node = nodes.get(&node).await?;
            let is_labelled = label(&node, names::WINDOWS_BUILD).is_some();
            Ok((has_taint(&node, OS_WINDOWS) && is_labelled).then_some(node))
        };
        self.cluster.wait_for(&format!("the node of pod {name} is labelled and tainted"), marked).await.unwrap()
    }

    /// Waits until the pod runs within the promised time, and returns the name of its node.
    pub async fn runs(&self, name: &str) -> String {
        let pods = self.pods();
        let running = async || {
            let pod = pods.get(name).await?;
            let is_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            Ok(is_running.then_some(pod))
        };
        let pod = wait_for(&format!("pod {name} runs"), PROMISE, running).await;
        self.karpenter.check().unwrap();
        let pod = pod.unwrap_or_else(|error| panic!("{error}"));
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled").unwrap();
        let scheduled = scheduled.last_transition_time.as_ref().unwrap().0;
        let pending = scheduled.duration_since(pod.metadata.creation_timestamp.as_ref().unwrap().0);
        assert!(pending.unsigned_abs() <= PROMISE, "pod {name} was Pending for {pending}");
        pod.spec.and_then(|spec| spec.node_name).unwrap()
    }

    /// Waits until Karpenter reports why it creates no node for the pod, and returns the message.
    pub async fn refused(&self, name: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.cluster.client(), "default");
        let about = ListParams::default().fields(&format!("involvedObject.name={name},reason=FailedScheduling"));
        let said = async || {
            let messages = events.list(&about).await?.items.into_iter().filter_map(|event| event.message);
            Ok(messages.into_iter().find(|message| message.starts_with("Failed to schedule pod")))
        };
        let refused = wait_for(&format!("Karpenter refuses pod {name}"), PROMISE, said).await;
        self.karpenter.check().unwrap();
        refused.unwrap()
    }

    /// Returns Karpenter's complete log message about a pod that it refused. The Event contains only a part of it.
    pub fn logged_refusal(&self, name: &str) -> String {
        let log = std::fs::read_to_string(self.cluster.api_server().directory().join("karpenter.log")).unwrap();
        let about = format!(r#""Pod":{{"name":"{name}","#);
        let mut lines = log.lines().filter(|line| line.contains("could not schedule pod") && line.contains(&about));
        lines.next().unwrap().to_owned()
    }

    /// Returns the output of `winpool why class`: the answer for the class, and the templates by NodePool.
    pub async fn answer(&self, class: &str) -> (Option<bool>, BTreeMap<String, Value>) {
        answer(self.cluster.kubeconfig(), class).await
    }
}

/// Returns the output of `winpool why class`: the answer for the class, and the templates by NodePool.
pub async fn answer(kubeconfig: &Path, class: &str) -> (Option<bool>, BTreeMap<String, Value>) {
    let output = Command::new(program("winpool").await.unwrap())
        .args(["why", "class", class, "--output", "json"])
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await
        .unwrap();
    let explanation: Value = serde_json::from_slice(&output.stdout).unwrap();
    let can_scale_from_zero = explanation["canScaleFromZero"].as_bool();
    let expected = if can_scale_from_zero.is_some() { 0 } else { 2 };
    assert_eq!(output.status.code(), Some(expected), "{}", String::from_utf8_lossy(&output.stderr));
    let templates = explanation["templates"].as_array().unwrap().iter();
    let templates = templates.map(|template| {
        let name = template["template"].as_str().unwrap().trim_start_matches("NodePool ");
        (name.to_owned(), template.clone())
    });
    (can_scale_from_zero, templates.collect())
}

pub async fn apply(client: &Client, objects: &[Value]) {
    let objects: Vec<DynamicObject> =
        objects.iter().map(|object| serde_json::from_value(object.clone()).unwrap()).collect();
    manifests::apply(client, &objects).await.unwrap();
}

async fn list(client: &Client, kind: &str) -> kube::Result<Vec<DynamicObject>> {
    let kind = GroupVersionKind::gvk("karpenter.sh", "v1", kind);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    Ok(api.list(&ListParams::default()).await?.items)
}
