//! The workloads that a command checks, and facts about their cluster, from the API server or from manifests.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::PathBuf,
};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
    core::GroupVersionKind,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use winpool_core::{
    api::{WindowsPool, names},
    lint::{Facts, Workload, gmsa, objects, recommended::ISOLATION_ANNOTATION, workload::KINDS},
    windows::KubernetesVersion,
};

use crate::{
    api_server::error::RequestError,
    cache::node::{self, CachedNode},
    controllers::{GuardedPool, pool::kubernetes_version},
};

use super::{
    input::{self, Copies, InputError, Keep, Manifest, Source},
    live::{self, ReadError},
};

/// Kind, namespace and name.
type Identity = (String, String, String);

/// A finding with the position of its object.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Located<T> {
    #[serde(flatten)]
    pub found: T,
    /// The file; `None` in a live cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
}

impl<T> Located<T> {
    /// Adds the position of the object to the finding.
    pub fn new(found: T, source: Option<&Source>) -> Self {
        let (file, line) = source.map(|source| (source.file.to_string(), source.line)).unzip();
        Self { found, file, line }
    }
}

/// Workloads and facts about their cluster.
#[derive(Debug, Default)]
pub struct Workloads {
    /// The facts about the cluster.
    pub facts: Facts,
    /// Messages about objects that could not be read.
    pub notes: Vec<String>,
    /// The resources with workloads that the user may not list.
    pub unlisted: BTreeSet<String>,
    /// True if the user may not list WindowsPools.
    pub pools_are_hidden: bool,
    /// The number of manifests that no rule checks, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// The Windows nodes, with only the fields that rules read.
    pub nodes: Vec<(Option<Source>, Value)>,
    /// The `GMSACredentialSpec` objects.
    pub credential_specs: Vec<(Option<Source>, Value)>,
    pub services: Vec<(Option<Source>, Value)>,
    /// The pools that decode.
    pub pools: Vec<(Option<Source>, WindowsPool)>,
    /// The workloads as compact JSON, which needs a tenth of the memory of parsed JSON.
    found: Vec<(Option<Source>, Box<str>)>,
    /// The workloads that may control others.
    owners: HashSet<Identity>,
}

impl Workloads {
    pub fn from_manifests(paths: &[PathBuf], version: Option<KubernetesVersion>) -> Result<Self, InputError> {
        let mut this = Self { facts: Facts::of_version(version), ..Self::default() };
        for (source, part) in input::read(paths)? {
            match part {
                Part::Node(node, value) => {
                    this.facts.add_node(&node.seen);
                    this.nodes.extend(node.seen.is_windows().then_some((Some(source), value)));
                }
                Part::CredentialSpec(object) => this.add_credential_specs([(Some(source), object)]),
                Part::Service(service) => this.services.push((Some(source), service)),
                Part::Pool(pool) => this.add_pool(Some(source), *pool),
                Part::Class(class) => this.facts.add_class(*class),
                Part::Workload(object) => this.add_workload(Some(source), object),
                Part::Skipped(kind) => *this.skipped.entry(kind).or_default() += 1,
            }
        }
        this.facts = this.facts.complete();
        Ok(this)
    }

    /// Reads a live cluster, in pages: all of it, or the workloads of one namespace. Fails if the user may list no workloads.
    pub async fn live(
        client: &Client,
        namespace: Option<&str>,
        version: Option<KubernetesVersion>,
    ) -> Result<Self, ReadError> {
        let mut this = Self::default();
        let version = match version {
            Some(version) => Some(version),
            None => kubernetes_version(client).await,
        };
        this.facts = Facts::of_version(version);
        this.read_facts(client).await?;
        let (mut is_listed, mut refused) = (false, None);
        for (kind, group, ..) in KINDS {
            let (resource, api) = resource(client, namespace, group, kind);
            let keep = |mut value: Value| {
                value["apiVersion"] = json!(resource.api_version);
                value["kind"] = json!(kind);
                this.add_workload(None, Reduced::from(value));
            };
            let listed = live::list(&resource.plural, &api, ListParams::default(), keep).await;
            // A PodTemplate creates no pods, and Kubernetes' own roles `view`, `edit` and `admin` cannot list them.
            let creates_pods = kind != "PodTemplate";
            let Some(error) = live::unless_forbidden(listed)? else {
                is_listed |= creates_pods;
                continue;
            };
            this.notes.push(format!("{error}; {kind}s are not checked"));
            if creates_pods {
                this.unlisted.insert(resource.plural);
                refused.get_or_insert(error);
            }
        }
        refused.filter(|_| !is_listed).map_or(Ok(this), Err)
    }

