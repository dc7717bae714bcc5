//! Explains where a pod, or the pods of a workload, can be scheduled and started.

use k8s_openapi::api::{
    core::{
        self,
        v1::{Event, Node},
    },
    node::v1::RuntimeClass,
};
use kube::{Api, Client, api::ListParams};
use serde::Deserialize;
use serde_json::Value;
use winpool_core::{
    api::names,
    explain::pod::{Landing, Machine, PodStory, answer, answer_template},
    image::Images,
    lint::Facts,
    pod::{Pod, PodSpec, Workload, WorkloadKind, known_error},
    words::count,
};

use crate::{
    api_server::pods,
    cache::node::CachedNode,
    cli::{
        Common, Error,
        cluster::{DEFAULT_NAMESPACE, Part, set_namespace},
        input, live,
        output::{self, BAD, BOLD, DIM, GOOD, Text, WARN},
        resolve::Resolve,
    },
};

/// The objects of a cluster that winpool reads to explain pods.
#[derive(Default)]
struct Surroundings {
    machines: Vec<Machine>,
    /// The RuntimeClasses, with those that the pools of manifests will create.
    facts: Facts,
    pods: Vec<Pod>,
    workloads: Vec<(WorkloadKind, Workload)>,
}

pub(super) async fn why_pod(
    name: &str,
    namespace: Option<&str>,
    common: &Common,
    resolve: &Resolve,
) -> Result<PodStory, Error> {
    let (mut around, namespace, client) = Surroundings::read(common, namespace).await?;
    let found = match &client {
        Some(client) => live_pod(client, &namespace, name).await?,
        None => around.pods.drain(..).find(|pod| pod.name == name && pod.namespace == namespace),
    };
    let pod = found.ok_or_else(|| not_found("Pod", &namespace, name))?;
    around.knows_class_of(&pod.spec)?;
    let images = images(&pod.spec, resolve).await?;
    Ok(answer(&pod, &around.machines, around.facts.classes(), &images))
}

pub(super) async fn why_workload(
    kind: WorkloadKind,
    name: &str,
    namespace: Option<&str>,
    common: &Common,
    resolve: &Resolve,
) -> Result<PodStory, Error> {
    let (mut around, namespace, client) = Surroundings::read(common, namespace).await?;
    let found = if let Some(client) = &client {
        let api = pods::workloads(client, kind, Some(&namespace));
        live::get(kind.resource().1, &api, name).await?
    } else {
        let mut of_kind = around.workloads.drain(..).filter(|(of, _)| *of == kind).map(|(_, workload)| workload);
        of_kind.find(|workload| workload.name == name && workload.namespace == namespace)
    };
    let workload = found.ok_or_else(|| not_found(kind.as_str(), &namespace, name))?;
    if let Some(client) = &client {
        around.pods = live_pods_of(client, kind, &workload).await?;
    }
    around.pods.retain(|pod| is_of(pod, kind, &workload));
    around.knows_class_of(&workload.template)?;
    let images = images(&workload.template, resolve).await?;
    Ok(answer_template(kind, &workload, &around.pods, &around.machines, around.facts.classes(), &images))
}

/// Returns true if the workload created the pod, by itself or, for a Deployment, by a `ReplicaSet`.
fn is_of(pod: &Pod, kind: WorkloadKind, workload: &Workload) -> bool {
    let controls = |(of, name): &(String, String)| of == kind.as_str() && *name == workload.name;
    pod.namespace == workload.namespace
        && (pod.controller.as_ref().is_some_and(controls)
            || pod.workload() == format!("{} {}/{}", kind.as_str(), workload.namespace, workload.name))
}

async fn images(spec: &PodSpec, resolve: &Resolve) -> Result<Images, Error> {
    Ok(resolve.images(|| spec.images().map(|(_, name)| name.to_owned()).collect()).await?)
}

fn not_found(kind: &'static str, namespace: &str, name: &str) -> Error {
    Error::Subject(format!("there is no {kind} {namespace}/{name}: name its namespace with -n"))
}

async fn live_pod(client: &Client, namespace: &str, name: &str) -> Result<Option<Pod>, Error> {
    let pods: Api<core::v1::Pod> = Api::namespaced(client.clone(), namespace);
    let mut found = live::get("pods", &pods, name).await?;
    add_errors_of_events(client, found.as_mut_slice()).await?;
    Ok(found)
}

/// Pods of the workload; none, with a note, for a user who has no permission to list pods. The jobs of a `CronJob` are other
/// workloads.
async fn live_pods_of(client: &Client, kind: WorkloadKind, workload: &Workload) -> Result<Vec<Pod>, Error> {
    let api: Api<core::v1::Pod> = Api::namespaced(client.clone(), &workload.namespace);
    let mut pods = Vec::new();
    let keep = |pod| pods.extend(Some(pod).filter(|pod| is_of(pod, kind, workload)));
    let listed = live::list("pods", &api, ListParams::default(), keep).await;
    live::note_if_forbidden(listed, "the errors of its pods, and the nodes that they ran on, are not considered")?;
    add_errors_of_events(client, &mut pods).await?;
    Ok(pods)
}

