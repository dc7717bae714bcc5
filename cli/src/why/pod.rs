//! Explains where a pod, or the pods of a workload, can be scheduled and started.

use std::collections::BTreeMap;

use k8s_openapi::api::core::{self, v1::Event};
use kube::{Api, Client, api::ListParams};
use serde::Deserialize;
use serde_json::Value;
use winpool_answers::{
    explain::{
        pod::{NodeResult, PodExplanation, answer, answer_template},
        pool_change,
    },
    finding::Finding,
    image::Images,
    lint::{Facts, check_refused, check_tolerations, to_create},
    pod::{Pod, PodSpec},
    remedy::{Rank, Remedy},
    view::{Node, Reduced, View, Workload},
    workload::{DEFAULT_NAMESPACE, WorkloadManifest},
};
use winpool_client::terminal;
use winpool_core::{
    api::names,
    pod::{Class, WorkloadKind, known_error},
    words::count,
};

use crate::{
    Common, Error,
    assume::Assume,
    forecast,
    gaps::{Gaps, Lacks, notes_text},
    live,
    output::{self, BAD, BOLD, DIM, GOOD, Text, WARN},
    resolve::Resolve,
    view::{self, Placement, Seen, resource},
};

/// The cluster in which winpool explains pods.
struct Surroundings {
    view: View,
    lacks: Lacks,
    /// All nodes as pods see them.
    hosts: Vec<Node>,
    /// The facts for rules, with the RuntimeClasses that the pools of manifests will create.
    facts: Facts,
    /// The namespace that the user means.
    namespace: String,
    /// The client of a live cluster.
    client: Option<Client>,
}

pub(super) async fn why_pod(
    name: &str,
    namespace: Option<&str>,
    common: &Common,
    assume: &Assume,
    resolve: &Resolve,
) -> Result<(PodExplanation, Gaps), Error> {
    let mut around = Surroundings::read(common, namespace, assume).await?;
    let found = match &around.client {
        Some(client) => live_pod(client, &around.namespace, name, &mut around.lacks).await?,
        None => around.pods().find(|pod| pod.name == name && pod.namespace == around.namespace).cloned(),
    };
    let pod = found.ok_or_else(|| not_found("Pod", &around.namespace, name))?;
    around.knows_class_of(&pod.spec)?;
    let images = images(&pod.spec, resolve, &mut around.lacks.gaps).await?;
    let explain = |hosts: &[Node], classes: &BTreeMap<String, Class>| answer(&pod, hosts, classes, &images);
    let mut answer = explain(&around.hosts, around.facts.classes());
    answer.remedy = around.remedy(&pod.spec, &answer, explain).or(answer.remedy);
    if !pod.is_bound {
        answer.refused = around.refused("Pod", name);
    }
    answer.remedy = around.after_class(&pod.spec, answer.remedy);
    answer.notes = around.lacks.notes;
    Ok((answer, around.lacks.gaps))
}

pub(super) async fn why_workload(
    kind: WorkloadKind,
    name: &str,
    namespace: Option<&str>,
    common: &Common,
    assume: &Assume,
    resolve: &Resolve,
) -> Result<(PodExplanation, Gaps), Error> {
    let mut around = Surroundings::read(common, namespace, assume).await?;
    let namespace = around.namespace.clone();
    let found = if let Some(client) = &around.client {
        let (group, plural) = kind.resource();
        let (_, api) = resource(client, Some(&namespace), group, kind.as_str());
        let found: Option<Value> = live::get(plural, &api, name).await?;
        if let Some(found) = &found {
            around.view.written.add(None, Reduced::from(found.clone()));
        }
        found.map(Workload::deserialize).transpose()?
    } else {
        let is_it = |workload: &&Workload| workload.name == name && workload.namespace == namespace;
        around.view.workloads.of_kind(kind).known().into_iter().flatten().find(is_it).cloned()
    };
    let workload = found.ok_or_else(|| not_found(kind.as_str(), &namespace, name))?;
    let mut pods = match &around.client {
        Some(client) => live_pods_of(client, kind, &workload, &mut around.lacks).await?,
        None => around.pods().cloned().collect(),
    };
    pods.retain(|pod| is_of(pod, kind, &workload));
    around.knows_class_of(&workload.template)?;
    let images = images(&workload.template, resolve, &mut around.lacks.gaps).await?;
    let explain = |hosts: &[Node], classes: &BTreeMap<String, Class>| {
        answer_template(kind, &workload, &pods, hosts, classes, &images)
    };
    let mut answer = explain(&around.hosts, around.facts.classes());
    answer.remedy = around.remedy(&workload.template, &answer, explain).or(answer.remedy);
    answer.refused = around.refused(kind.as_str(), name);
    answer.remedy = around.toleration(kind.as_str(), name, &answer).or(answer.remedy);
    answer.remedy = around.after_class(&workload.template, answer.remedy);
    answer.notes = around.lacks.notes;
    Ok((answer, around.lacks.gaps))
}