    /// Reads nodes, RuntimeClasses and pools. A user without permission to list them can still run the checks that do
    /// not need them.
    async fn read_facts(&mut self, client: &Client) -> Result<(), ReadError> {
        let windows = ListParams::default().labels(&node::windows());
        let (facts, seen) = (&mut self.facts, &mut self.nodes);
        let (_, api) = resource(client, None, "", "Node");
        let keep = |value: Value| {
            seen.push((None, objects::reduced_node(&value)));
            if let Ok(node) = CachedNode::deserialize(value) {
                facts.add_node(&node.seen);
            }
        };
        let nodes = live::list("nodes", &api, windows, keep).await;
        let all = ListParams::default();
        let keep = |class: RuntimeClass| facts.add_class(class);
        let classes = live::list("runtimeclasses", &Api::<RuntimeClass>::all(client.clone()), all.clone(), keep).await;
        if nodes.is_ok() {
            self.facts.nodes_are_complete();
        }
        match classes {
            Ok(()) => self.facts.classes_are_complete(),
            Err(_) => self.facts.classes_are_hidden(),
        }
        let mut pools = Vec::new();
        let keep = |pool: GuardedPool| pools.push(pool);
        let listed = live::list("windowspools", &Api::<GuardedPool>::all(client.clone()), all, keep).await;
        for pool in pools {
            self.add_pool(None, pool);
        }
        // Without winpool there are no pools.
        let listed = if matches!(listed, Err(ReadError::NoDefinition)) { Ok(()) } else { listed };
        self.pools_are_hidden = matches!(listed, Err(ReadError::Forbidden { .. }));
        for listed in [nodes, classes, listed] {
            self.note_if_forbidden(listed, "what depends on it is not checked")?;
        }
        self.facts = std::mem::take(&mut self.facts).complete();
        Ok(())
    }

    fn note_if_forbidden(&mut self, listed: Result<(), ReadError>, note: &str) -> Result<(), ReadError> {
        self.notes.extend(live::unless_forbidden(listed)?.map(|error| format!("{error}; {note}")));
        Ok(())
    }

    /// The images that the workloads need.
    pub fn images(&self) -> BTreeSet<String> {
        let mut images = BTreeSet::new();
        self.each(|_, workload| images.extend(workload.pod.images().map(|(_, name)| name.to_owned())));
        images
    }

    /// Reads the Services of a live cluster. Notes if that is not permitted.
    pub async fn read_services(&mut self, client: &Client, namespace: Option<&str>) -> Result<(), ReadError> {
        let (_, api) = resource(client, namespace, "", "Service");
        let keep = |service| self.services.push((None, service));
        let listed = live::list("services", &api, ListParams::default(), keep).await;
        self.note_if_forbidden(listed, "Services are not checked")
    }

    /// Reads the `GMSACredentialSpec` objects of a live cluster if a workload names one. Notes if that is not permitted.
    pub async fn read_credential_specs(&mut self, client: &Client) -> Result<(), ReadError> {
        if !self.found.iter().any(|(_, text)| text.contains(gmsa::NAME)) {
            return Ok(());
        }
        let (resource, api) = resource(client, None, gmsa::GROUP, "GMSACredentialSpec");
        let mut found = Vec::new();
        let keep = |object| found.push((None, object));
        match live::list(&resource.plural, &api, ListParams::default(), keep).await {
            // Without the custom resource definition there are no such objects.
            Ok(()) | Err(ReadError::Failed { error: RequestError::Gone, .. }) => self.add_credential_specs(found),
            failed => self.note_if_forbidden(failed, "names of GMSACredentialSpecs are not checked")?,
        }
        Ok(())
    }

    fn add_credential_specs(&mut self, found: impl IntoIterator<Item = (Option<Source>, Value)>) {
        let before = self.credential_specs.len();
        self.credential_specs.extend(found);
        let name = |(_, object): &(_, Value)| object["metadata"]["name"].as_str().map(str::to_owned);
        self.facts.add_credential_specs(self.credential_specs[before..].iter().filter_map(name));
    }

    fn add_pool(&mut self, source: Option<Source>, pool: GuardedPool) {
        match pool.read() {
            Ok(pool) => self.facts.add_pool(pool),
            Err(error) => self.notes.push(error.to_string()),
        }
        self.pools.extend(pool.pool.ok().map(|pool| (source, pool)));
    }

    /// Prints the notes to standard error.
    pub fn print_notes(&self) {
        self.notes.iter().for_each(|note| live::note(note));
    }

