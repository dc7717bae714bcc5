//! The checks, and their cleanup.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use winpool_core::api::{WindowsPool, names};
use winpool_core::windows::KernelVersion;
use winpool_e2e::error::{Error, Result};
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::scene::manifests::crd;
use winpool_e2e::scene::{OperatorTask, install_crd};
use winpool_operator::Options;

use crate::report::TestReport;

/// The name of the namespace and the pool, and the label of all other objects.
const NAME: &str = "winpool-test-real";
/// Enough time to pull an image of Windows.
const PULL: Duration = Duration::from_mins(15);
const WINDOWS: &str = "kubernetes.io/os=windows";

/// A cluster in its initial state.
pub struct InitialCluster {
    config: Config,
    client: Client,
    nodes: Vec<Node>,
    classes: Vec<String>,
}

impl InitialCluster {
    /// Reads the cluster. Fails if it has something that is in the way of an installation.
    pub async fn survey(mut config: Config, report: &mut TestReport) -> Result<Self> {
        NAME.clone_into(&mut config.default_namespace);
        let client = Client::try_from(config.clone())?;
        let version = client.apiserver_version().await?.git_version;
        let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default().labels(WINDOWS)).await?.items;
        let classes = Api::<RuntimeClass>::all(client.clone()).list(&ListParams::default()).await?;
        report.cluster(&version, &nodes);
        let stop = |why: &str| Err(Error::NotEmptied(why.to_owned()));
        if nodes.is_empty() {
            return stop("no node has the label kubernetes.io/os=windows");
        }
        if definitions(&client).get_opt(&crd()?.name_any()).await?.is_some() {
            return stop("winpool is installed in this cluster: the suite installs its own, and removes it at the end");
        }
        Ok(Self { config, client, nodes, classes: classes.iter().map(ResourceExt::name_any).collect() })
    }

    /// Installs what winpool needs, and starts the operator in this process.
    pub async fn install(&self) -> Result<OperatorTask> {
        let namespace: Namespace = read(json!({"metadata": {"name": NAME}}))?;
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await?;
        install_crd(&self.client).await?;
        Ok(OperatorTask::start_with(self.config.clone(), Options::default()))
    }

    /// Checks that a pool in dry run counts all nodes and changes none.
    pub async fn dry_run(&self, report: &mut TestReport) -> Result<()> {
        let pool = self.pool("DryRun", |_| true).await?;
        let counted = pool.status.as_ref().map_or(0, |status| status.nodes.selected);
        let nodes = i64::try_from(self.nodes.len()).unwrap_or_default();
        let all_counted = if counted == nodes { Ok(()) } else { Err(format!("{counted} of {nodes}")) };
        report.check("a pool in dry run counts all Windows nodes", all_counted);
        report.check("it changes no node", self.unchanged().await?);
        let classes = self.made_classes().await?;
        let no_class = if classes.is_empty() { Ok(()) } else { Err(classes.join(", ")) };
        report.check("it creates no RuntimeClass", no_class);
        Ok(())
    }

    /// Checks that the pool becomes Ready, with the right label on every node and no taint.
    pub async fn enforce(&self, report: &mut TestReport) -> Result<()> {
        self.pool("Enforce", is_ready).await?;
        report.passed("an enforcing pool gets Ready");
        for node in self.windows_nodes().await? {
            let (name, label) = (node.name_any(), node.labels().get(names::WINDOWS_BUILD).cloned());
            let right = if label == build(&node) { Ok(()) } else { Err(format!("it is {label:?}")) };
            report.check(&format!("node {name} has the label of the build that it reports"), right);
        }
        report.check("no taint changed", self.taints_unchanged().await?);
        Ok(())
    }

    /// Checks that a build label that was removed is restored within 2 seconds.
    pub async fn repair(&self, report: &mut TestReport) -> Result<()> {
        let (nodes, name) = (Api::<Node>::all(self.client.clone()), self.nodes[0].name_any());
        let remove = Patch::Merge(json!({"metadata": {"labels": {names::WINDOWS_BUILD: null}}}));
        nodes.patch(&name, &PatchParams::default(), &remove).await?;
        let restored = wait_for("the label is restored", Duration::from_secs(2), async || {
            Ok(nodes.get(&name).await?.labels().contains_key(names::WINDOWS_BUILD).then_some(()))
        });
        let restored = restored.await.map_err(|error| error.to_string());
        report.check(&format!("the build label of node {name} is restored within 2 s"), restored);
        Ok(())
    }

    /// Checks that a pod of each class runs on its build and starts, and that the kubelet refuses a Linux pod.
    pub async fn pods(&self, report: &mut TestReport) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAME);
        let refused = json!({"nodeName": self.nodes[0].name_any(), "os": {"name": "linux"}});
        let pod = self.end_of(&pods, "linux", "busybox", &refused).await?;
        let reason = pod.status.as_ref().and_then(|status| status.reason.clone()).unwrap_or_default();
        let right = if reason == "PodOSNotSupported" { Ok(()) } else { Err(format!("it says {reason:?}")) };
        report.check("the kubelet refuses a Linux pod with PodOSNotSupported", right);
        for (version, tag) in [("2019", "1809"), ("2022", "ltsc2022"), ("2025", "ltsc2025")] {
            let class = format!("{NAME}-{version}");
            if !self.made_classes().await?.contains(&class) {
                continue;
            }
            let image = format!("mcr.microsoft.com/windows/nanoserver:{tag}");
            // winpool adds no taint here. Taints of other writers stay.
            let spec = json!({"runtimeClassName": class, "tolerations": [{"operator": "Exists"}]});
            let pod = self.end_of(&pods, &class, &image, &spec).await?;
            let started = matches!(phase(&pod), "Running" | "Succeeded");
            let why =
                || format!("it is {}: {:?}", phase(&pod), pod.status.as_ref().map(|status| &status.container_statuses));
            report.check(&format!("a pod of class {class} starts"), if started { Ok(()) } else { Err(why()) });
        }
        Ok(())
    }

    /// Checks that a deleted pool takes everything with it but the build label.
    pub async fn release(&self, report: &mut TestReport) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAME);
        pods.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await?;
        wait_for("all pods are gone", LIMIT * 4, async || {
            Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
        })
        .await?;
        delete_pool(&self.client).await?;
        report.check("a deleted pool leaves every node as it was", self.unchanged().await?);
        let classes = self.made_classes().await?;
        report
            .check("it deletes its RuntimeClasses", if classes.is_empty() { Ok(()) } else { Err(classes.join(", ")) });
        Ok(())
    }

    /// Applies the pool in this mode, and waits until its status is current.
    async fn pool(&self, mode: &str, holds: impl Fn(&WindowsPool) -> bool) -> Result<WindowsPool> {
        let pools = Api::<WindowsPool>::all(self.client.clone());
        let pool = json!({
            "apiVersion": "winpool.dev/v1alpha1", "kind": "WindowsPool", "metadata": {"name": NAME},
            "spec": {"mode": mode, "taintPolicy": "Never", "runtimeClassNameFormat": format!("{NAME}-{{version}}")},
        });
        pools.patch(NAME, &PatchParams::apply(NAME).force(), &Patch::Apply(pool)).await?;
        wait_for(&format!("the pool has a status in mode {mode}"), LIMIT * 4, async || {
            let pool = pools.get(NAME).await?;
            let current =
                pool.status.as_ref().and_then(|status| status.observed_generation) == pool.metadata.generation;
            Ok((current && holds(&pool)).then_some(pool))
        })
        .await
    }

    /// Creates a pod, and waits until it runs or ends.
    async fn end_of(&self, pods: &Api<Pod>, name: &str, image: &str, spec: &Value) -> Result<Pod> {
        let mut spec = spec.clone();
        spec["containers"] = json!([{"name": "c", "image": image, "command": ["cmd", "/c", "ver"]}]);
        spec["restartPolicy"] = json!("Never");
        spec["automountServiceAccountToken"] = json!(false);
        let pod: Pod = read(json!({"metadata": {"name": name}, "spec": spec}))?;
        // The namespace's service account is created a moment after the namespace.
        wait_for(&format!("pod {name} is created"), LIMIT, async || {
            Ok(pods.create(&PostParams::default(), &pod).await.ok())
        })
        .await?;
        wait_for(&format!("pod {name} runs or ends"), PULL, async || {
            let pod = pods.get(name).await?;
            Ok((!matches!(phase(&pod), "" | "Pending")).then_some(pod))
        })
        .await
    }

    async fn windows_nodes(&self) -> Result<Vec<Node>> {
        Ok(Api::<Node>::all(self.client.clone()).list(&ListParams::default().labels(WINDOWS)).await?.items)
    }

    async fn made_classes(&self) -> Result<Vec<String>> {
        let classes = Api::<RuntimeClass>::all(self.client.clone()).list(&ListParams::default()).await?;
        let names = classes.iter().map(ResourceExt::name_any);
        Ok(names.filter(|name| !self.classes.contains(name)).collect())
    }

    /// Checks that winpool's labels and annotations, and all taints, are as they were at the start.
    async fn unchanged(&self) -> Result<std::result::Result<(), String>> {
        self.compare(|node| json!([ours(node.labels()), ours(node.annotations()), taints(node)])).await
    }

    async fn taints_unchanged(&self) -> Result<std::result::Result<(), String>> {
        self.compare(taints).await
    }

    async fn compare(&self, face: impl Fn(&Node) -> Value) -> Result<std::result::Result<(), String>> {
        for now in self.windows_nodes().await? {
            let before = self.nodes.iter().find(|node| node.name_any() == now.name_any());
            if let Some(before) = before.filter(|before| face(before) != face(&now)) {
                return Ok(Err(format!("{} was {} and is {}", now.name_any(), face(before), face(&now))));
            }
        }
        Ok(Ok(()))
    }
}