/// True if the workload created the pod, by itself or, for a Deployment, by a `ReplicaSet`.
fn is_of(pod: &Pod, kind: WorkloadKind, workload: &Workload) -> bool {
    let controls = |(of, name): &(String, String)| of == kind.as_str() && *name == workload.name;
    pod.namespace == workload.namespace
        && (pod.controller.as_ref().is_some_and(controls)
            || pod.workload() == format!("{} {}/{}", kind.as_str(), workload.namespace, workload.name))
}

async fn images(spec: &PodSpec, resolve: &Resolve, gaps: &mut Gaps) -> Result<Images, Error> {
    let images = resolve.images(|| spec.images().map(|(_, name)| name.to_owned()).collect()).await?;
    gaps.in_registries = images.has_unknown();
    Ok(images)
}

fn not_found(kind: &'static str, namespace: &str, name: &str) -> Error {
    Error::Subject(format!("there is no {kind} {name} in namespace {namespace}"))
}

async fn live_pod(client: &Client, namespace: &str, name: &str, lacks: &mut Lacks) -> Result<Option<Pod>, Error> {
    let pods: Api<core::v1::Pod> = Api::namespaced(client.clone(), namespace);
    let mut found = live::get("pods", &pods, name).await?;
    add_errors_of_events(client, found.as_mut_slice(), lacks).await?;
    Ok(found)
}

/// Pods of the workload; none, with a note, for a user who has no permission to list pods. The jobs of a `CronJob` are other
/// workloads.
async fn live_pods_of(
    client: &Client,
    kind: WorkloadKind,
    workload: &Workload,
    lacks: &mut Lacks,
) -> Result<Vec<Pod>, Error> {
    let api: Api<core::v1::Pod> = Api::namespaced(client.clone(), &workload.namespace);
    let mut pods = Vec::new();
    let keep = |pod| pods.extend(Some(pod).filter(|pod| is_of(pod, kind, workload)));
    let listed = live::list("pods", &api, ListParams::default(), keep).await;
    lacks.note_if_forbidden(listed, "the errors of its pods, and the nodes that they ran on, are not considered")?;
    add_errors_of_events(client, &mut pods, lacks).await?;
    Ok(pods)
}

/// Adds what the Events of these pods, which are of one namespace, say: known errors, because a sandbox that cannot be created shows
/// nowhere else, and the scheduler's reason if the status does not have it. There are none, with a note, for a user who has no permission to list Events.
async fn add_errors_of_events(client: &Client, pods: &mut [Pod], lacks: &mut Lacks) -> Result<(), Error> {
    let Some(first) = pods.first() else { return Ok(()) };
    let events: Api<Event> = Api::namespaced(client.clone(), &first.namespace);
    let about = match &*pods {
        [pod] => format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name),
        _ => "involvedObject.kind=Pod,type=Warning".to_owned(),
    };
    let add = |event: Event| {
        let Some(message) = event.message else { return };
        let is_unschedulable = event.reason.as_deref() == Some("FailedScheduling");
        // The scheduler's messages contain the names of its plugins, such as NodeAffinity.
        let error = if is_unschedulable { None } else { known_error(&message).copied() };
        if error.is_none() && !is_unschedulable {
            return;
        }
        let of_event = |pod: &&mut Pod| event.involved_object.name.as_deref() == Some(pod.name.as_str());
        let Some(pod) = pods.iter_mut().find(of_event) else { return };
        // Others are about an earlier pod of this name.
        let is_new = event.metadata.creation_timestamp.is_none_or(|time| pod.created.is_none_or(|pod| pod <= time.0));
        if !is_new {
            return;
        }
        pod.errors.extend(error.filter(|error| !pod.errors.contains(error)));
        if is_unschedulable {
            pod.unschedulable.get_or_insert(message);
        }
    };
    let listed = live::list("events", &events, ListParams::default().fields(&about), add).await;
    Ok(lacks.note_if_forbidden(listed, "errors in Events are not considered")?)
}