    fn add_workload(&mut self, source: Option<Source>, Reduced { text, owner, is_finished }: Reduced) {
        self.found.extend((!is_finished).then_some((source, text)));
        self.owners.extend(owner);
    }

    /// Calls `look` for each workload, except those that another workload here controls: they would repeat its findings.
    pub fn each(&self, mut look: impl FnMut(Option<&Source>, &Workload<'_>)) {
        for (source, text) in &self.found {
            // `Reduced` wrote this JSON.
            let object: Value = serde_json::from_str(text).unwrap_or_default();
            let Ok(Some(workload)) = Workload::read(&object) else { continue };
            let is_owned = |(kind, name)| self.owners.contains(&identity(kind, &workload, name));
            if !workload.controller.is_some_and(is_owned) {
                look(source.as_ref(), &workload);
            }
        }
    }
}

/// Returns version 1 of a resource, in one namespace or in all.
fn resource(client: &Client, namespace: Option<&str>, group: &str, kind: &str) -> (ApiResource, Api<DynamicObject>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let api = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    (resource, api)
}

fn identity(kind: &str, workload: &Workload<'_>, name: &str) -> Identity {
    (kind.to_owned(), workload.namespace.to_owned(), name.to_owned())
}

/// A workload without the fields that no rule reads: its status, and most of its metadata.
#[derive(Debug)]
struct Reduced {
    text: Box<str>,
    /// Its identity, if it may control others.
    owner: Option<Identity>,
    /// True for a Pod or Job that has finished, and so is not scheduled again.
    is_finished: bool,
}

impl From<Value> for Reduced {
    fn from(mut object: Value) -> Self {
        let is_finished = is_finished(&object["kind"], &object["status"]);
        if let Value::Object(object) = &mut object {
            object.remove("status");
            if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                // Rules read the labels and one annotation of pods, not those of their controllers.
                metadata.retain(|key, value| key != "annotations" || value.get(ISOLATION_ANNOTATION).is_some());
                let kept = ["name", "generateName", "namespace", "ownerReferences", "labels", "annotations"];
                *metadata = kept.iter().filter_map(|key| metadata.remove_entry(*key)).collect::<Map<_, _>>();
            }
        }
        let workload = Workload::read(&object).ok().flatten().filter(|workload| workload.kind != "Pod");
        let owner = workload.map(|workload| identity(workload.kind, &workload, workload.name));
        Self { text: object.to_string().into(), owner, is_finished }
    }
}

fn is_finished(kind: &Value, status: &Value) -> bool {
    let ends = |condition: &Value| {
        ["Complete", "Failed"].iter().any(|end| condition["type"] == *end) && condition["status"] == "True"
    };
    match kind.as_str() {
        Some("Pod") => ["Succeeded", "Failed"].iter().any(|phase| status["phase"] == *phase),
        Some("Job") => status["conditions"].as_array().is_some_and(|conditions| conditions.iter().any(ends)),
        _ => false,
    }
}

/// An object in the manifests.
#[derive(Debug)]
enum Part {
    Node(Box<CachedNode>, Value),
    Service(Value),
    CredentialSpec(Value),
    Pool(Box<GuardedPool>),
    Class(Box<RuntimeClass>),
    Workload(Reduced),
    Skipped(String),
}

impl Keep for Part {
    const COPIES: Copies = Copies::EqualOnce;

    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        let (api_version, kind) = (manifest.api_version.clone(), manifest.kind.clone());
        let manifest = Manifest { api_version, kind, value: manifest.typed() };
        if Workload::read(&manifest.value).map_err(<serde_json::Error as serde::de::Error>::custom)?.is_some() {
            return Ok(Some(Self::Workload(manifest.value.into())));
        }
        Ok(if manifest.is("", "Node") {
            let reduced = objects::reduced_node(&manifest.value);
            Some(Self::Node(Box::new(CachedNode::deserialize(manifest.value)?), reduced))
        } else if manifest.is("", "Service") {
            Some(Self::Service(manifest.value))
        } else if manifest.is(gmsa::GROUP, "GMSACredentialSpec") {
            Some(Self::CredentialSpec(manifest.value))
        } else if manifest.is(names::GROUP, "WindowsPool") {
            Some(Self::Pool(manifest.into_pool()?))
        } else if manifest.is("node.k8s.io", "RuntimeClass") {
            Some(Self::Class(Box::new(RuntimeClass::deserialize(manifest.value)?)))
        } else {
            Some(Self::Skipped(manifest.kind))
        })
    }
}
