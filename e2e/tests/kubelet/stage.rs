//! A cluster with real kubelets, and helpers for tests.

use std::fmt::Write;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use winpool_e2e::error::Result;
use winpool_e2e::harness::Harness;
use winpool_e2e::harness::objects::taints;
use winpool_e2e::harness::operator::Operator;
use winpool_e2e::machine::wait::{LIMIT, wait_for};
use winpool_e2e::servers::cluster::Flags;
use winpool_e2e::servers::lending::lend_cluster_with;
use winpool_e2e::wine::machine::Machine;
use winpool_e2e::wine::windows::Windows;

/// The default handler of a pool's classes.
pub const HANDLER: &str = "runhcs-wcow-process";
/// The taint of a node that is not ready, with any effect.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A whole cluster with the CustomResourceDefinition and the operator's account.
pub async fn stage() -> Harness {
    stage_with(Flags::default()).await
}

pub async fn stage_with(flags: Flags<'_>) -> Harness {
    Harness::with(lend_cluster_with(flags).await.unwrap()).await
}

/// A cluster with the machine `win`, an operator, and a pool with all defaults that is Ready.
pub async fn stage_with_pool(windows: Windows) -> (Harness, Operator, Machine) {
    let harness = Box::pin(stage()).await;
    let operator = harness.operator().await;
    harness.apply_pool(json!({})).await;
    let machine = machine(&harness, "win", windows, &[]).await;
    ready(&harness, &machine).await;
    harness.ready("default").await;
    (harness, operator, machine)
}

pub async fn machine(harness: &Harness, name: &str, windows: Windows, flags: &[&str]) -> Machine {
    Machine::start(&harness.server, name, windows, flags).await.unwrap()
}

/// Waits until the kubelet has reported its node as Ready, and the controller manager has removed its taint.
pub async fn ready(harness: &Harness, machine: &Machine) -> Node {
    node_until(harness, machine, "is ready", |node| {
        is_ready(node) == Some("True") && !taints(node).iter().any(|taint| taint.starts_with(NOT_READY))
    })
    .await
}

/// Waits until this holds for the machine's node, once it exists.
pub async fn node_until(harness: &Harness, machine: &Machine, what: &str, holds: impl Fn(&Node) -> bool) -> Node {
    let (nodes, mut seen) = (harness.nodes(), None);
    let result = wait_for(&format!("node {} {what}", machine.name()), LIMIT, async || {
        machine.check()?;
        let node = nodes.get_opt(machine.name()).await?;
        let done = node.as_ref().is_some_and(&holds);
        seen.clone_from(&node);
        Ok(node.filter(|_| done))
    })
    .await;
    result.unwrap_or_else(|error| panic!("{error}\nlast seen: {:#}\n{}", json!(seen), end_of(machine)))
}

pub async fn machine_until(machine: &Machine, what: &str, holds: impl Fn(&Machine) -> Result<bool>) {
    let result = wait_for(&format!("{} {what}", machine.name()), LIMIT, async || {
        machine.check()?;
        Ok(holds(machine)?.then_some(()))
    })
    .await;
    result.unwrap_or_else(|error| panic!("{error}\ncalls: {:#?}\n{}", machine.calls(), end_of(machine)));
}

/// Waits until this holds for a pod of the namespace `default`.
pub async fn pod_until(harness: &Harness, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
    let (pods, mut seen) = (harness.pods(), None);
    let result = wait_for(&format!("pod {name} {what}"), LIMIT, async || {
        let pod = pods.get_opt(name).await?;
        let done = pod.as_ref().is_some_and(&holds);
        seen.clone_from(&pod);
        Ok(pod.filter(|_| done))
    })
    .await;
    let Err(error) = result else { return result.unwrap() };
    panic!("{error}\nlast seen: {:#}\n{}", json!(seen.map(|pod| (pod.spec, pod.status))), events(harness, name).await)
}

pub async fn runs(harness: &Harness, name: &str) -> Pod {
    pod_until(harness, name, "runs", |pod| phase(pod) == "Running").await
}

/// Waits until an Event about this pod contains these words; returns its reason and message.
pub async fn event(harness: &Harness, pod: &str, words: &str) -> (String, String) {
    let result = wait_for(&format!("an Event about pod {pod} says {words:?}"), LIMIT, async || {
        let events = list_events(harness, pod).await?.into_iter();
        let mut texts = events.map(|event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default()));
        Ok(texts.find(|(_, message)| message.contains(words)))
    })
    .await;
    let Err(error) = result else { return result.unwrap() };
    panic!("{error}\n{}", events(harness, pod).await)
}

async fn list_events(harness: &Harness, pod: &str) -> Result<Vec<Event>> {
    let events: Api<Event> = Api::namespaced(harness.client.clone(), "default");
    let about = ListParams::default().fields(&format!("involvedObject.kind=Pod,involvedObject.name={pod}"));
    Ok(events.list(&about).await?.items)
}

async fn events(harness: &Harness, pod: &str) -> String {
    list_events(harness, pod).await.unwrap().iter().fold("its Events:".to_owned(), |mut text, event| {
        write!(text, "\n{:?}: {:?}", event.reason, event.message).unwrap();
        text
    })
}

/// Creates a pod of the namespace `default` with this spec, and this image.
pub async fn run(harness: &Harness, name: &str, image: &str, spec: Value) -> Pod {
    run_as(harness, json!({"name": name}), image, spec).await
}

/// Creates a pod of the namespace `default` with this metadata and spec, and this image.
pub async fn run_as(harness: &Harness, metadata: Value, image: &str, mut spec: Value) -> Pod {
    spec["containers"] = json!([{"name": "c", "image": image}]);
    spec["terminationGracePeriodSeconds"] = json!(0);
    let pod = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
    harness.pods().create(&PostParams::default(), &pod).await.unwrap()
}

pub fn is_ready(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status.as_str())
}

pub fn kernel_version(node: &Node) -> Option<&str> {
    Some(&node.status.as_ref()?.node_info.as_ref()?.kernel_version)
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn reason(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.reason.as_deref()).unwrap_or_default()
}

/// The end of the kubelet's log.
fn end_of(machine: &Machine) -> String {
    let log = machine.log().unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    format!("the end of the kubelet's log:\n{}", lines[lines.len().saturating_sub(25)..].join("\n"))
}
