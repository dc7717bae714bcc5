//! `make demo`: winpool's main job on a real control plane with simulated nodes, checked at every step. With the argument
//! `real` the Windows nodes have real kubelets.
#![forbid(unsafe_code)]

mod placement;
mod table;

use crate::placement::{NeededNode, Placements};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;
use winpool_e2e::harness::objects::recorded_in;
use winpool_e2e::nodes::simulated::WINDOWS_BUILD;
use winpool_e2e::scene::{self, OperatorTask, UNLABELLED, install_crd, manifests};
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::wine::machine::{Machine, prepare_machines};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The plain Linux Deployment.
const LINUX: &str = "linux-web";

/// A Windows Deployment for each class, with the build that its nodes must have.
const WINDOWS: [(&str, &str); 3] = [("iis-2019", "10.0.17763"), ("iis-2022", "10.0.20348"), ("iis-2025", "10.0.26100")];

/// The classes that the pool creates.
const CLASSES: [&str; 3] = ["windows-2019", "windows-2022", "windows-2025"];

#[tokio::main]
async fn main() -> ExitCode {
    match demo().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\ndemo FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn demo() -> Result<()> {
    let real = std::env::args().nth(1).is_some_and(|kubelets| kubelets == "real");
    let kind = if real { "real Windows kubelets (Wine)" } else { "simulated nodes" };
    if real {
        prepare_machines().await?;
    }
    println!("winpool on a real Kubernetes control plane on this machine, with {kind}\n");
    let steps = Steps { started: Instant::now() };
    let cluster = control_plane(&steps).await?;
    let _machines = nodes(&cluster, &steps, real).await?;

    println!("\nWithout winpool");
    linux_pods_land_on_windows(&cluster, &steps).await?;

    println!("\nWith winpool");
    let operator = operator(&cluster, &steps).await?;
    empty_pool(&cluster, &steps).await?;
    repair(&cluster, &steps).await?;
    windows_pods(&cluster, &steps).await?;
    linux_pods(&cluster, &steps).await?;

    table::show(&cluster).await?;
    operator.stop().await?;
    let took = steps.started.elapsed().as_secs_f32();
    println!("Every pod runs on a node that can run it; {took:.1} s in total.\n");
    println!("This cluster ends now. To try things by hand:");
    println!("  make cluster                       a cluster that keeps running; it prints a line to set KUBECONFIG");
    println!("  kubectl get winpool,runtimeclass   in another terminal, after that line");
    Ok(())
}

/// Prints each step with the time since the start.
struct Steps {
    started: Instant,
}

impl Steps {
    fn done(&self, what: &str) {
        println!("{:>6.1} s  {what}", self.started.elapsed().as_secs_f32());
    }
}

async fn control_plane(steps: &Steps) -> Result<Cluster> {
    let cluster = Cluster::start().await?;
    let version = cluster.client().apiserver_version().await?.git_version;
    steps.done(&format!("Kubernetes {version} is up: etcd, API server, scheduler, controller manager"));
    Ok(cluster)
}

async fn nodes(cluster: &Cluster, steps: &Steps, real: bool) -> Result<Vec<Machine>> {
    let machines = if real {
        scene::machines_join(cluster).await?
    } else {
        scene::join(cluster, scene::nodes()).await?;
        Vec::new()
    };
    steps.done(&format!(
        "2 Linux nodes and one each of Windows Server 2019, 2022 and 2025 are Ready ({UNLABELLED} without label)"
    ));
    Ok(machines)
}

/// Shows what the taint prevents. Simulated nodes run every pod; real ones could not start these.
async fn linux_pods_land_on_windows(cluster: &Cluster, steps: &Steps) -> Result<()> {
    let mut objects = manifests::example("linux-web.yaml")?;
    for object in &mut objects {
        object.data["spec"]["replicas"] = json!(6);
    }
    manifests::apply(&cluster.client(), &objects).await?;
    let placements = Placements::of(cluster, LINUX).await?;
    let (lost, all) = (placements.off(NeededNode::Linux), placements.len());
    steps.done(&format!(
        "{LINUX}, a plain Linux Deployment: {lost} of {all} pods are on Windows nodes, where they cannot start"
    ));
    // Simulated pods do start, and winpool adds no taint that would make running pods unschedulable.
    scale(cluster, 0).await?;
    let pods = Api::<Pod>::default_namespaced(cluster.client());
    let gone = async || Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()));
    cluster.wait_for(&format!("the pods of {LINUX} are gone"), gone).await?;
    Ok(())
}

