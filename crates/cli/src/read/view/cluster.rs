//! Reads a live cluster into a view, in pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use winpool_analysis::explain::pod_defaults::has_pod_defaults;
use winpool_analysis::explain::status::is_reported;
use winpool_analysis::kinds::{KINDS, WorkloadKind};
use winpool_analysis::kubernetes::KubernetesVersion;
use winpool_analysis::lint::gmsa;
use winpool_analysis::pod::Pod;
use winpool_analysis::view::{
    GMSA_GROUP, Known, NODE_SELECTORS, Placed, Policies, RELATED, Reduced, Related, RelatedKind, SeenNode, View,
    Workload,
};
use winpool_client::error::RequestError;
use winpool_client::node::ListedNode;
use winpool_core::plan::pools::pool::GuardedPool;

use crate::print::progress;
use crate::read::gaps::{Gaps, Lacks};
use crate::read::live::{self, ReadError, kubernetes_version};

use super::assembled::assembled;
use super::autoscalers;
use super::seen::Seen;

/// Reads what the operator decides by.
pub async fn decisions(client: &Client) -> Result<Seen, ReadError> {
    state(client, true).await
}

/// Reads nodes, pools, classes and pods, and what else the operator decides by if the pools do not report the state of the cluster
/// or it has to be `simulated`.
pub async fn state(client: &Client, simulated: bool) -> Result<Seen, ReadError> {
    let mut reader = Reader::new(client);
    reader.view.pools = Known::Complete(reader.pools().await?);
    reader.view.nodes = Known::Complete(reader.nodes(ListParams::default()).await?);
    reader.view.classes = Known::Complete(reader.classes().await?);
    let needs_policies = reader.view.guarded().is_some_and(|mut pools| pools.any(has_pod_defaults));
    let needs_workloads = simulated || !is_reported(&reader.view);
    if needs_workloads {
        reader.rest_of_decisions().await?;
    }
    if needs_workloads || needs_policies {
        add_related(client, None, &mut reader.view).await?;
    }
    let pods = Api::<core::v1::Pod>::all(client.clone());
    let pods = live::collect("pods", &pods, live::unfinished_pods(), |pod: Pod| pod).await;
    reader.view.pods = live::known(pods)?;
    let are_policies_unknown = needs_policies && Policies::of(&reader.view.related).is_forbidden();
    reader.gaps.in_cluster |= reader.view.pods.is_forbidden() || are_policies_unknown;
    reader.view.sort();
    Ok(reader.done())
}

/// Reads what decides where pods can be scheduled, now and when the pools have added their taints.
pub async fn placement(client: &Client) -> Result<(View, Lacks), ReadError> {
    let (reader, mut lacks) = (Reader::new(client), Lacks::default());
    let nodes = Known::Complete(reader.nodes(ListParams::default()).await?);
    let classes = Known::Complete(reader.classes().await?);
    let pools = lacks.known(reader.pools_if_installed().await, "taints that pools will add are not considered")?;
    Ok((View { nodes, classes, pools, ..View::default() }, lacks))
}

/// Reads the labels of a namespace into the view, if the user may.
pub async fn add_namespace(client: &Client, name: &str, view: &mut View) -> Result<(), ReadError> {
    let mut reader = Reader::new(client);
    reader.namespaces(Some(name), false).await?;
    view.namespace_labels.append(&mut reader.view.namespace_labels);
    Ok(())
}

/// Reads the objects that the workloads of the view refer to, in one namespace or in all. What the user may not list is not known.
pub async fn add_related(client: &Client, namespace: Option<&str>, view: &mut View) -> Result<(), ReadError> {
    let found = related(client, namespace, view).await?;
    Arc::make_mut(&mut view.related).extend(found);
    Ok(())
}

/// Returns the objects that the workloads of this view refer to.
async fn related(client: &Client, namespace: Option<&str>, by: &View) -> Result<Related, ReadError> {
    let mut found = Related::default();
    for related @ &RelatedKind { api_versions, kind, is_namespaced, .. } in &RELATED {
        if !by.mentions(related) {
            continue;
        }
        let mut listed = Ok(());
        for api_version in api_versions {
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
            let api = api_of(client, namespace.filter(|_| is_namespaced), &resource);
            listed = match live::list(kind, &api, ListParams::default(), |object| found.add(kind, "", object)).await {
                Ok(()) => Ok(()),
                Err(error @ ReadError::Forbidden { .. }) => Err(error.to_string()),
                // The cluster may serve another version.
                Err(ReadError::Failed { error: RequestError::Gone, .. }) => continue,
                Err(error) => return Err(error),
            };
            break;
        }
        found.set_listed(kind, listed);
    }
    Ok(found)
}

