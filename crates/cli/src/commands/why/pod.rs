//! Explains where a pod, or the pods of a workload, can be scheduled and started.

mod text;

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::core::{self};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::Value;
use winpool_analysis::explain::forecast::{Simulation, Snapshot, new_pod};
use winpool_analysis::explain::pod::{PodExplanation, answer, answer_template};
use winpool_analysis::explain::{pool_change, scale};
use winpool_analysis::finding::{Consequence, Finding};
use winpool_analysis::image::Images;
use winpool_analysis::kinds::WorkloadKind;
use winpool_analysis::lint::wellformed::check_without_template;
use winpool_analysis::lint::{
    Facts, before_naming, check_errors, check_errors_of_existing, check_spread, check_tolerations, check_warnings,
    to_create,
};
use winpool_analysis::pod::{Pod, PodSpec, daemon_set_node};
use winpool_analysis::remedy::Remedy;
use winpool_analysis::verdict::{Cluster, PodOutcome};
use winpool_analysis::view::{Node, Reduced, View, Workload};
use winpool_analysis::workload::{DEFAULT_NAMESPACE, WorkloadManifest};
use winpool_core::api::names;
use winpool_core::pod::tolerations::toleration;
use winpool_core::pod::{PodProgress, tolerate};
use winpool_core::words::joined;
use winpool_simulation::Unfinished;

use crate::Error;
use crate::commands::options::Common;
use crate::print::progress;
use crate::read::against::Against;
use crate::read::assume::Assume;
use crate::read::forecast::now;
use crate::read::gaps::{Gaps, Lacks};
use crate::read::live;
use crate::read::resolve::Resolve;
use crate::read::view::{self, Placement, Seen, api_of, pod_event, resource, resource_of, typed};

pub(super) use text::text;

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

/// The options of a question.
pub(super) struct Question<'a> {
    pub namespace: Option<&'a str>,
    pub common: &'a Common,
    pub assume: &'a Assume,
    pub against: &'a Against,
    pub resolve: &'a Resolve,
}

impl Question<'_> {
    pub async fn pod(&self, name: &str) -> Result<(PodExplanation, Gaps), Error> {
        let mut around = Surroundings::read(self).await?;
        let pod = match around.client.clone() {
            Some(client) => live_pod(&client, name, &mut around).await?,
            None => around.pods().find(|pod| pod.name == name && pod.namespace == around.namespace),
        };
        let mut pod = pod.ok_or_else(|| not_found("Pod", &around.namespace, name))?;
        around.knows_class_of(&pod.spec)?;
        let images = images(&pod.spec, self.resolve, &mut around.lacks.gaps).await?;
        // A pod of a manifest has yet to be created.
        let is_new = around.client.is_none() && pod.created.is_none() && pod.progress == PodProgress::Waiting;
        if is_new && !pod.is_bound {
            let new = pod.clone();
            around.add_tolerations(Some((new, false)), &[], &mut pod.spec);
        }
        let explain = |cluster: &Cluster| answer(&pod, cluster);
        let cluster = around.cluster(&images);
        let mut answer = explain(&cluster);
        // The pods of a DaemonSet that relies on its class need a change of its template.
        let class = pod.spec.runtime_class.as_deref().filter(|_| daemon_set_node(&pod).is_none());
        answer.remedy = around.remedy(&cluster, class, &answer, explain)?.or(answer.remedy);
        // A pod that runs has no error that keeps pods from running.
        if pod.ran_on.is_none() {
            around.add_errors(("Pod", name, None), pod.is_bound, &mut answer);
        }
        around.conclude(&pod.spec, &mut answer);
        around.add_scaling(&pod.spec, &mut answer).await;
        answer.notes.extend(around.lacks.notes);
        Ok((answer, around.lacks.gaps))
    }

    pub async fn workload(
        &self,
        kind: &'static WorkloadKind,
        name: &str,
        template: Option<&str>,
    ) -> Result<(PodExplanation, Gaps), Error> {
        let mut around = Surroundings::read(self).await?;
        let namespace = around.namespace.clone();
        let workloads = if let Some(client) = around.client.clone() {
            live_workload(&client, kind, name, &mut around).await?
        } else {
            let is_named = |workload: &&Workload| workload.name == name && workload.namespace == namespace;
            around.view.workloads.of_kind(kind).known().into_iter().flatten().filter(is_named).cloned().collect()
        };
        let mut workload =
            chosen(&workloads, template, kind, name)?.ok_or_else(|| not_found(kind.name, &namespace, name))?;
        let mut pods = match &around.client {
            Some(client) => live_pods_of(client, &workload, &mut around.lacks).await?,
            None => around.pods().collect(),
        };
        pods.retain(|pod| is_of(pod, &workload));
        around.knows_class_of(&workload.pod)?;
        around.facts.read_workloads(&around.view, now());
        let images = images(&workload.pod, self.resolve, &mut around.lacks.gaps).await?;
        let cluster = around.cluster(&images);
        let started = cluster.history(&pods).is_on_windows_only();
        let new = new_pod(&workload).map(|pod| (pod, started));
        around.add_tolerations(new, &pods, &mut workload.pod);
        let explain = |cluster: &Cluster| answer_template(kind, &workload, &pods, cluster);
        let mut answer = explain(&cluster);
        let class = workload.pod.runtime_class.as_deref();
        answer.remedy = around.remedy(&cluster, class, &answer, explain)?.or(answer.remedy);
        let named = (kind.name, name, workload.own_path());
        around.add_errors(named, false, &mut answer);
        answer.remedy = around.toleration(named, &answer).or(answer.remedy);
        around.conclude(&workload.pod, &mut answer);
        around.add_scaling(&workload.pod, &mut answer).await;
        answer.notes.extend(around.lacks.notes);
        Ok((answer, around.lacks.gaps))
    }
}