impl Surroundings {
    /// Reads manifests or the cluster.
    async fn read(common: &Common, namespace: Option<&str>, assume: &Assume) -> Result<Self, Error> {
        if common.origin.files.is_empty() {
            let client = common.origin.connection.client().await?;
            let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
            let (mut view, mut lacks) = view::placement(&client).await?;
            lacks.notes.extend(assume.note(&mut view)?);
            return Self::of(view, lacks, namespace, Some(client));
        }
        let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned();
        let mut seen = Seen::in_manifests::<Placement>(&common.origin.files, &namespace)?;
        let assumed = assume.note(&mut seen.view)?;
        for pool in seen.view.guarded().into_iter().flatten() {
            pool.read()?;
        }
        let lacks = Lacks { gaps: seen.gaps, notes: assumed.into_iter().collect() };
        Self::of(seen.view, lacks, namespace, None)
    }

    fn of(view: View, lacks: Lacks, namespace: String, client: Option<Client>) -> Result<Self, Error> {
        let hosts = view.hosts().ok_or_else(|| {
            Error::Subject(
                "the manifests have no nodes, and so do not show where pods can be scheduled: add them with -f (kubectl get \
                 nodes -o yaml)"
                    .to_owned(),
            )
        })?;
        Ok(Self { hosts, facts: Facts::of(&view), view, lacks, namespace, client })
    }