/// Reads only the pools.
pub async fn pools(client: &Client) -> Result<Seen, ReadError> {
    let reader = Reader::new(client);
    let pools = Known::Complete(reader.pools().await?);
    Ok(Seen { view: View { pools, ..View::default() }, gaps: reader.gaps })
}

/// The part of a cluster that rules read.
#[derive(Clone, Copy, Debug, Default)]
pub struct RulesScope<'a> {
    /// The namespace of the workloads; all if not set.
    pub namespace: Option<&'a str>,
    /// The version of Kubernetes; that of the cluster if not set.
    pub version: Option<KubernetesVersion>,
    /// True if rules read objects besides workloads too.
    pub has_objects: bool,
    /// True if the answer groups workloads by the labels of their namespaces.
    pub groups: bool,
}

/// Reads the workloads as they were written, and what rules need besides. A user without permission to list that can
/// still run the rules that do not need it. Fails if the user may list no workloads.
pub async fn rules(client: &Client, scope: RulesScope<'_>) -> Result<Seen, ReadError> {
    let mut reader = Reader::new(client);
    reader.surroundings(scope.version, UNCHECKED).await?;
    reader.written(scope.namespace).await?;
    add_related(client, scope.namespace, &mut reader.view).await?;
    reader.note_policies();
    reader.namespaces(scope.namespace, scope.groups).await?;
    if scope.has_objects {
        let (_, services) = resource(client, scope.namespace, "", "Service");
        let services = live::collect("services", &services, ListParams::default(), placed).await;
        reader.view.services = reader.unless_forbidden(services, "Services are not checked")?;
        reader.credential_specs().await?;
    }
    Ok(reader.done())
}

/// Reads what these manifests are judged by: nodes, pools, classes, the labels of namespaces, and the objects to which workloads refer.
pub async fn surroundings(client: &Client, manifests: &View) -> Result<Seen, ReadError> {
    let mut reader = Reader::new(client);
    reader.surroundings(None, UNCHECKED).await?;
    reader.namespaces(None, false).await?;
    add_related(client, None, &mut reader.view).await?;
    let of_manifests = related(client, None, manifests).await?;
    Arc::make_mut(&mut reader.view.related).extend(of_manifests);
    reader.note_policies();
    Ok(reader.done())
}

/// What the answers of rules lack without nodes, classes or pools.
const UNCHECKED: [&str; 3] = ["what depends on it is not checked"; 3];

/// The API group of webhooks and admission policies.
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The API group of roles and their bindings.
pub(super) const RBAC: &str = "rbac.authorization.k8s.io";

/// How a command reads pods and workloads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As the operator reads them.
    Decoded,
    /// As they were written.
    Written,
    Both,
}

/// The label of the `ReplicaSets` of a Deployment, which stands for them.
const OF_DEPLOYMENT: &str = "pod-template-hash";

/// True for the `ReplicaSet` of a Deployment.
pub(super) fn is_of_deployment(object: &Value) -> bool {
    object["kind"] == "ReplicaSet" && !object["metadata"]["labels"][OF_DEPLOYMENT].is_null()
}

/// Reads parts of a cluster into a view.
pub(super) struct Reader<'c> {
    pub client: &'c Client,
    pub view: View,
    pub gaps: Gaps,
    /// Messages about objects that the user may not list.
    pub notes: Vec<String>,
}

impl<'c> Reader<'c> {
    pub fn new(client: &'c Client) -> Self {
        Self { client, view: View::default(), gaps: Gaps::default(), notes: Vec::new() }
    }

    /// Prints the notes, and returns what was read.
    pub fn done(self) -> Seen {
        self.notes.iter().for_each(|note| progress::note(note));
        Seen { view: self.view, gaps: self.gaps }
    }

    pub async fn nodes(&self, parameters: ListParams) -> Result<Vec<SeenNode>, ReadError> {
        let nodes = Api::<core::v1::Node>::all(self.client.clone());
        live::collect("nodes", &nodes, parameters, |SeenOnWire(node)| node).await
    }