/// Adds the known errors in the Events of these pods, which are of one namespace: a sandbox that cannot be created shows nowhere
/// else. There are none, with a note, for a user who has no permission to list Events.
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
    let listed = live::list("events", &events, ListParams::default().fields(&about), add).await;
    Ok(live::note_if_forbidden(listed, "errors in Events are not considered")?)
}

impl Surroundings {
    /// Reads manifests or the cluster. Returns the namespace that the user means too, and the client of the cluster.
    async fn read(common: &Common, namespace: Option<&str>) -> Result<(Self, String, Option<Client>), Error> {
        if common.origin.files.is_empty() {
            let client = common.origin.connection.client().await?;
            let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
            return Ok((Self::live(&client).await?, namespace, Some(client)));
        }
        let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE);
        Ok((Self::from_manifests(common, namespace)?, namespace.to_owned(), None))
    }

    async fn live(client: &Client) -> Result<Self, Error> {
        let mut around = Self::default();
        let nodes: Api<Node> = Api::all(client.clone());
        let keep = |node: Node| around.machines.push(Machine::from(&node));
        live::list("nodes", &nodes, ListParams::default(), keep).await?;
        let all: Api<RuntimeClass> = Api::all(client.clone());
        live::list("runtimeclasses", &all, ListParams::default(), |class| around.facts.add_class(class)).await?;
        around.facts.classes_are_complete();
        Ok(around)
    }

    /// Reads manifests. `namespace` is that of objects that name none.
    fn from_manifests(common: &Common, namespace: &str) -> Result<Self, Error> {
        let mut around = Self::default();
        for (_, part) in input::read::<Part<Host>>(&common.origin.files)? {
            match part {
                Part::Pod(mut pod) => {
                    set_namespace(&mut pod.namespace, namespace);
                    around.pods.push(*pod);
                }
                Part::Node(host) => {
                    around.facts.add_node(&host.node.seen);
                    around.machines.push(host.machine);
                }
                Part::Class(class) => around.facts.add_class(*class),
                Part::Pool(pool) => around.facts.add_pool(pool.read()?),
                Part::Workload(kind, mut workload) => {
                    set_namespace(&mut workload.namespace, namespace);
                    around.workloads.push((kind, *workload));
                }
                Part::Template(_) => {}
            }
        }
        if around.machines.is_empty() {
            return Err(Error::Subject(
                "the manifests have no nodes, and so do not show where pods can be scheduled: add them with -f (kubectl get \
                 nodes -o yaml)"
                    .to_owned(),
            ));
        }
        around.facts = around.facts.complete();
        Ok(around)
    }

    /// Fails if the manifests do not show if the RuntimeClass of these pods exists.
    fn knows_class_of(&self, spec: &PodSpec) -> Result<(), Error> {
        match &spec.runtime_class {
            Some(name) if self.facts.known_class(spec).is_none() && !self.facts.lacks_class_of(spec) => {
                Err(Error::Subject(format!(
                    "the manifests have no RuntimeClass {name}, which decides where the pods can be scheduled: add it with -f, \
                     or the WindowsPool that creates it"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A node as it is scheduled to, and as facts are read from it.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
struct Host {
    machine: Machine,
    node: CachedNode,
}

impl TryFrom<Value> for Host {
    type Error = serde_json::Error;

    fn try_from(node: Value) -> Result<Self, Self::Error> {
        Ok(Self { machine: Machine::from(&Node::deserialize(&node)?), node: CachedNode::deserialize(node)? })
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
    if let Some(scheduler) = &answer.scheduler {
        let note = format!(
            "spec.schedulerName is {scheduler}: the answer is that of the default scheduler, and {scheduler} may decide otherwise."
        );
        text.paragraph("  ", &note);
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
    text.hanging("", "", DIM, "Not considered: cpu, memory, volumes, ports, affinity between pods, topology spread, and the resources of other pods.", "");
    text
}

/// Shows nodes with the same answer together.
fn landings(text: &mut Text, nodes: &[Landing]) {
    const NAMED: usize = 3;
    let named = nodes.iter().map(|node| {
        let Landing { name, possible, starts, reasons } = node;
        (format!("{possible} {starts:?} {reasons:?}"), name.as_str(), node)
    });
    let mut groups = output::alike(named);
    groups.sort_by_key(|(landing, _)| (!landing.possible, landing.starts == Some(false)));
    for (Landing { possible, starts, reasons, .. }, names) in groups {
        let shown = output::some(&names, NAMED);
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