    /// Returns the pods of the manifests.
    fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.view.pods.known().into_iter().flatten()
    }

    /// Returns the reasons for which the API server refuses the object.
    fn refused(&self, kind: &str, name: &str) -> Vec<Finding> {
        let written = self.view.written.find(kind, &self.namespace, name).unwrap_or_default();
        let workload = WorkloadManifest::read(&written).ok().flatten();
        workload.map(|workload| check_refused(&workload, &self.facts)).unwrap_or_default()
    }

    /// Returns the change that pods of this spec need when the operator has done its part, if they need one now.
    fn remedy(
        &self,
        spec: &PodSpec,
        told: &PodExplanation,
        explain: impl Fn(&[Node], &BTreeMap<String, Class>) -> PodExplanation,
    ) -> Option<Remedy> {
        told.remedy.as_ref()?;
        pool_change::remedy(&self.view, spec.runtime_class.as_deref(), forecast::now(), explain)
    }

    /// Returns the toleration that the pods need when the pools add their taints, if nothing has to be changed before.
    fn toleration(&self, kind: &str, name: &str, answer: &PodExplanation) -> Option<Remedy> {
        if answer.remedy.is_some() || answer.system != names::WINDOWS {
            return None;
        }
        let written = self.view.written.find(kind, &self.namespace, name)?;
        let workload = WorkloadManifest::read(&written).ok().flatten()?;
        let Finding { remedy, .. } = check_tolerations(&workload, &self.facts)?;
        Some(remedy.and(if workload.is_daemon_set() {
            ": a WindowsPool adds this taint to its nodes, and by default waits until this DaemonSet tolerates it"
        } else {
            ": a WindowsPool adds this taint to its nodes, and by default winpool adds the toleration to each new pod"
        }))
    }

    /// Returns the change of the pool that creates the RuntimeClass of these pods, if the class does not exist yet, and then
    /// the change of the pods.
    fn after_class(&self, spec: &PodSpec, remedy: Option<Remedy>) -> Option<Remedy> {
        let Some(class) = spec.runtime_class.as_deref().and_then(|name| to_create(&self.facts, name)) else {
            return remedy;
        };
        let then = remedy.filter(|remedy| Some(remedy) != pool_change::wait(&self.view).as_ref());
        let then = then.map_or_else(String::new, |remedy| format!(". Then {}", remedy.text));
        Some(class.and(&format!(". Until then the API server refuses new pods{then}")))
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

pub(super) fn text(answer: &PodExplanation) -> Text {
    let mut text = Text::new();
    let is_pod = answer.object.kind == "Pod";
    let on = match &answer.node {
        Some(node) => format!(" is on node {node}"),
        None if is_pod => " is on no node".to_owned(),
        None => String::new(),
    };
    let system = if answer.system == names::WINDOWS { "Windows" } else { "Linux" };
    text.styled("", BOLD, &format!("{}{on}", answer.object));
    let treats = if is_pod { "treats it as" } else { "treats its pods as" };
    let pods = if is_pod { format!("a {system} pod") } else { format!("{system} pods") };
    if system == "Linux" {
        text.line(&format!("  winpool {treats} {pods}."));
    } else if let Some(sign) = answer.doubt {
        let note = format!(
            "winpool {treats} {pods}, but is not certain: {sign}. For a Linux workload set nodeSelector {}: linux.",
            names::OS
        );
        text.paragraph("  ", &note);
    }
    if let Some(scheduler) = &answer.scheduler {
        let note = format!(
            "spec.schedulerName is {scheduler}: the answer is that of the default scheduler, and {scheduler} may decide otherwise."
        );
        text.paragraph("  ", &note);
    }
    if !answer.refused.is_empty() {
        text.styled("  ", BAD, "The API server refuses it:");
    }
    for Finding { field, message, remedy, .. } in &answer.refused {
        text.hanging("  - ", "    ", BAD, field, &format!(": {message}"));
        text.hanging("    ", "          ", BOLD, "help", &format!(": {}", remedy.text));
    }
    for error in &answer.errors {
        text.hanging("  ", "    ", BAD, error.error, &format!(": {}", error.meaning));
        text.hanging("    ", "          ", BOLD, "help", &format!(": {}", error.remedy));
    }
    text.gap();
    if answer.nodes.is_empty() {
        text.styled("", WARN, &format!("There is no {system} node."));
    }
    fits(&mut text, &answer.nodes, answer.waiting_pods > 0);
    text.gap();
    match (&answer.remedy, &answer.scheduler_message) {
        (None, Some(reason)) => {
            text.hanging("", "  ", WARN, "The scheduler says:", &format!(" {reason}"));
            text.paragraph("", "winpool finds no reason that has to do with Windows.")
        }
        (None, None) if answer.waiting_pods > 0 => {
            let whom = if is_pod { "it".to_owned() } else { count(answer.waiting_pods, "pod") };
            let why = format!(
                "The scheduler finds no node for {whom}, for a reason that winpool does not consider. kubectl describe pod shows \
                 its message."
            );
            text.paragraph("", &why)
        }
        (None, None) => {
            let other = if answer.refused.is_empty() { "" } else { "other " };
            let is_told = answer.nodes.iter().all(|node| !node.possible || node.starts.is_some());
            let why = if is_told {
                "as far as winpool knows, the pod starts on every node to which it can be scheduled"
            } else {
                "the pod can be scheduled, and nothing shows that it does not start"
            };
            text.paragraph("", &format!("No {other}change is needed: {why}."))
        }
        (Some(remedy), _) => {
            text.styled("", WARN, "Suggested change:").paragraph("  ", &remedy.text);
            let is_one = remedy.rank == Rank::Certain || remedy.object.is_some();
            let command = remedy.command(&answer.object).filter(|_| is_one);
            match command {
                Some(command) => text.line(&format!("  {command}")),
                None => &mut text,
            }
        }
    };
    if let (Some(selected), Some(node)) = (&answer.ends_with_upgrade, &answer.node) {
        let ends = format!(
            "If Windows is upgraded in place on {node}, the kubelet ends the pod when it starts: the pod selects {selected}."
        );
        text.paragraph("", &ends);
    }
    notes_text(&mut text, &answer.notes);
    text.hanging("", "", DIM, "Not considered: cpu, memory, volumes, ports, affinity between pods, topology spread, and the resources of other pods.", "");
    text
}

/// Shows nodes with the same answer together.
fn fits(text: &mut Text, nodes: &[NodeResult], is_unschedulable: bool) {
    const NAMED: usize = 3;
    let named = nodes.iter().map(|node| {
        let NodeResult { name, possible, starts, reasons } = node;
        (format!("{possible} {starts:?} {reasons:?}"), name.as_str(), node)
    });
    let mut groups = output::alike(named);
    groups.sort_by_key(|(fit, _)| (!fit.possible, fit.starts == Some(false)));
    for (NodeResult { possible, starts, reasons, .. }, names) in groups {
        let shown = terminal::some(&names, NAMED);
        let (style, verdict) = match (possible, starts) {
            (true, Some(true)) if is_unschedulable => {
                (WARN, "nothing that winpool considers prevents it, and it would start")
            }
            (true, None) if is_unschedulable => {
                (WARN, "nothing that winpool considers prevents it; winpool cannot tell if it would start")
            }
            (true, Some(true)) => (GOOD, "can be scheduled, and starts"),
            (true, None) => (GOOD, "can be scheduled; winpool cannot tell if it starts"),
            (true, Some(false)) => (BAD, "can be scheduled, but does not start"),
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