    pub async fn classes(&self) -> Result<Vec<Arc<RuntimeClass>>, ReadError> {
        let classes = Api::<RuntimeClass>::all(self.client.clone());
        live::collect("runtimeclasses", &classes, ListParams::default(), |class: RuntimeClass| class.into()).await
    }

    async fn pools(&self) -> Result<Vec<Placed<GuardedPool>>, ReadError> {
        let pools = Api::<GuardedPool>::all(self.client.clone());
        live::collect("windowspools", &pools, ListParams::default(), placed).await
    }

    /// Reads the pools. Without winpool there are none.
    pub async fn pools_if_installed(&self) -> Result<Vec<Placed<GuardedPool>>, ReadError> {
        match self.pools().await {
            Err(ReadError::NoDefinition) => Ok(Vec::new()),
            pools => pools,
        }
    }

    /// Reads nodes, classes and pools, as far as the user may, and notes what the answer lacks without each. The version is that of
    /// the cluster if not set.
    pub async fn surroundings(
        &mut self,
        version: Option<KubernetesVersion>,
        [nodes, classes, pools]: [&str; 3],
    ) -> Result<(), ReadError> {
        self.view.kubernetes = match version {
            Some(version) => Some(version),
            None => kubernetes_version(self.client).await,
        };
        let listed = self.nodes(ListParams::default()).await;
        self.view.nodes = self.unless_forbidden(listed, nodes)?;
        let listed = self.classes().await;
        self.view.classes = self.unless_forbidden(listed, classes)?;
        let listed = self.pools_if_installed().await;
        self.view.pools = self.unless_forbidden(listed, pools)?;
        Ok(())
    }

    /// Notes that admission policies may not be listed.
    pub fn note_policies(&mut self) {
        if let Known::Forbidden(error) = Policies::of(&self.view.related) {
            self.notes.push(format!("{error}; what admission policies change is not considered"));
        }
    }

    /// Reads workloads with what happens to their pods before the scheduler sees them, the version of Kubernetes and the templates of
    /// autoscalers.
    async fn rest_of_decisions(&mut self) -> Result<(), ReadError> {
        self.workloads().await?;
        self.namespaces(None, false).await?;
        self.view.kubernetes = kubernetes_version(self.client).await;
        self.view.autoscalers = progress::waiting("reading NodePools", autoscalers::read(self.client)).await;
        Ok(())
    }

    /// Reads the workloads as the operator reads them.
    async fn workloads(&mut self) -> Result<(), ReadError> {
        for (kind, resource) in self.kinds().await?.into_iter().filter(|(kind, _)| kind.has_template()) {
            if let Some(ReadError::Forbidden { message, .. }) =
                self.objects(kind, &resource, Form::Decoded, None).await?
            {
                self.refuse(kind, message);
            }
        }
        Ok(())
    }

    /// Reads the pods or workloads of a kind. Returns the error if the user may not list them.
    pub async fn objects(
        &mut self,
        kind: &'static WorkloadKind,
        resource: &ApiResource,
        form: Form,
        namespace: Option<&str>,
    ) -> Result<Option<ReadError>, ReadError> {
        let api = api_of(self.client, namespace, resource);
        let selected = match (kind.name, form) {
            ("Pod", Form::Both) => live::unfinished_pods(),
            // A Deployment stands for its ReplicaSets.
            ("ReplicaSet", Form::Decoded) => ListParams::default().labels("!pod-template-hash"),
            _ => ListParams::default(),
        };
        let (mut pods, mut workloads, mut unread) = (Vec::new(), Vec::new(), None);
        let keep = |value: Value| {
            let value = typed(value, resource);
            if form != Form::Written {
                let read = if kind.name == "Pod" {
                    Pod::deserialize(&value).map(|pod| pods.push(pod))
                } else if kind.has_template() && !is_of_deployment(&value) {
                    Workload::read_all(kind, &value).map(|read| workloads.extend(read))
                } else {
                    Ok(())
                };
                unread = read.err().or(unread.take());
            }
            if form != Form::Decoded {
                self.view.written.add(None, Reduced::from(assembled(value)));
            }
        };
        let listed = unless_absent(live::list(kind.plural, &api, selected, keep).await, kind);
        let refused = live::unless_forbidden(listed)?;
        if form != Form::Written {
            if kind.name == "Pod" {
                self.view.pods = Known::Complete(pods);
            } else if kind.has_template() {
                *self.view.workloads.of_kind(kind) = Known::Complete(workloads);
            }
        }
        self.gaps.in_cluster |= counts(kind) && refused.is_some();
        // An object of another kind that cannot be read is left out: its pods show it.
        if let Some(error) = unread.filter(|_| kind.is_own() && refused.is_none()) {
            let reason = format!("an object cannot be read: {error}");
            self.notes.push(format!("{}: {reason}", kind.plural));
            self.gaps.in_cluster |= counts(kind);
            self.refuse(kind, reason);
        }
        Ok(refused)
    }

