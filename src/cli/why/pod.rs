//! Explains where a pod, or the pods of a workload, can be scheduled and started.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{Event, Node},
    node::v1::RuntimeClass,
};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Deserialize;
use winpool_core::{
    api::names,
    explain::pod::{Landing, Machine, PodStory, answer_template, answer_with},
    image::Images,
    pod::{Class, KnownError, LISTED_KINDS, Pod, PodSpec, Workload, WorkloadKind, known_error},
    words::count,
};

use crate::{
    api_server::pods::{self, ListedPod, ListedWorkload},
    cli::{
        Common, Error,
        input::{self, Keep, Manifest},
        live::{self, ReadError},
        output::{BAD, BOLD, DIM, GOOD, Text, WARN},
        resolve::Resolve,
    },
};

/// The objects of a cluster that winpool reads to explain pods.
#[derive(Default)]
struct Surroundings {
    machines: Vec<Machine>,
    classes: BTreeMap<String, Class>,
    pods: Vec<Pod>,
    workloads: Vec<(WorkloadKind, Workload)>,
}

pub(super) async fn why_pod(
    name: &str,
    namespace: Option<&str>,
    common: &Common,
    resolve: &Resolve,
) -> Result<PodStory, Error> {
    let (pod, around) = if common.origin.files.is_empty() {
        let client = common.origin.connection.client().await?;
        let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
        let around = Surroundings::live(&client).await?;
        (live_pod(&client, &namespace, name).await?, around)
    } else {
        let namespace = namespace.unwrap_or("default");
        let mut around = Surroundings::from_manifests(common)?;
        let found = around.pods.iter().position(|pod| pod.name == name && in_namespace(&pod.namespace) == namespace);
        let found = found.ok_or_else(|| not_found("Pod", namespace, name))?;
        (around.pods.swap_remove(found), around)
    };
    let images = images(&pod.spec, resolve).await?;
    Ok(answer_with(&pod, &around.machines, &around.classes, &images))
}

pub(super) async fn why_workload(
    kind: WorkloadKind,
    name: &str,
    namespace: Option<&str>,
    common: &Common,
    resolve: &Resolve,
) -> Result<PodStory, Error> {
    let (workload, around) = if common.origin.files.is_empty() {
        let client = common.origin.connection.client().await?;
        let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
        let mut around = Surroundings::live(&client).await?;
        let api = pods::workloads(&client, kind, Some(&namespace));
        let plural = LISTED_KINDS.iter().find(|(known, ..)| *known == kind).map_or("", |(.., plural)| *plural);
        let found: Option<ListedWorkload> = live::get(plural, &api, name).await?;
        let workload = found.ok_or_else(|| not_found(kind.as_str(), &namespace, name))?.workload;
        around.pods = live_pods_of(&client, kind, &workload).await?;
        (workload, around)
    } else {
        let namespace = namespace.unwrap_or("default");
        let around = Surroundings::from_manifests(common)?;
        let is_it = |(of, workload): &&(WorkloadKind, Workload)| {
            *of == kind && workload.name == name && in_namespace(&workload.namespace) == namespace
        };
        let found = around.workloads.iter().find(is_it).map(|(_, workload)| workload.clone());
        (found.ok_or_else(|| not_found(kind.as_str(), namespace, name))?, around)
    };
    let object = format!("{} {}/{name}", kind.as_str(), workload.namespace);
    let mut errors: Vec<KnownError> = Vec::new();
    for error in around.pods.iter().filter(|pod| pod.workload() == object).flat_map(|pod| &pod.errors) {
        if !errors.contains(error) {
            errors.push(*error);
        }
    }
    let images = images(&workload.template, resolve).await?;
    Ok(answer_template(kind, &workload, errors, &around.machines, &around.classes, &images))
}

async fn images(spec: &PodSpec, resolve: &Resolve) -> Result<Images, Error> {
    Ok(resolve.images(|| spec.images().map(|(_, name)| name.to_owned()).collect()).await?)
}

fn in_namespace(namespace: &str) -> &str {
    if namespace.is_empty() { "default" } else { namespace }
}

fn not_found(kind: &'static str, namespace: &str, name: &str) -> Error {
    Error::NotFound { kind, name: format!("{namespace}/{name}") }
}

async fn live_pod(client: &Client, namespace: &str, name: &str) -> Result<Pod, Error> {
    let pods: Api<ListedPod> = Api::namespaced(client.clone(), namespace);
    let found = live::get("pods", &pods, name).await?.map(|listed| listed.pod);
    let mut pod = found.ok_or_else(|| not_found("Pod", namespace, name))?;
    add_errors_of_events(client, std::slice::from_mut(&mut pod)).await?;
    Ok(pod)
}

