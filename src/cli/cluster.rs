//! The objects of a cluster, from the API server or from manifests.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use k8s_openapi::api::{core, node::v1::RuntimeClass};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::{Deserialize, de::DeserializeOwned};
use winpool_core::{
    api::names,
    plan::{Autoscalers, reconcile::ControlPlaneInfo},
    pod::{LISTED_KINDS, Pod, PodProgress, Workload, WorkloadKind},
};

use crate::{
    api_server::pods,
    cache::node::{self, CachedNode},
    controllers::{GuardedPool, pool::ControlPlane},
};

use super::{
    input::{self, InputError, Keep, Manifest},
    live::{self, ReadError},
};

/// The objects that winpool reads from a cluster.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Windows nodes, and nodes with winpool's marks that were Windows nodes before.
    pub nodes: Vec<CachedNode>,
    /// Pools, including those that do not decode.
    pub pools: Vec<GuardedPool>,
    pub classes: Vec<Arc<RuntimeClass>>,
    pub pods: Pods,
    /// The workloads that create pods from a template.
    pub workloads: Vec<(WorkloadKind, Workload)>,
    /// The kinds of workloads that cannot be listed, with the API server's message.
    pub unlisted: BTreeMap<String, String>,
    pub other_nodes: Vec<CachedNode>,
    /// The facts about the control plane.
    pub control_plane: ControlPlaneInfo,
}

/// The unfinished pods.
#[derive(Debug, Default, PartialEq)]
pub enum Pods {
    /// The manifests have no pods.
    #[default]
    NotGiven,
    /// Pods cannot be listed; with the API server's message.
    Unreadable(String),
    Listed(Vec<Pod>),
}

impl Cluster {
    /// Reads a live cluster, in pages.
    pub async fn live(client: &Client) -> Result<Self, ReadError> {
        let mut cluster = Self::default();
        let all = ListParams::default;
        let pools = Api::<GuardedPool>::all(client.clone());
        live::list("windowspools", &pools, all(), |pool| cluster.pools.push(pool)).await?;
        let nodes = Api::<core::v1::Node>::all(client.clone());
        for selector in [node::windows(), node::reimaged()] {
            live::list("nodes", &nodes, all().labels(&selector), |node| cluster.nodes.push(node)).await?;
        }
        let keep = |class: RuntimeClass| cluster.classes.push(class.into());
        live::list("runtimeclasses", &Api::<RuntimeClass>::all(client.clone()), all(), keep).await?;
        let others = ListParams::default().labels(&format!("{}!={}", names::OS, names::WINDOWS));
        live::list("nodes", &nodes, others, |node| cluster.other_nodes.push(node)).await?;
        for (kind, _, plural) in LISTED_KINDS {
            let api = pods::workloads(client, kind, None);
            let keep = |workload| cluster.workloads.push((kind, workload));
            match live::list(plural, &api, pods::of_kind(kind), keep).await {
                Ok(()) => {}
                Err(ReadError::Forbidden { words, .. }) => {
                    cluster.unlisted.insert(plural.to_owned(), words);
                }
                Err(error) => return Err(error),
            }
        }
        let asked = Box::pin(async { ControlPlane::new(client, true).ask(None).await });
        cluster.control_plane = live::waiting("reading policies", asked).await;
        let mut pods = Vec::new();
        let (api, keep) = (Api::<core::v1::Pod>::all(client.clone()), |pod| pods.push(pod));
        cluster.pods = match live::list("pods", &api, pods::unfinished(), keep).await {
            Ok(()) => Pods::Listed(pods),
            Err(ReadError::Forbidden { words, .. }) => Pods::Unreadable(words),
            Err(error) => return Err(error),
        };
        cluster.sort();
        Ok(cluster)
    }

    pub fn from_manifests(paths: &[PathBuf]) -> Result<Self, InputError> {
        let (mut cluster, mut templates) = (Self::default(), Vec::new());
        for (_, part) in input::read::<Part<CachedNode>>(paths)? {
            match part {
                Part::Node(node) => {
                    let is_known = node.seen.is_windows() || node.seen.labels.get(names::POOL).is_some();
                    if is_known { &mut cluster.nodes } else { &mut cluster.other_nodes }.push(*node);
                }
                Part::Pool(pool) => cluster.pools.push(*pool),
                Part::Class(class) => cluster.classes.push(class.into()),
                Part::Template(object) => templates.push(object),
                Part::Workload(kind, mut workload) => {
                    set_namespace(&mut workload.namespace, DEFAULT_NAMESPACE);
                    cluster.workloads.push((kind, *workload));
                }
                Part::Pod(mut pod) => {
                    set_namespace(&mut pod.namespace, DEFAULT_NAMESPACE);
                    match &mut cluster.pods {
                        Pods::Listed(pods) => pods.push(*pod),
                        pods => *pods = Pods::Listed(vec![*pod]),
                    }
                }
            }
        }
        if let Pods::Listed(pods) = &mut cluster.pods {
            pods.retain(|pod| pod.progress != PodProgress::Finished);
        }
        cluster.control_plane.autoscalers = Autoscalers::read(&templates, Vec::new());
        cluster.sort();
        Ok(cluster)
    }

    /// Returns a note if manifests have no nodes.
    pub fn note_without_nodes(&self) -> Option<String> {
        let has_nodes = !self.nodes.is_empty() || !self.other_nodes.is_empty();
        (!has_nodes)
            .then(|| "The manifests have no nodes, so winpool does not know which nodes the cluster has.".to_owned())
    }

    fn sort(&mut self) {
        self.nodes.sort_by(|a, b| a.name().cmp(b.name()));
        self.pools.sort_by_key(ResourceExt::name_any);
        self.classes.sort_by_key(|class| class.name_any());
    }
}

/// The namespace of objects in manifests that name none, unless the user names it.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Sets the namespace of an object that names none.
pub(super) fn set_namespace(own: &mut String, namespace: &str) {
    if own.is_empty() {
        namespace.clone_into(own);
    }
}

/// An object in a manifest; a node is read as `N`.
pub(super) enum Part<N> {
    Node(Box<N>),
    Pool(Box<GuardedPool>),
    Class(Box<RuntimeClass>),
    /// An object that describes the nodes that an autoscaler can create.
    Template(serde_json::Value),
    Workload(WorkloadKind, Box<Workload>),
    Pod(Box<Pod>),
}

impl<N: DeserializeOwned> Keep for Part<N> {
    fn keep(manifest: Manifest) -> Result<Option<Self>, serde_json::Error> {
        let workload = LISTED_KINDS.iter().find(|(kind, group, ..)| manifest.is(group, kind.as_str()));
        Ok(Some(if let Some((kind, ..)) = workload {
            Self::Workload(*kind, Box::new(Workload::deserialize(manifest.value)?))
        } else if Autoscalers::are_read_from(manifest.group(), &manifest.kind) {
            Self::Template(manifest.typed())
        } else if manifest.is("", "Node") {
            Self::Node(Box::new(N::deserialize(manifest.value)?))
        } else if manifest.is(names::GROUP, "WindowsPool") {
            Self::Pool(manifest.into_pool()?)
        } else if manifest.is("node.k8s.io", "RuntimeClass") {
            Self::Class(Box::new(RuntimeClass::deserialize(manifest.value)?))
        } else if manifest.is("", "Pod") {
            Self::Pod(Box::new(Pod::deserialize(manifest.value)?))
        } else {
            return Ok(None);
        }))
    }
}