/// Returns the workload with this pod template, or the only one.
fn chosen(
    found: &[Workload],
    template: Option<&str>,
    kind: &WorkloadKind,
    name: &str,
) -> Result<Option<Workload>, Error> {
    let path = |workload: &Workload| workload.own_path().and_then(|path| path.strip_suffix(".spec")).map(str::to_owned);
    let paths: Vec<String> = found.iter().filter_map(path).collect();
    let is_chosen = |workload: &&Workload| found.len() == 1 || path(workload).as_deref() == template;
    match found.iter().find(is_chosen) {
        None if !paths.is_empty() => Err(Error::Subject(format!(
            "{} {name} has several pod templates; name one with --template: {}",
            kind.name,
            paths.join(", ")
        ))),
        found => Ok(found.cloned()),
    }
}

/// True if the workload created the pod, by itself or, for a Deployment, by a `ReplicaSet`.
fn is_of(pod: &Pod, workload: &Workload) -> bool {
    let controls = |(kind, name): &(String, String)| *kind == workload.kind && *name == workload.name;
    pod.namespace == workload.namespace
        && (pod.controller.as_ref().is_some_and(controls) || pod.workload() == workload.object().to_string())
}

async fn images(spec: &PodSpec, resolve: &Resolve, gaps: &mut Gaps) -> Result<Images, Error> {
    let images = resolve.images(|| spec.images().map(|(_, name)| name.to_owned()).collect()).await?;
    gaps.in_registries = images.has_unknown();
    Ok(images)
}

fn not_found(kind: &'static str, namespace: &str, name: &str) -> Error {
    Error::NotIn { kind, name: name.to_owned(), namespace: namespace.to_owned() }
}

/// Reads a workload as answers read it, once for each pod template, and as it was written.
async fn live_workload(
    client: &Client,
    kind: &'static WorkloadKind,
    name: &str,
    around: &mut Surroundings,
) -> Result<Vec<Workload>, Error> {
    for api_version in kind.api_versions {
        let resource = resource_of(kind, api_version);
        let api = api_of(client, Some(&around.namespace), &resource);
        let object: Option<Value> = live::get(kind.plural, &api, name).await?;
        if let Some(object) = object.map(|object| typed(object, &resource)) {
            around.see(client, &object).await?;
            return Ok(Workload::read_all(kind, &object)?);
        }
    }
    Ok(Vec::new())
}

