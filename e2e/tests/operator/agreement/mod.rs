//! `winpool why` reports the nodes on which the real scheduler and the real DaemonSet controller put pods as possible, and
//! its remedies, applied, put pods only on nodes on which they start.

mod generator;

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use generator::{NODES, any_node, any_spec, applied, node_name, starts};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use winpool_analysis::explain::pod::{PodExplanation, answer, answer_template};
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::pod::{self, daemon_set_node};
use winpool_analysis::verdict;
use winpool_analysis::view::{self, Workload};
use winpool_client::node::ListedNode;
use winpool_core::api::names;
use winpool_core::pod::Class;
use winpool_e2e::harness::merge;
use winpool_e2e::harness::objects::{node_of, unschedulable};
use winpool_e2e::machine::dice::Dice;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::cluster::Cluster;
use winpool_e2e::servers::lending::lend_cluster;

const PODS: usize = 50;
const DAEMON_SETS: usize = 30;
/// Requests in parallel.
const HANDS: usize = 6;

/// The node as winpool reads it.
fn machine(node: &Node) -> view::Node {
    let node = json!(node);
    let listed: ListedNode = serde_json::from_value(node.clone()).unwrap();
    view::SeenNode::new(listed.object, &node).host()
}

struct Stage {
    /// Kept until the end.
    _cluster: Cluster,
    client: Client,
    nodes: BTreeMap<String, Node>,
    machines: Vec<view::Node>,
    classes: BTreeMap<String, Class>,
    pods: usize,
}

impl Stage {
    /// Nodes of which one is cordoned, and classes.
    async fn set(dice: &mut Dice) -> Self {
        let cluster = lend_cluster().await.unwrap();
        let client = cluster.client();
        for index in 0..NODES {
            any_node(dice, index).join(&client).await.unwrap();
        }
        for index in 0..NODES {
            cluster.node_ready(&node_name(index)).await.unwrap();
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let cordon = json!({"spec": {"unschedulable": true}});
        merge(&nodes, &node_name(1), cordon).await;
        let classes: Api<RuntimeClass> = Api::all(client.clone());
        for (name, build) in [("windows-2019", Some("10.0.17763")), ("windows-2022", Some("10.0.20348")), ("any", None)]
        {
            let mut class = json!({"metadata": {"name": name}, "handler": "h", "scheduling": {
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "tolerations": [{"key": "os", "operator": "Equal", "value": "windows", "effect": "NoSchedule"}],
            }});
            if let Some(build) = build {
                class["scheduling"]["nodeSelector"][names::WINDOWS_BUILD] = json!(build);
            }
            classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
        }
        // The taint of a cordon comes from a controller.
        let cordoned = async || {
            let taints = nodes.get(&node_name(1)).await?.spec.and_then(|spec| spec.taints).unwrap_or_default();
            Ok(taints.iter().any(|taint| taint.key == "node.kubernetes.io/unschedulable").then_some(()))
        };
        wait_for("the cordoned node is tainted", LIMIT, cordoned).await.unwrap();
        let known = classes.list(&ListParams::default()).await.unwrap().items;
        let nodes = nodes.list(&ListParams::default()).await.unwrap().items;
        Self {
            _cluster: cluster,
            client,
            machines: nodes.iter().map(machine).collect(),
            nodes: nodes.into_iter().map(|node| (node.name_any(), node)).collect(),
            classes: known.iter().map(|class| (class.name_any(), Class::from(class))).collect(),
            pods: 0,
        }
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn explain(&self, pod: &Pod) -> PodExplanation {
        let pod: pod::Pod = serde_json::from_value(serde_json::to_value(pod).unwrap()).unwrap();
        answer(&pod, &self.cluster())
    }

    /// What pods find here.
    fn cluster(&self) -> verdict::Cluster {
        let (nodes, classes) = (self.machines.clone(), self.classes.clone());
        verdict::Cluster { nodes, classes, ..verdict::Cluster::default() }
    }

    /// Creates as many pods as there are nodes. No two of them fit on one node, because all want the same port of it: the
    /// nodes on which some of them land are all nodes on which one may. Returns the admitted pods, or the refusal.
    async fn create_group(&mut self, group: &str, spec: &Value) -> Result<Vec<Pod>, kube::Error> {
        let mut spec = spec.clone();
        spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 20_000}]);
        let api = &self.api();
        let pods = (0..NODES).map(
            |index| json!({"metadata": {"name": format!("{group}-{index}"), "labels": {"group": group}}, "spec": spec}),
        );
        let created = stream::iter(pods)
            .map(async |pod| api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await);
        let created: Vec<_> = created.buffer_unordered(HANDS).collect().await;
        self.pods += created.iter().filter(|created| created.is_ok()).count();
        created.into_iter().collect()
    }

    /// Waits until the scheduler has decided on all pods of the group, and returns them.
    async fn decided(&self, selector: &str) -> Vec<Pod> {
        let selected = ListParams::default().labels(selector);
        let mut seen = Vec::new();
        let decided = wait_for("the scheduler has decided", LIMIT, async || {
            seen = self.api().list(&selected).await?.items;
            Ok(seen.iter().all(|pod| node_of(pod).is_some() || unschedulable(pod).is_some()).then_some(()))
        });
        decided.await.unwrap_or_else(|error| panic!("{error}: {selector}"));
        seen
    }

    /// Deletes the pods, so that their ports and extended resources are free again.
    async fn delete(&self, selector: &str) {
        let selected = ListParams::default().labels(selector);
        self.api().delete_collection(&DeleteParams::default().grace_period(0), &selected).await.unwrap();
        let gone = async || Ok(self.api().list(&selected).await?.items.is_empty().then_some(()));
        wait_for("the pods are gone", LIMIT, gone).await.unwrap();
    }

    /// Creates the group, compares where it lands with what `why pod` says, and returns the answer for the pod as written,
    /// with the nodes. `None` if the API server refuses it.
    async fn compare(&mut self, group: &str, spec: &Value) -> Option<(PodExplanation, BTreeSet<String>)> {
        let written = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let before = self.explain(&written);
        let pods = match self.create_group(group, spec).await {
            Ok(pods) => pods,
            Err(kube::Error::Api(status)) if status.code == 403 => {
                assert!(is_refused(&before), "{status:?}: {before:?} {spec:#}");
                self.delete(&format!("group={group}")).await;
                return None;
            }
            Err(error) => panic!("{error}: {spec:#}"),
        };
        assert!(!is_refused(&before), "{before:#?} {spec:#}");
        let after = self.explain(&pods[0]);
        if spec["nodeName"].is_null() {
            assert_eq!(before.nodes, after.nodes, "what admission does to a pod is foreseen: {spec:#}");
        }
        let seen = self.decided(&format!("group={group}")).await;
        let bound: BTreeSet<String> = seen.iter().filter_map(node_of).map(str::to_owned).collect();
        assert_eq!(bound, possible(&before), "{spec:#}");
        self.delete(&format!("group={group}")).await;
        Some((before, bound))
    }

    /// Fails if the pod does not start on one of these nodes.
    fn must_start(&self, spec: &Value, system: &str, bound: &BTreeSet<String>, told: &PodExplanation) {
        for name in bound {
            let starts = starts(spec, system == names::WINDOWS, &self.nodes[name]);
            assert_ne!(starts, Some(false), "on {name}: {spec:#} {told:#?}");
        }
    }
}

