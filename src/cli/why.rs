//! `winpool why`: why a node is as it is, and why a pod does or does not land and start.

mod class;

pub(super) use class::section as scaling;

use std::{collections::BTreeMap, sync::Arc};

use clap::Subcommand;
use k8s_openapi::api::{
    core::v1::{Event, Node},
    node::v1::RuntimeClass,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Deserialize;
use winpool_core::{
    api::names,
    explain::{
        forecast::{Change, forecast},
        node::{NodeStory, UNOWNED, node_story},
        pod::{Answer, Landing, Machine, answer},
    },
    plan::{Entry, Policy},
    pod::{Class, KnownError, Pod, known_error},
};

use crate::{api_server::pods::ListedPod, cache::node::CachedNode, controllers::GuardedPool};

use super::{
    Common, Error, Outcome,
    cluster::Cluster,
    input::{self, Keep, Manifest},
    live::{self, ReadError},
    output::{self, BAD, BOLD, DIM, GOOD, Table, Text, WARN},
    plan::snapshot,
};

/// Explain the state of a node, or why a pod can or cannot be scheduled and started.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// What to explain.
    #[command(subcommand)]
    pub subject: Subject,
}

/// The object to explain.
#[derive(Clone, Debug, Subcommand)]
pub enum Subject {
    /// Explain a node: its build and pool, where its taints come from, which RuntimeClasses select it, and what the operator
    /// would change.
    Node(NodeArguments),
    /// Explain a pod: on which nodes it can be scheduled and started, what its error means, and the smallest change after which
    /// it is scheduled only to nodes on which it starts.
    ///
    /// winpool considers os, selector, RuntimeClass, required node affinity, taints and tolerations, cordons, extended resources,
    /// and the build in image tags. It does not consider cpu, memory, volumes, ports, or the resources of other pods. A pod
    /// without any sign of Windows is a Linux pod, unless it has run on a Windows node.
    Pod(PodArguments),
    /// Explain if a RuntimeClass can start from zero nodes: which NodePool of Karpenter, or node group with tags for
    /// cluster-autoscaler, makes a node for its pods, or what each of them lacks.
    ///
    /// winpool reads NodePools and EC2NodeClasses in the cluster or in manifests; in manifests also ClusterConfigs of eksctl and
    /// annotations of Cluster API. It does not consider instance types, zones, quotas, or what is left of limits.
    ///
    /// Example: winpool why class windows-2022 -f nodepools.yaml -f pool.yaml
    Class(class::Arguments),
}

/// Arguments of `why node`.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeArguments {
    /// Name of the node.
    pub name: String,
    /// Where to look and how to print.
    #[command(flatten)]
    pub common: Common,
}

/// Arguments of `why pod`.
#[derive(Clone, Debug, clap::Args)]
pub struct PodArguments {
    /// Name of the pod.
    pub name: String,
    /// Namespace of the pod; the one of the current context if not set.
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// Where to look and how to print.
    #[command(flatten)]
    pub common: Common,
}

/// Runs the command.
///
/// # Errors
/// When there is no such object, or its surroundings cannot be read.
pub async fn run(arguments: Arguments) -> Result<Outcome, Error> {
    match arguments.subject {
        Subject::Node(NodeArguments { name, common }) => {
            let story = why_node(&name, &common).await?;
            output::print(common.output.format, &story, || node_text(&story))?;
        }
        Subject::Pod(arguments) => {
            let answer = why_pod(&arguments).await?;
            output::print(arguments.common.output.format, &answer, || pod_text(&answer))?;
        }
        Subject::Class(arguments) => {
            let story = class::story(&arguments).await?;
            output::print(arguments.common.output.format, &story, || class::text(&story))?;
        }
    }
    Ok(Outcome::Done)
}