/// Reads a pod as answers read it, and as it was written.
async fn live_pod(client: &Client, name: &str, around: &mut Surroundings) -> Result<Option<Pod>, Error> {
    let (_, api) = resource(client, Some(&around.namespace), "", "Pod");
    let object: Option<Value> = live::get("pods", &api, name).await?;
    if let Some(object) = &object {
        around.see(client, object).await?;
    }
    let mut pod = object.map(Pod::deserialize).transpose()?;
    add_errors_of_events(client, pod.as_mut_slice(), &mut around.lacks).await?;
    Ok(pod)
}

/// Pods of the workload; none, with a note, for a user who has no permission to list pods. The jobs of a `CronJob` are other
/// workloads.
async fn live_pods_of(client: &Client, workload: &Workload, lacks: &mut Lacks) -> Result<Vec<Pod>, Error> {
    let api: Api<core::v1::Pod> = Api::namespaced(client.clone(), &workload.namespace);
    let mut pods = Vec::new();
    let keep = |pod| pods.extend(Some(pod).filter(|pod| is_of(pod, workload)));
    let listed = live::list("pods", &api, ListParams::default(), keep).await;
    lacks.note_if_forbidden(listed, "the errors of its pods, and the nodes that they ran on, are not considered")?;
    add_errors_of_events(client, &mut pods, lacks).await?;
    Ok(pods)
}

/// Adds what the Events of these pods, which are of one namespace, say. There are none, with a note, for a user who has no
/// permission to list Events.
async fn add_errors_of_events(client: &Client, pods: &mut [Pod], lacks: &mut Lacks) -> Result<(), Error> {
    let Some(first) = pods.first() else { return Ok(()) };
    let events: Api<Event> = Api::namespaced(client.clone(), &first.namespace);
    let about = match &*pods {
        [pod] => format!("involvedObject.kind=Pod,involvedObject.name={}", pod.name),
        _ => "involvedObject.kind=Pod,type=Warning".to_owned(),
    };
    let add = |event: Event| {
        if let Some(event) = pod_event(event) {
            for pod in pods.iter_mut() {
                pod.note(&event);
            }
        }
    };
    let listed = live::list("events", &events, ListParams::default().fields(&about), add).await;
    Ok(lacks.note_if_forbidden(listed, "errors in Events are not considered")?)
}

/// Kind, name and, if there are several, the path of the pod spec.
type Named<'a> = (&'a str, &'a str, Option<&'a str>);

/// Returns the workload with this pod spec, or the only one.
fn at<'a>(written: &'a Value, path: Option<&str>) -> Option<WorkloadManifest<'a>> {
    let mut workloads = WorkloadManifest::read_all(written).into_iter().flatten();
    workloads.find(|workload| path.is_none_or(|path| workload.path == path))
}

impl Surroundings {
    /// Reads manifests or the cluster.
    async fn read(&Question { namespace, common, assume, against, .. }: &Question<'_>) -> Result<Self, Error> {
        if common.origin.files.is_empty() {
            let client = live::client(&common.origin.connection).await?;
            let namespace = namespace.unwrap_or(client.default_namespace()).to_owned();
            let (mut view, mut lacks) = view::placement(&client).await?;
            view::add_namespace(&client, &namespace, &mut view).await?;
            lacks.notes.extend(assume.note(&mut view)?);
            return Self::of(view, lacks, namespace, Some(client));
        }
        let namespace = namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned();
        let seen = Seen::in_manifests::<Placement>(&common.origin.files, &namespace)?;
        let mut seen = against.apply(seen).await?;
        let assumed = assume.note(&mut seen.view)?;
        let lacks = Lacks { gaps: seen.gaps, notes: assumed.into_iter().collect() };
        Self::of(seen.view, lacks, namespace, None)
    }