fn is_refused(answer: &PodExplanation) -> bool {
    answer.remedy.as_ref().is_some_and(|remedy| remedy.text.contains("the API server refuses"))
}

fn possible(answer: &PodExplanation) -> BTreeSet<String> {
    answer.nodes.iter().filter(|node| node.possible).map(|node| node.name.clone()).collect()
}

fn will_start(answer: &PodExplanation) -> BTreeSet<String> {
    let nodes = answer.nodes.iter().filter(|node| node.possible && node.starts != Some(false));
    nodes.map(|node| node.name.clone()).collect()
}

#[tokio::test]
async fn why_agrees_with_the_scheduler_and_the_daemon_set_controller() {
    let dice = &mut Dice::new(7);
    let stage = &mut Stage::set(dice).await;
    why_pod_agrees_with_the_scheduler(stage, dice).await;
    stage.pods = 0;
    why_daemonset_agrees_with_the_daemon_set_controller(stage, &mut Dice::new(11)).await;
}

async fn why_pod_agrees_with_the_scheduler(stage: &mut Stage, dice: &mut Dice) {
    let (mut landed, mut nowhere, mut refused, mut remedied) = (0, 0, 0, 0);
    for group in 0..PODS {
        let spec = any_spec(dice);
        let Some((before, bound)) = stage.compare(&format!("g{group}"), &spec).await else {
            refused += 1;
            continue;
        };
        landed += bound.len();
        nowhere += usize::from(bound.is_empty());
        let fine = !bound.is_empty() && will_start(&before) == bound;
        assert_eq!(before.remedy.is_none(), fine, "a remedy where it is needed, and only there: {before:#?}");
        if before.remedy.is_none() {
            stage.must_start(&spec, &before.system, &bound, &before);
        }
        let told = before;
        let Some(changed) = applied(&spec, told.remedy.as_ref()) else { continue };
        let compared = stage.compare(&format!("r{group}"), &changed).await;
        let (answer, bound) = compared.unwrap_or_else(|| panic!("refused: {changed:#} {told:#?}"));
        stage.must_start(&changed, &told.system, &bound, &told);
        // The remedy counts on a cordoned node.
        assert!(
            !bound.is_empty() || answer.nodes.iter().any(|node| node.name == node_name(1)),
            "{changed:#} {told:#?}"
        );
        remedied += 1;
    }
    println!(
        "{} pods of {PODS} specs on {NODES} nodes: {landed} landed, {nowhere} specs nowhere, {refused} refused, {remedied} \
         remedies applied, all as predicted",
        stage.pods
    );
    assert!(stage.pods >= 700 && landed > 70 && nowhere > 3 && refused > 3 && remedied > 14);
}