async fn why_node(name: &str, common: &Common) -> Result<NodeStory, Error> {
    let (mut cluster, found) = if common.origin.files.is_empty() {
        let client = common.origin.connection.client().await?;
        let nodes: Api<CachedNode> = Api::all(client.clone());
        let found = live::get("nodes", &nodes, name).await?;
        (Cluster::live(&client).await?, found)
    } else {
        let cluster = Cluster::from_manifests(&common.origin.files)?;
        let found = cluster.nodes.iter().find(|node| node.name() == name).cloned();
        (cluster, found)
    };
    let not_found = || Error::NotFound { kind: "Node", name: name.to_owned() };
    let node = found.ok_or_else(not_found)?;
    cluster.nodes.retain(|other| other.name() != name);
    cluster.nodes.push(node.clone());
    let classes = cluster.classes.clone();
    let snapshot = snapshot(cluster);
    let read: Vec<_> = snapshot.pools.iter().map(GuardedPool::read).collect();
    let invalid = read.iter().filter_map(|pool| Some(pool.as_ref().err()?.name.clone())).collect();
    let pools = read.iter().filter_map(|pool| pool.as_ref().ok());
    let entries = pools.map(|pool| Entry { pool: Arc::new(pool.clone()), ready: true });
    let policy = Policy::new(entries, invalid);
    Ok(node_story(name, &node.seen, &policy, &classes, &forecast(snapshot)))
}

async fn why_pod(arguments: &PodArguments) -> Result<Answer, Error> {
    let PodArguments { name, namespace, common } = arguments;
    let (pod, machines, classes) = if common.origin.files.is_empty() {
        let client = common.origin.connection.client().await?;
        let namespace = namespace.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        let surroundings = surroundings(&client).await?;
        (pod(&client, &namespace, name).await?, surroundings.0, surroundings.1)
    } else {
        let namespace = namespace.as_deref().unwrap_or("default");
        let (mut pods, mut machines, mut classes) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (_, part) in input::read(&common.origin.files)? {
            match part {
                Part::Pod(pod) => pods.push(*pod),
                Part::Machine(machine) => machines.push(*machine),
                Part::Class(class) => drop(classes.insert(class.name_any(), Class::from(&*class))),
            }
        }
        let namespace_of =
            |pod: &Pod| if pod.namespace.is_empty() { "default".to_owned() } else { pod.namespace.clone() };
        let wanted = |pod: &Pod| pod.name == *name && namespace_of(pod) == namespace;
        (pods.into_iter().find(wanted).ok_or_else(|| no_pod(namespace, name))?, machines, classes)
    };
    Ok(answer(&pod, &machines, &classes))
}

fn no_pod(namespace: &str, name: &str) -> Error {
    Error::NotFound { kind: "Pod", name: format!("{namespace}/{name}") }
}

async fn pod(client: &Client, namespace: &str, name: &str) -> Result<Pod, Error> {
    let pods: Api<ListedPod> = Api::namespaced(client.clone(), namespace);
    let found = live::get("pods", &pods, name).await?.map(|listed| listed.pod);
    let mut pod = found.ok_or_else(|| no_pod(namespace, name))?;
    for error in errors_in_events(client, &pod).await? {
        if !pod.errors.contains(&error) {
            pod.errors.push(error);
        }
    }
    Ok(pod)
}

/// Returns the known errors in the Events of the pod: a sandbox that cannot be created shows nowhere else. There are none for a
/// user who has no permission to list Events.
async fn errors_in_events(client: &Client, pod: &Pod) -> Result<Vec<KnownError>, Error> {
    let mut errors = Vec::new();
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace);
    let about = ListParams::default().fields(&format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name));
    let add = |event: Event| {
        // Others are about an earlier pod of this name.
        let is_new = event.metadata.creation_timestamp.is_none_or(|time| pod.created.is_none_or(|pod| pod <= time.0));
        errors.extend(event.message.as_deref().filter(|_| is_new).and_then(known_error));
    };
    match live::list("events", &events, about, add).await {
        Ok(()) | Err(ReadError::Forbidden { .. }) => Ok(errors),
        Err(error) => Err(error.into()),
    }
}

/// The nodes and the RuntimeClasses.
async fn surroundings(client: &Client) -> Result<(Vec<Machine>, BTreeMap<String, Class>), Error> {
    let (mut machines, mut classes) = (Vec::new(), BTreeMap::new());
    let nodes: Api<Node> = Api::all(client.clone());
    live::list("nodes", &nodes, ListParams::default(), |node| machines.push(Machine::from(&node))).await?;
    let all: Api<RuntimeClass> = Api::all(client.clone());
    let keep = |class: RuntimeClass| drop(classes.insert(class.name_any(), Class::from(&class)));
    live::list("runtimeclasses", &all, ListParams::default(), keep).await?;
    Ok((machines, classes))
}