async fn scale(cluster: &Cluster, replicas: usize) -> Result<()> {
    let scale = json!({"spec": {"replicas": replicas}});
    let deployments = Api::<Deployment>::default_namespaced(cluster.client());
    deployments.patch(LINUX, &PatchParams::default(), &Patch::Merge(scale)).await?;
    Ok(())
}

async fn operator(cluster: &Cluster, steps: &Steps) -> Result<OperatorTask> {
    install_crd(&cluster.client()).await?;
    let operator = OperatorTask::start(cluster.api_server().config()?);
    steps.done("the CustomResourceDefinition is installed, the operator runs (in this process)");
    Ok(operator)
}

async fn empty_pool(cluster: &Cluster, steps: &Steps) -> Result<()> {
    let applied = Instant::now();
    let work_is_done = async {
        tokio::try_join!(nodes_are_marked(cluster), classes_exist(cluster))?;
        Ok(applied.elapsed().as_millis())
    };
    let (pool, took) = tokio::try_join!(scene::pool_gets_ready(cluster), work_is_done)?;
    let taints = recorded_in(&pool.status.unwrap_or_default()).join(", ");
    steps.done(&format!(
        "an empty WindowsPool (`spec: {{}}`) is applied and Ready; within {took} ms winpool had created"
    ));
    println!("          RuntimeClasses {}, and every Windows node had", CLASSES.join(", "));
    println!("          the taint {taints} and the right windows-build label");
    Ok(())
}

async fn nodes_are_marked(cluster: &Cluster) -> winpool_e2e::error::Result<()> {
    let nodes = Api::<Node>::all(cluster.client());
    let windows = ListParams::default().labels("kubernetes.io/os=windows");
    let probe = async || Ok(nodes.list(&windows).await?.iter().all(is_marked).then_some(()));
    cluster.wait_for("all Windows nodes are labelled and tainted", probe).await
}

async fn classes_exist(cluster: &Cluster) -> winpool_e2e::error::Result<()> {
    let classes = Api::<RuntimeClass>::all(cluster.client());
    let probe = async || {
        let existing = classes.list(&ListParams::default()).await?;
        let exists = |name: &&str| existing.iter().any(|class| class.name_any() == *name);
        Ok(CLASSES.iter().all(exists).then_some(()))
    };
    cluster.wait_for(&format!("RuntimeClasses {} exist", CLASSES.join(", ")), probe).await
}

/// Another user removes label and taints from a node.
async fn repair(cluster: &Cluster, steps: &Steps) -> Result<()> {
    let (name, nodes) = ("win-2022-a", Api::<Node>::all(cluster.client()));
    let undo = json!({"metadata": {"labels": {WINDOWS_BUILD: null}}, "spec": {"taints": null}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(undo)).await?;
    let undone = Instant::now();
    cluster
        .wait_for(&format!("{name} is right again"), async || Ok(nodes.get_opt(name).await?.filter(is_marked)))
        .await?;
    let took = undone.elapsed().as_millis();
    steps.done(&format!("label and taint of {name} are removed by hand: winpool restored them after {took} ms"));
    Ok(())
}

fn is_marked(node: &Node) -> bool {
    let reported = node.status.iter().filter_map(|status| status.node_info.as_ref()).map(|info| &info.kernel_version);
    let build = node.labels().get(WINDOWS_BUILD);
    let labelled = build.is_some_and(|build| reported.into_iter().any(|version| version.starts_with(build)));
    let tainted = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == "os");
    labelled && tainted
}

/// Each names a RuntimeClass and nothing else; the class adds selector and toleration.
async fn windows_pods(cluster: &Cluster, steps: &Steps) -> Result<()> {
    for (name, _) in WINDOWS {
        manifests::apply(&cluster.client(), &manifests::example(&format!("{name}.yaml"))?).await?;
    }
    for (name, build) in WINDOWS {
        let placements = Placements::of(cluster, name).await?;
        placements.must_be_on(NeededNode::Windows(build))?;
    }
    steps.done("iis-2019, iis-2022, iis-2025 set only runtimeClassName: each runs on its Windows version");
    Ok(())
}

async fn linux_pods(cluster: &Cluster, steps: &Steps) -> Result<()> {
    scale(cluster, 6).await?;
    let placements = Placements::of(cluster, LINUX).await?;
    placements.must_be_on(NeededNode::Linux)?;
    let all = placements.len();
    steps.done(&format!("{LINUX}, scheduled again without a change: {all} of {all} pods run on Linux nodes"));
    Ok(())
}