/// Pods of the workload with a known error; none for a user who has no permission to list pods. The jobs of a
/// `CronJob` are other workloads.
async fn live_pods_of(client: &Client, kind: WorkloadKind, workload: &Workload) -> Result<Vec<Pod>, Error> {
    let object = format!("{} {}/{}", kind.as_str(), workload.namespace, workload.name);
    let api: Api<ListedPod> = Api::namespaced(client.clone(), &workload.namespace);
    let mut pods = Vec::new();
    let keep = |listed: ListedPod| pods.extend(Some(listed.pod).filter(|pod| pod.workload() == object));
    match live::list("pods", &api, ListParams::default(), keep).await {
        Ok(()) | Err(ReadError::Forbidden { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    add_errors_of_events(client, &mut pods).await?;
    Ok(pods)
}

/// Adds the known errors in the Events of these pods, which are of one namespace: a sandbox that cannot be created shows nowhere
/// else. There are none for a user who has no permission to list Events.
async fn add_errors_of_events(client: &Client, pods: &mut [Pod]) -> Result<(), Error> {
    let Some(first) = pods.first() else { return Ok(()) };
    let events: Api<Event> = Api::namespaced(client.clone(), &first.namespace);
    let about = match &*pods {
        [pod] => format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name),
        _ => "involvedObject.kind=Pod,type=Warning".to_owned(),
    };
    let add = |event: Event| {
        let Some(error) = event.message.as_deref().and_then(known_error) else { return };
        let of_event = |pod: &&mut Pod| event.involved_object.name.as_deref() == Some(pod.name.as_str());
        let Some(pod) = pods.iter_mut().find(of_event) else { return };
        // Others are about an earlier pod of this name.
        let is_new = event.metadata.creation_timestamp.is_none_or(|time| pod.created.is_none_or(|pod| pod <= time.0));
        if is_new && !pod.errors.contains(&error) {
            pod.errors.push(error);
        }
    };
    match live::list("events", &events, ListParams::default().fields(&about), add).await {
        Ok(()) | Err(ReadError::Forbidden { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Surroundings {
    async fn live(client: &Client) -> Result<Self, Error> {
        let mut around = Self::default();
        let nodes: Api<Node> = Api::all(client.clone());
        let keep = |node| around.machines.push(Machine::from(&node));
        live::list("nodes", &nodes, ListParams::default(), keep).await?;
        let all: Api<RuntimeClass> = Api::all(client.clone());
        let keep = |class: RuntimeClass| drop(around.classes.insert(class.name_any(), Class::from(&class)));
        live::list("runtimeclasses", &all, ListParams::default(), keep).await?;
        Ok(around)
    }

    fn from_manifests(common: &Common) -> Result<Self, Error> {
        let mut around = Self::default();
        for (_, part) in input::read(&common.origin.files)? {
            match part {
                Part::Pod(pod) => around.pods.push(*pod),
                Part::Machine(machine) => around.machines.push(*machine),
                Part::Class(class) => drop(around.classes.insert(class.name_any(), Class::from(&*class))),
                Part::Workload(kind, workload) => around.workloads.push((kind, *workload)),
            }
        }
        Ok(around)
    }
}

enum Part {
    Machine(Box<Machine>),
    Class(Box<RuntimeClass>),
    Pod(Box<Pod>),
    Workload(WorkloadKind, Box<Workload>),
}

impl Keep for Part {
    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        let workload = LISTED_KINDS.iter().find(|(kind, group, ..)| manifest.is(group, kind.as_str()));
        if let Some((kind, ..)) = workload {
            return Ok(Some(Self::Workload(*kind, Box::new(Workload::deserialize(manifest.value)?))));
        }
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

pub(super) fn text(answer: &PodStory) -> Text {
    let mut text = Text::new();
    let is_pod = answer.object.starts_with("Pod ");
    let on = match &answer.node {
        Some(node) => format!(" is on node {node}"),
        None if is_pod => " is on no node".to_owned(),
        None => String::new(),
    };
    let system = if answer.system == names::WINDOWS { "Windows" } else { "Linux" };
    text.styled("", BOLD, &format!("{}{on}", answer.object));
    if system == "Linux" {
        text.line(if is_pod {
            "  winpool takes it for a Linux pod."
        } else {
            "  winpool takes its pods for Linux pods."
        });
    }
    for error in &answer.errors {
        text.hanging("  ", "    ", BAD, error.error, &format!(": {}", error.meaning));
        text.hanging("    ", "          ", BOLD, "help", &format!(": {}", error.remedy));
    }
    text.gap();
    if answer.nodes.is_empty() {
        text.styled("", WARN, &format!("There is no {system} node."));
    }
    landings(&mut text, &answer.nodes);
    text.gap();
    match &answer.remedy {
        None => text.paragraph(
            "",
            "No change is needed: winpool knows no node on which the pod can be scheduled and does not start.",
        ),
        Some(remedy) => text.styled("", WARN, "To make it land and start:").paragraph("  ", remedy),
    };
    text.hanging("", "", DIM, "Not considered: cpu, memory, volumes, ports, and the resources of other pods.", "");
    text
}

/// Shows nodes with the same answer together.
fn landings(text: &mut Text, nodes: &[Landing]) {
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
    groups.sort_by_key(|(landing, _)| (!landing.possible, landing.starts == Some(false)));
    for (Landing { possible, starts, reasons, .. }, names) in groups {
        let more = names.len().saturating_sub(NAMED);
        let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let shown = if more > 0 { format!("{shown} and {more} more") } else { shown };
        let (style, verdict) = match (possible, starts) {
            (true, Some(true)) => (GOOD, "can be scheduled, and starts"),
            (true, None) => (GOOD, "can be scheduled; winpool cannot tell if it starts"),
            (true, Some(false)) => (BAD, "can be scheduled, and does not start"),
            (false, Some(true)) => (WARN, "cannot be scheduled, but would start"),
            (false, None) => (WARN, "cannot be scheduled; winpool cannot tell if it would start"),
            (false, Some(false)) => (BAD, "cannot be scheduled, and would not start"),
        };
        let nodes = count(names.len(), "node");
        text.hanging("", "  ", style, &nodes, &format!(": {shown}")).paragraph("  ", verdict);
        for reason in reasons {
            text.hanging("  - ", "    ", DIM, "", reason);
        }
    }
}