    fn of(view: View, lacks: Lacks, namespace: String, client: Option<Client>) -> Result<Self, Error> {
        let hosts = view.hosts().ok_or_else(|| {
            Error::Lacking(
                "the manifests have no nodes, and so do not show where pods can be scheduled: add them with -f (kubectl get \
                 nodes -o yaml)"
                    .to_owned(),
            )
        })?;
        Ok(Self { hosts, facts: Facts::of(&view), view, lacks, namespace, client })
    }

    /// Adds a pod or workload of the cluster, and what it refers to.
    async fn see(&mut self, client: &Client, found: &Value) -> Result<(), Error> {
        self.view.written.add(None, Reduced::from(found.clone()));
        view::add_related(client, Some(&self.namespace), &mut self.view).await?;
        self.facts.refer_to(&self.view);
        Ok(())
    }

    /// Returns what pods find.
    fn cluster(&self, images: &Images) -> Cluster {
        Cluster { nodes: self.hosts.clone(), classes: self.facts.classes().clone(), ..self.view.cluster(images) }
    }

    /// Returns the pods of the manifests, with what Events there say about them.
    fn pods(&self) -> impl Iterator<Item = Pod> {
        self.view.pods.known().into_iter().flatten().map(|pod| {
            let mut pod = pod.clone();
            for event in self.view.events.known().into_iter().flatten() {
                pod.note(event);
            }
            pod
        })
    }

    /// Adds the tolerations that winpool adds to new pods of this spec, and says so. The flag is true if pods of the workload have
    /// started on Windows nodes only. If one of its `pods` waits without them, winpool does not add them at present.
    fn add_tolerations(&mut self, new: Option<(Pod, bool)>, pods: &[Pod], spec: &mut PodSpec) {
        let snapshot = Snapshot::without_workloads(&self.view, now());
        let added = Simulation::new(&snapshot).added_tolerations(new).concat();
        if added.is_empty() {
            return;
        }
        let tolerated = joined(&added);
        let waits = |pod: &&Pod| pod.start_status.is_unschedulable && pod.spec.node.is_none() && !pod.is_terminating;
        let lacks = |pod: &&Pod| added.iter().any(|taint| !tolerate(&pod.spec.tolerations, taint));
        if let Some(pod) = pods.iter().filter(waits).find(lacks) {
            let name = &pod.name;
            self.lacks.notes.push(format!(
                "winpool adds the toleration of {tolerated} to its new pods, and {name} waits without it: winpool status shows if \
                 winpool runs"
            ));
            return;
        }
        self.lacks
            .notes
            .push(format!("winpool adds the toleration of {tolerated} to its new pods, while winpool runs"));
        spec.tolerations.extend(added.iter().map(toleration));
    }

    /// Adds the errors that `winpool check` finds in the object, and its warnings as notes.
    fn add_errors(&mut self, (kind, name, path): Named<'_>, exists: bool, answer: &mut PodExplanation) {
        let Some(written) = self.view.written.find(kind, &self.namespace, name) else { return };
        let Some(workload) = at(&written, path) else {
            answer.refused = check_without_template(&written);
            return;
        };
        let check = if exists { check_errors_of_existing } else { check_errors };
        let errors = check(&workload, &self.facts).into_iter();
        let warnings = check_warnings(&workload, &self.facts).into_iter();
        // The scheduler finds no node for pods that nothing else keeps off.
        if answer.remedy.is_none() && answer.waiting_pods > 0 {
            answer.remedy = check_spread(&workload, &self.facts).map(|finding| finding.remedy);
        }
        let note =
            |Finding { message, remedy, .. }: Finding| format!("winpool check warns: {message}; {}", remedy.text);
        self.lacks.notes.extend(warnings.map(note));
        (answer.refused, answer.problems) = errors.partition(|error| error.consequence == Consequence::Rejected);
        if !answer.problems.is_empty() {
            for node in answer.nodes.iter_mut().filter(|node| node.starts != Some(false)) {
                node.starts = Some(false);
                node.reasons.push("the pod has the errors above".to_owned());
            }
        }
    }