/// Deletes everything that was created and is left.
pub async fn clean_up() -> Result<()> {
    let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    let client = Client::try_from(config.clone())?;
    let namespaces = Api::<Namespace>::all(client.clone());
    // Without the namespace nothing was created.
    if namespaces.get_opt(NAME).await?.is_none() {
        return Ok(());
    }
    if Api::<WindowsPool>::all(client.clone())
        .list(&ListParams::default())
        .await
        .is_ok_and(|pools| !pools.items.is_empty())
    {
        let mut config = config;
        NAME.clone_into(&mut config.default_namespace);
        // The former operator may have ended, or hold the Lease: this one takes over, and releases the nodes.
        let operator = OperatorTask::start_with(config, Options::default());
        delete_pool(&client).await?;
        operator.stop().await?;
    }
    let now = DeleteParams::default();
    if definitions(&client).get_opt(&crd()?.name_any()).await?.is_some() {
        definitions(&client).delete(&crd()?.name_any(), &now).await?;
    }
    namespaces.delete(NAME, &now).await?;
    wait_for("the namespace is gone", LIMIT * 4, async || Ok(namespaces.get_opt(NAME).await?.is_none().then_some(())))
        .await
}

async fn delete_pool(client: &Client) -> Result<()> {
    let pools = Api::<WindowsPool>::all(client.clone());
    if pools.get_opt(NAME).await?.is_some() {
        pools.delete(NAME, &DeleteParams::default()).await?;
    }
    wait_for("the pool is gone", LIMIT * 4, async || Ok(pools.get_opt(NAME).await?.is_none().then_some(()))).await
}

fn definitions(client: &Client) -> Api<CustomResourceDefinition> {
    Api::all(client.clone())
}

fn is_ready(pool: &WindowsPool) -> bool {
    let mut conditions = pool.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.type_ == names::condition::READY && condition.status == "True")
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The expected value of the label.
fn build(node: &Node) -> Option<String> {
    let version = &node.status.as_ref()?.node_info.as_ref()?.kernel_version;
    version.parse::<KernelVersion>().ok().map(|version| version.build.to_string())
}

fn taints(node: &Node) -> Value {
    json!(node.spec.as_ref().and_then(|spec| spec.taints.as_ref()))
}

fn ours(map: &std::collections::BTreeMap<String, String>) -> Value {
    map.iter().filter(|(key, _)| key.contains("winpool.dev/")).map(|(key, value)| json!([key, value])).collect()
}

fn read<T: serde::de::DeserializeOwned>(object: Value) -> Result<T> {
    serde_json::from_value(object).map_err(|error| Error::from(kube::Error::SerdeError(error)))
}