enum Part {
    Machine(Box<Machine>),
    Class(Box<RuntimeClass>),
    Pod(Box<Pod>),
}

impl Keep for Part {
    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        Ok(if manifest.is("", "Node") {
            Some(Self::Machine(Box::new(Machine::from(&Node::deserialize(manifest.value)?))))
        } else if manifest.is("node.k8s.io", "RuntimeClass") {
            Some(Self::Class(Box::new(RuntimeClass::deserialize(manifest.value)?)))
        } else if manifest.is("", "Pod") {
            Some(Self::Pod(Box::new(Pod::deserialize(manifest.value)?)))
        } else {
            None
        })
    }
}

fn node_text(story: &NodeStory) -> Text {
    let mut text = Text::new();
    let is = if story.state == UNOWNED { "belongs to no WindowsPool" } else { &format!("is {}", story.state) };
    text.styled("", BOLD, &format!("Node {} {is}", story.node));
    if let Some(build) = &story.build {
        let product = story.product.as_deref().unwrap_or("a build that this release has no name for");
        let support = story.end_of_support.as_ref().map_or_else(String::new, |day| format!("; supported until {day}"));
        text.line(&format!("  {build}, {product}{support}"));
    }
    for reason in &story.reasons {
        text.paragraph("  ", reason);
    }
    if !story.taints.is_empty() {
        let mut table = Table::new(&["TAINT", "FROM"]);
        for taint in &story.taints {
            table.row([&taint.taint, &taint.origin]);
        }
        text.gap().table(&table);
    }
    let classes = if story.runtime_classes.is_empty() { "none".to_owned() } else { story.runtime_classes.join(", ") };
    text.gap().line(&format!("RuntimeClasses that lead to it: {classes}"));
    text.gap();
    if story.changes.is_empty() {
        text.styled("", GOOD, "The operator would change nothing.");
    } else {
        text.styled("", WARN, "The operator would change:");
    }
    for Change { field, from, to, reason } in &story.changes {
        text.line(&format!("  {field}: {from} -> {to}"));
        text.styled("    ", DIM, reason);
    }
    text
}

fn pod_text(answer: &Answer) -> Text {
    let mut text = Text::new();
    let on = answer.node.as_ref().map_or_else(|| "is on no node".to_owned(), |node| format!("is on node {node}"));
    let system = if answer.system == names::WINDOWS { "Windows" } else { "Linux" };
    text.styled("", BOLD, &format!("Pod {} {on}", answer.pod));
    if system == "Linux" {
        text.line("  It is taken for a Linux pod.");
    }
    for error in &answer.errors {
        text.styled("  ", BAD, error.error);
        text.paragraph("    ", error.meaning);
    }
    if answer.nodes.is_empty() {
        text.styled("  ", WARN, &format!("There is no {system} node."));
    } else {
        text.gap().table(&landings(&answer.nodes));
    }
    text.gap();
    match &answer.remedy {
        None => text.styled("", GOOD, "Nothing has to be changed: no node that it may land on is known to stop it."),
        Some(remedy) => text.styled("", WARN, "To make it land and start:").paragraph("  ", remedy),
    };
    text.styled("", DIM, "Not looked at: cpu, memory, volumes, ports, and what other pods use.");
    text
}

/// Nodes with the same answer stand in one row.
fn landings(nodes: &[Landing]) -> Table {
    const NAMED: usize = 3;
    let mut groups: Vec<(&Landing, Vec<&str>)> = Vec::new();
    for node in nodes {
        let same = |(first, _): &&mut (&Landing, Vec<&str>)| {
            (first.possible, first.starts, &first.reasons) == (node.possible, node.starts, &node.reasons)
        };
        match groups.iter_mut().find(same) {
            Some((_, names)) => names.push(&node.name),
            None => groups.push((node, vec![&node.name])),
        }
    }
    let mut table = Table::new(&["NODE", "LANDS", "STARTS", "REASONS"]);
    for (Landing { possible, starts, reasons, .. }, names) in groups {
        let more = names.len().saturating_sub(NAMED);
        let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let shown = if more > 0 { format!("{shown} and {more} more") } else { shown };
        let starts = starts.map_or("unknown", |starts| if starts { "yes" } else { "no" });
        table.row([shown.as_str(), if *possible { "yes" } else { "no" }, starts, &reasons.join("; ")]);
    }
    table
}