    /// Returns the kinds that the API server may serve, each in the newest version that winpool can read.
    pub async fn kinds(&mut self) -> Result<Vec<(&'static WorkloadKind, ApiResource)>, ReadError> {
        let groups = match live::groups(self.client).await {
            Err(error @ ReadError::Forbidden { .. }) => {
                self.notes.push(format!("{error}; kinds of other projects are not read"));
                BTreeSet::new()
            }
            groups => groups?,
        };
        let is_served = |kind: &WorkloadKind, version: &str| kind.is_own() || groups.contains(version);
        let newest = |kind: &'static WorkloadKind| {
            let version = kind.api_versions.iter().find(|version| is_served(kind, version))?;
            Some((kind, resource_of(kind, version)))
        };
        Ok(KINDS.iter().filter_map(newest).collect())
    }

    /// Reads pods and workloads as they were written. Fails if the user may list none of them.
    async fn written(&mut self, namespace: Option<&str>) -> Result<(), ReadError> {
        let (mut is_listed, mut refused) = (false, None);
        for (kind, resource) in self.kinds().await? {
            let counts = counts(kind);
            let Some(error) = self.objects(kind, &resource, Form::Written, namespace).await? else {
                is_listed |= counts;
                continue;
            };
            self.notes.push(format!("{error}; {}s are not checked", kind.name));
            self.refuse(kind, error.to_string());
            if counts {
                refused.get_or_insert(error);
            }
        }
        refused.filter(|_| !is_listed).map_or(Ok(()), Err)
    }

    /// Reads the labels of all namespaces, or of one. Without them an answer has fewer groups, if workloads are grouped by them, and
    /// does not say what PodSecurity refuses and which sidecar injectors they turn on.
    pub async fn namespaces(&mut self, namespace: Option<&str>, groups: bool) -> Result<(), ReadError> {
        const WHAT: &str = "namespaces";
        let (_, api) = resource(self.client, None, "", "Namespace");
        let read = match namespace {
            Some(name) => live::get::<_, Value>(WHAT, &api, name).await.map(|object| object.into_iter().collect()),
            None => live::collect(WHAT, &api, ListParams::default(), |namespace: Value| namespace).await,
        };
        match read {
            Ok(namespaces) => self.view.namespace_labels.extend(namespaces.iter().filter_map(labels)),
            Err(error @ ReadError::Forbidden { .. }) => {
                let lacks = if groups {
                    "workloads are not grouped by the labels of their namespaces"
                } else {
                    "what PodSecurity refuses, and which nodes namespaces select, is not considered"
                };
                self.notes.push(format!("{error}; {lacks}"));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Notes that pods or workloads of this kind are not known.
    pub fn refuse(&mut self, kind: &'static WorkloadKind, reason: String) {
        if kind.has_template() {
            *self.view.workloads.of_kind(kind) = Known::Forbidden(reason);
        } else if kind.name == "Pod" {
            self.view.pods = Known::Forbidden(reason);
        }
    }

    /// Reads the `GMSACredentialSpec` objects if a workload names one.
    pub async fn credential_specs(&mut self) -> Result<(), ReadError> {
        if !self.view.written.mention(gmsa::NAME) {
            return Ok(());
        }
        let (resource, api) = resource(self.client, None, GMSA_GROUP, "GMSACredentialSpec");
        let specs = match live::collect(&resource.plural, &api, ListParams::default(), placed).await {
            // Without the custom resource definition there are no such objects.
            Err(ReadError::Failed { error: RequestError::Gone, .. }) => Ok(Vec::new()),
            specs => specs,
        };
        self.view.credential_specs = self.unless_forbidden(specs, "names of GMSACredentialSpecs are not checked")?;
        let roles = "permissions to use GMSACredentialSpecs are not checked";
        let kinds = [(RBAC, "Role"), (RBAC, "ClusterRole"), (RBAC, "RoleBinding"), (RBAC, "ClusterRoleBinding")];
        self.view.permissions = self.all_of(&kinds, roles).await?;
        let webhook = (ADMISSION, "MutatingWebhookConfiguration");
        self.view.webhooks = self.all_of(&[webhook], "it is not checked if there is a GMSA webhook").await?;
        Ok(())
    }

    /// Reads the objects of these kinds. Most users may not list them, so the answer does not count as incomplete without them.
    async fn all_of(&mut self, kinds: &[(&str, &'static str)], lacks: &str) -> Result<Known<Vec<Value>>, ReadError> {
        let mut objects = Vec::new();
        for (group, kind) in kinds {
            let (resource, api) = resource(self.client, None, group, kind);
            let keep = |mut value: Value| {
                value["kind"] = json!(kind);
                objects.push(value);
            };
            let listed = live::list(&resource.plural, &api, ListParams::default(), keep).await;
            if let Some(error) = live::unless_forbidden(listed)? {
                self.notes.push(format!("{error}; {lacks}"));
                return Ok(Known::Forbidden(error.to_string()));
            }
        }
        Ok(Known::Complete(objects))
    }

    /// Notes what the answer lacks if the user may not list these objects. Fails with any other error.
    pub fn unless_forbidden<T>(&mut self, listed: Result<T, ReadError>, lacks: &str) -> Result<Known<T>, ReadError> {
        if let Err(error @ ReadError::Forbidden { .. }) = &listed {
            self.gaps.in_cluster = true;
            self.notes.push(format!("{error}; {lacks}"));
        }
        live::known(listed)
    }
}

/// Returns the name and the labels of a namespace, with the annotations with which it selects nodes.
pub(super) fn labels(namespace: &Value) -> Option<(String, BTreeMap<String, String>)> {
    let metadata = &namespace["metadata"];
    let mut labels: BTreeMap<String, String> = BTreeMap::deserialize(&metadata["labels"]).unwrap_or_default();
    let selected = NODE_SELECTORS.iter().filter_map(|key| Some((*key, metadata["annotations"][*key].as_str()?)));
    labels.extend(selected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Some((metadata["name"].as_str()?.to_owned(), labels))
}

pub(super) fn placed<T>(object: T) -> Placed<T> {
    (None, object)
}

/// Returns version 1 of a resource, in one namespace or in all.
pub fn resource(
    client: &Client,
    namespace: Option<&str>,
    group: &str,
    kind: &str,
) -> (ApiResource, Api<DynamicObject>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let api = api_of(client, namespace, &resource);
    (resource, api)
}

/// Returns the resource of this kind in one of its versions.
pub fn resource_of(kind: &WorkloadKind, api_version: &str) -> ApiResource {
    let version = api_version.rsplit_once('/').map_or(api_version, |(_, version)| version);
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(kind.group(), version, kind.name), kind.plural)
}

/// Returns the objects of a resource, in one namespace or in all.
pub fn api_of(client: &Client, namespace: Option<&str>, resource: &ApiResource) -> Api<DynamicObject> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

/// Returns the object with its version and kind, which lists leave out.
pub fn typed(mut object: Value, resource: &ApiResource) -> Value {
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(resource.kind);
    object
}

/// True if an answer without the objects of this kind is incomplete. A `PodTemplate` creates no pods, and Kubernetes' own roles `view`,
/// `edit` and `admin` cannot list them. Those roles know no kinds of other projects either, whose pods are listed.
pub(super) fn counts(kind: &WorkloadKind) -> bool {
    kind.is_own() && kind.name != "PodTemplate"
}

/// Lists no object of a kind that another project adds if the cluster does not have it, although it has its group.
pub(super) fn unless_absent(listed: Result<(), ReadError>, kind: &WorkloadKind) -> Result<(), ReadError> {
    match listed {
        Err(ReadError::Failed { error: RequestError::Gone, .. }) if !kind.is_own() => Ok(()),
        listed => listed,
    }
}

/// A node as the API server or a manifest shows it.
#[derive(Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct SeenOnWire(pub SeenNode);

impl TryFrom<Value> for SeenOnWire {
    type Error = serde_json::Error;

    fn try_from(node: Value) -> Result<Self, Self::Error> {
        Ok(Self(SeenNode::new(ListedNode::deserialize(&node)?.object, &node)))
    }
}