/// The pods of the DaemonSet once the controller has made all that it wants, one for each of these nodes.
async fn made(stage: &Stage, sets: &Api<DaemonSet>, name: &str, expected: &BTreeSet<String>) -> Vec<Pod> {
    let (of_set, mut seen) = (ListParams::default().labels(&format!("app={name}")), BTreeSet::new());
    let made = wait_for("the DaemonSet controller has made its pods", LIMIT, async || {
        let set = sets.get(name).await?;
        let status = set.status.unwrap_or_default();
        let is_current = status.observed_generation == set.metadata.generation;
        let is_done = is_current && status.current_number_scheduled == status.desired_number_scheduled;
        seen = stage.api().list(&of_set).await?.items.iter().map(node_wanted).collect();
        Ok((is_done && seen == *expected).then_some(()))
    });
    made.await.unwrap_or_else(|error| panic!("{error}: {name} has pods for {seen:?} and not for {expected:?}"));
    stage.decided(&format!("app={name}")).await
}

/// The node for which the DaemonSet controller made the pod.
fn node_wanted(pod: &Pod) -> String {
    let pod: pod::Pod = serde_json::from_value(serde_json::to_value(pod).unwrap()).unwrap();
    daemon_set_node(&pod).unwrap().to_owned()
}

/// Compares the DaemonSet of this template with what `why daemonset` and `why pod` say.
async fn compare_daemon_set(stage: &mut Stage, name: &str, spec: &Value) -> Option<(PodExplanation, BTreeSet<String>)> {
    let mut spec = spec.clone();
    spec["automountServiceAccountToken"] = json!(false);
    let sets: Api<DaemonSet> = Api::namespaced(stage.client.clone(), "default");
    let object = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": spec}}});
    let kind = WorkloadKind::own("DaemonSet").unwrap();
    let told = answer_template(kind, &Workload::read_all(kind, &object).unwrap()[0], &[], &stage.cluster());
    if is_refused(&told) {
        return None;
    }
    sets.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let pods = made(stage, &sets, name, &possible(&told)).await;
    stage.pods += pods.len();
    assert_eq!(pods.iter().map(node_wanted).collect::<BTreeSet<_>>(), possible(&told), "{spec:#} {told:#?}");
    let pending = told.nodes.iter().filter(|node| node.reasons.iter().any(|reason| reason.contains("stays Pending")));
    let pending: BTreeSet<String> = pending.map(|node| node.name.clone()).collect();
    let bound: BTreeSet<String> = pods.iter().filter_map(node_of).map(str::to_owned).collect();
    assert_eq!(bound, possible(&told).difference(&pending).cloned().collect(), "{spec:#} {told:#?}");
    for pod in &pods {
        let own = stage.explain(pod);
        assert_eq!(!possible(&own).is_empty(), node_of(pod).is_some(), "{own:#?}");
    }
    sets.delete(name, &DeleteParams::default()).await.unwrap();
    stage.delete(&format!("app={name}")).await;
    Some((told, bound))
}

async fn why_daemonset_agrees_with_the_daemon_set_controller(stage: &mut Stage, dice: &mut Dice) {
    let (mut landed, mut remedied, mut refused) = (0, 0, 0);
    for number in 0..DAEMON_SETS {
        let mut spec = any_spec(dice);
        spec.as_object_mut().unwrap().remove("nodeName");
        let Some((told, bound)) = compare_daemon_set(stage, &format!("d{number}"), &spec).await else {
            refused += 1;
            continue;
        };
        landed += bound.len();
        if told.remedy.is_none() {
            stage.must_start(&spec, &told.system, &bound, &told);
        }
        let Some(changed) = applied(&spec, told.remedy.as_ref()) else { continue };
        let compared = compare_daemon_set(stage, &format!("r{number}"), &changed).await;
        let (after, bound) = compared.unwrap_or_else(|| panic!("refused: {changed:#} {told:#?}"));
        assert!(!bound.is_empty() && bound == possible(&after), "{changed:#} {told:#?} {after:#?}");
        stage.must_start(&changed, &told.system, &bound, &told);
        remedied += 1;
    }
    println!(
        "{} pods of {DAEMON_SETS} DaemonSets on {NODES} nodes: {landed} landed, {refused} refused, {remedied} remedies applied, \
         all as predicted",
        stage.pods
    );
    assert!(landed > 40 && remedied > 4);
}