    /// Returns the change that pods of this class need when the operator has done its part, if they need one now.
    fn remedy(
        &self,
        there: &Cluster,
        class: Option<&str>,
        told: &PodExplanation,
        explain: impl Fn(&Cluster) -> PodExplanation,
    ) -> Result<Option<Remedy>, Unfinished> {
        if told.remedy.is_none() {
            return Ok(None);
        }
        pool_change::remedy(&self.view, there, class, now(), explain)
    }

    /// Returns the toleration that the pods need when the pools add their taints, if nothing has to be changed before.
    fn toleration(&self, (kind, name, path): Named<'_>, answer: &PodExplanation) -> Option<Remedy> {
        if answer.remedy.is_some() || answer.system != names::WINDOWS {
            return None;
        }
        let written = self.view.written.find(kind, &self.namespace, name)?;
        let workload = at(&written, path)?;
        let Finding { message, remedy, .. } = check_tolerations(&workload, &self.facts)?;
        Some(remedy.and(&format!(": {message}")))
    }

    /// Says where the pods run, and puts the change of the pool that creates their RuntimeClass before that of the pods, if the class
    /// does not exist yet.
    fn conclude(&self, spec: &PodSpec, answer: &mut PodExplanation) {
        answer.conclude();
        let remedy = answer.remedy.take();
        let Some(class) = spec.runtime_class.as_deref().and_then(|name| to_create(&self.facts, name)) else {
            let named = remedy.as_ref().and_then(Remedy::class).and_then(|name| before_naming(&self.facts, name));
            answer.remedy = match (named, remedy) {
                (Some(first), Some(then)) => Some(first.and(&format!(". Then {}", then.text))),
                (_, remedy) => remedy,
            };
            return;
        };
        let then = remedy.filter(|remedy| Some(remedy) != pool_change::wait(&self.view).as_ref());
        let then = then.map_or_else(String::new, |remedy| format!(". Then {}", remedy.text));
        answer.outcome = PodOutcome::NoNode;
        answer.remedy = Some(class.and(&format!(". Until then the API server refuses new pods{then}")));
    }

    /// In a cluster without Windows nodes: says which autoscaler creates one for these Windows pods, or what each autoscaler lacks.
    async fn add_scaling(&self, spec: &PodSpec, answer: &mut PodExplanation) {
        if answer.system != names::WINDOWS || !answer.refused.is_empty() || self.hosts.iter().any(Node::is_windows) {
            return;
        }
        let autoscalers = match &self.client {
            Some(client) => progress::waiting("reading NodePools", view::autoscalers(client)).await,
            None => self.view.autoscalers.clone(),
        };
        let mut wanted = self.facts.known_class(spec).cloned().unwrap_or_default();
        wanted.tolerations.extend(spec.tolerations.clone());
        wanted.selector.extend(spec.node_selector.clone());
        let templates = scale::explain(&autoscalers, "", &wanted).templates;
        let serving = templates.iter().filter(|template| template.serves != Some(false));
        let serving: Vec<&str> = serving.map(|template| template.template.as_str()).collect();
        let lacking =
            templates.iter().map(|template| format!("{}: {}", template.template, template.missing.join("; ")));
        answer.remedy = match (templates.is_empty(), serving.is_empty()) {
            (true, _) => return,
            (_, false) => Some(Remedy::advice(format!(
                "there is no Windows node: wait until {} creates one",
                serving.join(" or ")
            ))),
            (_, true) => Some(Remedy::advice(format!(
                "the cluster has no Windows node, and no autoscaler would create one for these pods: {}",
                lacking.collect::<Vec<_>>().join(". ")
            ))),
        };
    }

    /// Fails if the manifests do not show if the RuntimeClass of these pods exists.
    fn knows_class_of(&self, spec: &PodSpec) -> Result<(), Error> {
        match &spec.runtime_class {
            Some(name) if self.facts.known_class(spec).is_none() && !self.facts.lacks_class_of(spec) => {
                Err(Error::Lacking(format!(
                    "the manifests have no RuntimeClass {name}, which decides where the pods can be scheduled: add it with -f, \
                     or the WindowsPool that creates it"
                )))
            }
            _ => Ok(()),
        }
    }
}
